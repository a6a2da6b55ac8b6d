//! The registry of keys: how a shard walks over its keys for a job. Crashes at every statement.

use semel_core::server::SqlError;
use semel_core::server::registry::{Progress, Report, Shard, Tried, Visit};
use semel_support::registry::{report, tables_with};
use semel_support::{Database, START_MS, START_S};
use std::collections::{BTreeMap, BTreeSet};

/// A shard with this many keys.
fn shard_of(count: usize) -> Database {
    let database = Database::new();
    for number in 0..count {
        Shard::new(&database, 0).report(&report(&format!("key-{number:04}"), START_MS), START_MS).unwrap();
    }
    database
}

/// Works on a job until it is done, with `visit` for each key. Returns also how often each key was visited.
fn work(database: &Database, visit: impl Fn(&str, usize) -> Tried) -> (Progress, BTreeMap<String, usize>) {
    let mut visits = BTreeMap::new();
    for _ in 0..1000 {
        let shard = Shard::new(database, 0);
        let step = shard.visit(1, START_S).unwrap();
        let tried: Vec<Tried> = step
            .keys
            .iter()
            .map(|key| {
                let count = visits.entry(key.clone()).or_insert(0);
                *count += 1;
                visit(key, *count)
            })
            .collect();
        let progress = shard.visited(1, &step, &tried).unwrap();
        assert!(progress.done <= progress.keys);
        if progress.is_done {
            return (progress, visits);
        }
    }
    panic!("it is not done after 1000 steps");
}

#[test]
fn a_walk_visits_each_key_once_and_a_failed_or_unfinished_one_again_until_it_is_done() {
    let database = shard_of(300);
    let (progress, visits) = work(&database, |key, visit| match key {
        "key-0007" if visit < 4 => Tried::Failed,
        "key-0100" if visit < 3 => Tried::Left,
        _ => Tried::Done,
    });
    assert_eq!(progress, Progress { keys: 300, done: 300, failed: Vec::new(), is_done: true });
    let more: Vec<_> = visits.iter().filter(|(_, count)| **count != 1).collect();
    assert_eq!(more, [(&"key-0007".to_owned(), &4), (&"key-0100".to_owned(), &3)]);
    assert_eq!(visits.len(), 300);
}

#[test]
fn a_key_that_fails_is_named_in_the_progress_and_tried_again_only_after_all_others() {
    let database = shard_of(100);
    let shard = Shard::new(&database, 0);
    let mut seen = 0;
    while seen < 100 {
        let step = shard.visit(1, START_S).unwrap();
        assert!(step.place.is_some(), "what failed comes again before {seen} of 100 were seen");
        let tried: Vec<Tried> =
            step.keys.iter().map(|key| if key == "key-0003" { Tried::Failed } else { Tried::Done }).collect();
        seen += tried.len();
        shard.visited(1, &step, &tried).unwrap();
    }
    let step = shard.visit(1, START_S).unwrap();
    assert_eq!(step, Visit { place: None, keys: vec!["key-0003".to_owned()] });
    let progress = shard.visited(1, &step, &[Tried::Failed]).unwrap();
    assert_eq!(progress, Progress { keys: 100, done: 99, failed: vec!["key-0003".to_owned()], is_done: false });
    assert_eq!(
        database.number("SELECT count(*) FROM jobs WHERE place <> ''"),
        0,
        "what is walked names no key as its place"
    );
}

#[test]
fn keys_that_always_fail_do_not_hold_up_keys_that_were_tried_less_often() {
    let database = shard_of(20);
    let shard = Shard::new(&database, 0);
    let mut tried_once = BTreeSet::new();
    let mut done = 0;
    for _ in 0..20 {
        let visit = shard.visit(1, START_S).unwrap();
        let tried = visit.keys.iter().map(|key| match tried_once.insert(key.clone()) || **key < *"key-0010" {
            true => Tried::Failed,
            false => Tried::Done,
        });
        done = shard.visited(1, &visit, &tried.collect::<Vec<_>>()).unwrap().done;
    }
    assert_eq!(done, 10, "the first ten fail for ever");
}

#[test]
fn a_job_ends_when_the_key_that_it_could_not_visit_is_deleted() {
    let database = shard_of(2);
    let shard = Shard::new(&database, 0);
    let step = || {
        let visit = shard.visit(1, START_S).unwrap();
        let tried: Vec<Tried> =
            visit.keys.iter().map(|key| if key == "key-0001" { Tried::Failed } else { Tried::Done }).collect();
        shard.visited(1, &visit, &tried).unwrap()
    };
    for _ in 0..5 {
        step();
    }
    assert_eq!((step().done, step().is_done), (1, false));
    let gone = |at| Report { is_listed: false, ..report("key-0001", at) };
    shard.report(&gone(START_MS - 1), START_MS).unwrap();
    assert!(!step().is_done, "it came back since");
    shard.report(&gone(START_MS + 1), START_MS).unwrap();
    let Progress { keys, done, failed, is_done } = step();
    assert_eq!((keys, done, failed.len(), is_done), (2, 2, 0, true));
}

#[test]
fn a_step_of_a_walk_that_is_taken_twice_counts_once() {
    let database = shard_of(100);
    let shard = Shard::new(&database, 0);
    let step = shard.visit(1, START_S).unwrap();
    assert_eq!(shard.visit(1, START_S).unwrap(), step, "who took it before may be dead");
    let tried = vec![Tried::Done; step.keys.len()];
    let once = shard.visited(1, &step, &tried).unwrap();
    assert_eq!(shard.visited(1, &step, &tried).unwrap(), once);
    let (progress, _) = work(&database, |_, _| Tried::Done);
    assert_eq!((progress.keys, progress.done), (100, 100));
    assert_eq!(shard.visited(1, &step, &tried).unwrap().done, 100);
}

#[test]
fn a_key_that_reports_after_jobs_have_begun_is_told_the_latest_instant_to_forget() {
    let database = shard_of(1);
    let shard = Shard::new(&database, 0);
    assert_eq!(shard.report(&report("b", START_MS), START_MS), Ok(Some(0)));
    shard.visit(1, START_S).unwrap();
    shard.visit(2, START_S - 100).unwrap();
    assert_eq!(shard.report(&report("c", START_MS), START_MS), Ok(Some(START_S)));
}

#[test]
fn two_jobs_that_walk_in_turns_are_both_done() {
    let database = shard_of(70);
    let shard = Shard::new(&database, 0);
    let mut done = [false, false];
    while done != [true, true] {
        for (job, done) in [1, 2].into_iter().zip(&mut done) {
            let step = shard.visit(job, START_S + job).unwrap();
            let progress = shard.visited(job, &step, &vec![Tried::Done; step.keys.len()]).unwrap();
            *done = progress.is_done;
            assert!(!*done || progress.done == 70);
        }
    }
}

#[test]
fn a_shard_keeps_the_last_100_finished_jobs() {
    let database = shard_of(1);
    let shard = Shard::new(&database, 0);
    for job in 1..=150 {
        while !shard.visit(job, START_S).and_then(|visit| shard.visited(job, &visit, &[Tried::Done])).unwrap().is_done {
        }
    }
    for table in ["jobs", "walks"] {
        let ids = database.query(&format!("SELECT min(id), count(*) FROM {table}"));
        assert_eq!(ids, [[51, 100].map(semel_core::server::Value::from)], "{table}");
    }
}

#[test]
fn the_name_of_a_deleted_key_is_in_no_table_once_no_job_is_walking() {
    const NAME: &str = "users/zoe@example.com";
    let gone = |at: i64| Report { is_listed: false, ..report(NAME, at) };
    for is_deleted_meanwhile in [true, false] {
        let database = shard_of(20);
        let shard = Shard::new(&database, 0);
        shard.report(&report(NAME, START_MS), START_MS).unwrap();
        // It is the last by name, so the walk ends there.
        while !tables_with(&database, NAME).contains(&"jobs".to_owned()) {
            let visit = shard.visit(1, START_S).unwrap();
            shard.visited(1, &visit, &vec![Tried::Done; visit.keys.len()]).unwrap();
        }
        if is_deleted_meanwhile {
            shard.report(&gone(START_MS + 1), START_MS + 1).unwrap();
            assert_eq!(tables_with(&database, NAME), ["jobs"], "the walk is not over");
        }
        let (progress, visits) = work(&database, |_, _| Tried::Done);
        assert_eq!((progress.keys, progress.done, visits.len()), (21, 21, 0));
        if !is_deleted_meanwhile {
            assert_eq!(tables_with(&database, NAME), ["keys"]);
            shard.report(&gone(START_MS + 1), START_MS + 1).unwrap();
        }
        assert_eq!(tables_with(&database, NAME), [""; 0]);
    }
}

/// Removes what earlier builds did not have.
fn as_before(database: &Database) {
    database.fill("DROP TABLE IF EXISTS walks; DROP INDEX IF EXISTS undone_key; DROP TABLE IF EXISTS gone");
}

#[test]
fn a_shard_of_an_earlier_build_loses_key_names_in_old_jobs_and_keeps_its_progress() {
    let database = shard_of(30);
    let shard = Shard::new(&database, 0);
    work(&database, |_, _| Tried::Done);
    let step = || {
        let visit = shard.visit(2, START_S).unwrap();
        let tried: Vec<Tried> =
            visit.keys.iter().map(|key| if key == "key-0001" { Tried::Failed } else { Tried::Done }).collect();
        let Progress { keys, done, is_done, .. } = shard.visited(2, &visit, &tried).unwrap();
        (keys, done, is_done)
    };
    assert_eq!(step(), (30, 7, false));
    as_before(&database);
    let name = "users/zoe@example.com";
    let keep = format!("UPDATE jobs SET place = '{name}' WHERE id = 1");
    database.tamper(&keep);
    // A report of any key does this.
    shard.report(&report("key-0000", START_MS + 1), START_MS + 1).unwrap();
    assert_eq!(tables_with(&database, name), [""; 0]);
    assert_eq!(step(), (30, 15, false), "eight more of as many as before");
    // The earlier build was put back, and then forward again.
    database.tamper(&keep);
    while step().1 < 29 {}
    step();
    assert_eq!(tables_with(&database, name), [""; 0]);
    assert_eq!(step(), (30, 29, false));
}

#[test]
fn a_job_that_an_earlier_build_began_is_finished() {
    let database = shard_of(20);
    // That build doesn't know how many keys there were.
    database.tamper(&format!("INSERT INTO jobs VALUES (1, {START_S}, 'key-0003', 0, 4)"));
    let (progress, visits) = work(&database, |_, _| Tried::Done);
    assert_eq!((progress.keys, progress.done, visits.len()), (20, 20, 16));
}

#[test]
fn a_jobs_number_of_keys_is_never_below_those_visited_and_is_exact_in_the_end() {
    let database = shard_of(40);
    let shard = Shard::new(&database, 0);
    let step = || {
        let visit = shard.visit(1, START_S).unwrap();
        let progress = shard.visited(1, &visit, &vec![Tried::Done; visit.keys.len()]).unwrap();
        (progress.keys, progress.done, progress.is_done)
    };
    assert_eq!(step(), (40, 8, false));
    // Ten keys are deleted that the walk has not reached, and twenty are added.
    for number in 30..40 {
        let gone = Report { is_listed: false, ..report(&format!("key-{number:04}"), START_MS + 1) };
        shard.report(&gone, START_MS + 1).unwrap();
    }
    assert_eq!(step(), (40, 16, false));
    for number in 0..20 {
        shard.report(&report(&format!("late-{number:02}"), START_MS + 1), START_MS + 1).unwrap();
    }
    let told: Vec<_> = (0..6).map(|_| step()).collect();
    let expected = [(40, 24), (40, 32), (40, 40), (48, 48), (50, 50), (50, 50)];
    assert_eq!(told.iter().map(|(keys, done, _)| (*keys, *done)).collect::<Vec<_>>(), expected);
    assert_eq!(told.iter().map(|told| told.2).collect::<Vec<_>>(), [false, false, false, false, false, true]);
    // For another job, all keys that are deleted before their turn are gone.
    let visit = shard.visit(2, START_S).unwrap();
    assert_eq!(shard.visited(2, &visit, &[Tried::Done; 8]).unwrap().keys, 50);
    for number in 0..20 {
        let gone = Report { is_listed: false, ..report(&format!("late-{number:02}"), START_MS + 2) };
        shard.report(&gone, START_MS + 2).unwrap();
    }
    let mut progress = shard.visited(2, &visit, &[]).unwrap();
    while !progress.is_done {
        assert_eq!(progress.keys, 50);
        let visit = shard.visit(2, START_S).unwrap();
        progress = shard.visited(2, &visit, &vec![Tried::Done; visit.keys.len()]).unwrap();
    }
    assert_eq!((progress.keys, progress.done), (30, 30));
}

/// How many steps of SQLite some work takes in a shard with this many keys, each of which has yet to be told for job 7.
fn work_among(count: u32, body: impl FnOnce(&Shard<'_>)) -> u64 {
    let database = Database::in_memory();
    let shard = Shard::new(&database, 0);
    shard.visit(7, START_S).unwrap();
    let numbers = format!("WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {count})");
    database.fill(&format!(
        "UPDATE jobs SET is_walked = 1; {numbers} INSERT INTO keys SELECT 'key-' || n, 0, 0, 0, 0, 0, NULL FROM n; \
         {numbers} INSERT INTO undone SELECT 7, 'key-' || n, 0, 0 FROM n"
    ));
    // The first access, and what a job does once when it begins.
    shard.visit(8, START_S).unwrap();
    let before = database.steps();
    body(&shard);
    database.steps() - before
}

#[test]
fn a_step_of_a_job_costs_no_more_with_10_000_keys_than_with_100() {
    let step = |shard: &Shard<'_>| {
        let visit = shard.visit(8, START_S).unwrap();
        assert_eq!(visit.keys.len(), 8);
        shard.visited(8, &visit, &[Tried::Done; 8]).unwrap();
    };
    let [few, many] = [100, 10_000].map(|count| work_among(count, step));
    assert!(many < few + few / 10, "{few} among 100 keys, {many} among 10,000");
}

#[test]
fn the_deletion_of_a_key_costs_no_more_if_10_000_keys_are_left_to_visit_than_if_100_are() {
    let delete = |shard: &Shard<'_>| {
        let gone = Report { is_listed: false, ..report("key-50", START_MS) };
        shard.report(&gone, START_MS).unwrap();
    };
    let [few, many] = [100, 10_000].map(|count| work_among(count, delete));
    assert!(many < few + few / 10, "{few} among 100 keys, {many} among 10,000");
}

/// Crashes before every statement of a step in turn. After each crash, the job ends with each key counted once.
#[test]
fn a_crash_at_any_statement_of_a_step_loses_no_key_and_counts_none_twice() {
    let mut crashes = 0;
    loop {
        let database = shard_of(70);
        let step = |database: &Database| -> Result<Progress, SqlError> {
            let shard = Shard::new(database, 0);
            let step = shard.visit(1, START_S)?;
            let tried: Vec<Tried> =
                step.keys.iter().map(|key| if key == "key-0001" { Tried::Failed } else { Tried::Done }).collect();
            shard.visited(1, &step, &tried)
        };
        step(&database).unwrap();
        database.crash_before(crashes);
        // The second page, the end of the walk, and the keys that are tried again.
        let ended = (0..3).try_for_each(|_| step(&database).map(drop));
        let has_crashed = database.has_crashed();
        assert_eq!(ended.is_err(), has_crashed);
        database.reopen();
        let (progress, visits) = work(&database, |_, _| Tried::Done);
        assert_eq!((progress.keys, progress.done), (70, 70), "crash {crashes}");
        assert!(visits.contains_key("key-0001"));
        if !has_crashed {
            break;
        }
        crashes += 1;
    }
    assert!(crashes >= 20, "only {crashes} places to crash");
}
