//! The registry of keys: what a shard is told, and what it lists. Crashes at every statement.

use semel_core::server::registry::{Listing, Page, Report, SHARDS, Shard, merged};
use semel_support::registry::{report, tables_with};
use semel_support::{Database, START_MS, START_S};
use serde_json::{Value, json};
use std::collections::BTreeMap;

const KEYS: &str = "/semel/v1/admin/keys";

/// One page of a list over shards, with a database each.
fn listed(databases: &[Database], query: &str) -> Value {
    let listing = Listing::parse(&format!("{KEYS}?{query}")).unwrap();
    let pages = databases.iter().zip(0..).map(|(database, number)| {
        let (total, rows) = Shard::new(database, number).list(&listing).unwrap();
        Page::from_rows(total, rows).unwrap()
    });
    serde_json::from_slice(&merged(&listing, pages.collect()).body).unwrap()
}

/// The names of all pages, one after the other.
fn walked(databases: &[Database], query: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut after = String::new();
    loop {
        let page = listed(databases, &format!("{query}{after}"));
        let keys = page["keys"].as_array().unwrap();
        assert!(after.is_empty() || !keys.is_empty(), "the last page says that it is the last");
        names.extend(keys.iter().map(|key| key["key"].as_str().unwrap().to_owned()));
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => return names,
        }
    }
}

#[test]
fn all_orders_list_each_key_once_over_all_pages_and_shards() {
    let databases: Vec<Database> = (0..3).map(|_| Database::new()).collect();
    let mut numbers: BTreeMap<String, (i64, i64, i64)> = BTreeMap::new();
    for number in 0..200_i64 {
        let key = format!("{}/{number}", if number % 4 == 0 { "accounts" } else { "caf\u{e9}" });
        let shard = (number % 3) as u8;
        // Several keys have equal numbers, to test that their order is total.
        let (created, bytes, in_doubt) = (START_MS + number / 5, 4096 * (number % 7), number % 3);
        let told = Report { bytes, in_doubt, ..report(&key, START_MS) };
        Shard::new(&databases[usize::from(shard)], shard).report(&told, created).unwrap();
        numbers.insert(key, (created, bytes, in_doubt));
    }
    let sorted = |number: fn(&(i64, i64, i64)) -> i64| {
        let mut names: Vec<(i64, String)> = numbers.iter().map(|(key, each)| (-number(each), key.clone())).collect();
        names.sort();
        names.into_iter().map(|(_, key)| key).collect::<Vec<_>>()
    };
    assert_eq!(walked(&databases, "order=newest&limit=7"), sorted(|each| each.0));
    assert_eq!(walked(&databases, "order=heaviest&limit=7"), sorted(|each| each.1));
    assert_eq!(walked(&databases, "order=name&limit=7"), sorted(|_| 0));
    assert_eq!(walked(&databases, "order=name&limit=200").len(), 200);
    for (order, number) in
        [("newest", (|each| each.0) as fn(&(i64, i64, i64)) -> i64), ("heaviest", |each| each.1), ("name", |_| 0)]
    {
        let some: Vec<_> = sorted(number).into_iter().filter(|key| numbers[key].2 > 0).collect();
        assert_eq!(walked(&databases, &format!("order={order}&limit=7&state=in-doubt")), some);
        assert_eq!(listed(&databases, &format!("order={order}&limit=1&state=in-doubt"))["total"], some.len());
    }
    assert_eq!(listed(&databases, "state=in-doubt&prefix=accounts/")["total"], 33);
    for order in ["newest", "heaviest", "name"] {
        let names = walked(&databases, &format!("order={order}&limit=9&prefix=accounts/"));
        assert!(names.len() == 50 && names.iter().all(|name| name.starts_with("accounts/")), "{order}: {names:?}");
        assert_eq!(listed(&databases, &format!("order={order}&prefix=caf%C3%A9"))["total"], 150);
        assert_eq!(
            listed(&databases, &format!("order={order}&prefix=nobody")),
            json!({ "keys": [], "next": null, "total": 0 })
        );
    }
    assert_eq!(listed(&databases, "limit=1&order=name")["keys"][0]["key"], "accounts/0");
}

#[test]
fn a_late_report_changes_nothing_in_the_registry_and_a_deleted_key_leaves_it() {
    let databases = [Database::new()];
    let shard = Shard::new(&databases[0], 0);
    shard.report(&report("a", START_MS), START_MS).unwrap();
    shard.report(&Report { records: 7, ..report("a", START_MS + 5) }, START_MS + 9).unwrap();
    shard.report(&report("a", START_MS + 1), START_MS + 10).unwrap();
    let key = json!({ "key": "a", "created": START_MS, "seen": START_MS + 5, "records": 7, "tombstones": 0, "inDoubt": 0, "bytes": 20_480,
        "parked": 0, "oldest": START_MS + 5 });
    assert_eq!(listed(&databases, "")["keys"], json!([key]));
    let gone = Report { is_listed: false, ..report("a", START_MS + 4) };
    assert_eq!(shard.report(&gone, START_MS), Ok(None));
    assert_eq!(shard.count(), Ok(1), "it came back since");
    assert_eq!(shard.report(&Report { at: START_MS + 6, ..gone.clone() }, START_MS), Ok(Some(0)));
    assert_eq!(shard.count(), Ok(0));
    assert_eq!(shard.report(&gone, START_MS), Ok(Some(0)), "it is not there");
}

/// Something that few keys have: how a report gives the number, the query that asks for it, and its name in a list.
type Few = (fn(i64) -> Report, &'static str, &'static str);
const FEW: [Few; 2] = [
    (|in_doubt| Report { in_doubt, ..report("users/zoe@example.com", START_MS) }, "state=in-doubt", "inDoubt"),
    (|parked| Report { parked, ..report("users/zoe@example.com", START_MS) }, "state=parked", "parked"),
];

#[test]
fn counts_in_doubt_and_parked_are_those_of_the_latest_report_and_leave_with_their_key() {
    for (saying, query, member) in FEW {
        let database = Database::new();
        let shard = Shard::new(&database, 0);
        let tell = |at: i64, count, is_listed| {
            shard.report(&Report { at: START_MS + at, is_listed, ..saying(count) }, START_MS).unwrap();
            let list = listed(std::slice::from_ref(&database), query);
            let keys = list["keys"].as_array().unwrap();
            assert_eq!(list["total"], keys.len());
            keys.first().map_or(0, |key| key[member].as_i64().unwrap())
        };
        let told = [(0, 2), (2, 3), (1, 4), (9, 3), (0, 3), (2, 5)].map(|(count, at)| tell(at, count, true));
        assert_eq!(told, [0, 2, 1, 1, 1, 2], "{query}: what comes late changes nothing");
        assert_eq!(listed(std::slice::from_ref(&database), "")["keys"][0][member], 2);
        for (_, other, _) in FEW.into_iter().filter(|(_, other, _)| *other != query) {
            assert_eq!(listed(std::slice::from_ref(&database), other)["keys"], json!([]), "{query} is not {other}");
        }
        assert_eq!(tell(4, 0, false), 2);
        assert_eq!(tell(6, 2, false), 0);
        assert_eq!(tables_with(&database, "users/zoe@example.com"), [""; 0]);
        assert_eq!(tell(5, 3, true), 0, "told before it was taken out");
    }
}

#[test]
fn a_shard_of_an_earlier_build_lists_keys_and_takes_counts_in_doubt_and_parked() {
    let earlier = ["DROP TRIGGER refusals_gone; DROP TABLE refusals", "DROP TRIGGER doubts_gone; DROP TABLE doubts"];
    for (saying, query, member) in FEW {
        let database = Database::new();
        let shard = Shard::new(&database, 0);
        shard.report(&saying(3), START_MS).unwrap();
        let whole = listed(std::slice::from_ref(&database), query);
        // Without the table that was added last, and without the last two.
        for count in [1, 2] {
            let put_back = || earlier.iter().take(count).for_each(|script| database.fill(script));
            put_back();
            let list = listed(std::slice::from_ref(&database), "");
            assert_eq!(list["total"], 1);
            assert_eq!(list["keys"][0][member], if member == "inDoubt" && count == 1 { 3 } else { 0 });
            put_back();
            shard.report(&saying(3), START_MS).unwrap();
            assert_eq!(listed(std::slice::from_ref(&database), query), whole);
        }
    }
}

#[test]
fn a_shard_of_another_number_or_another_count_is_refused() {
    let database = Database::new();
    assert_eq!(Shard::new(&database, 3).count(), Ok(0), "nothing is there yet");
    Shard::new(&database, 3).report(&report("a", START_MS), START_MS).unwrap();
    assert!(Shard::new(&database, 4).report(&report("a", START_MS), START_MS).is_err());
    database.tamper("UPDATE registry SET shards = 32");
    let refused = Shard::new(&database, 3).count().unwrap_err();
    assert!(refused.0.contains("32") && refused.0.contains(&SHARDS.to_string()), "{refused}");
}

#[test]
fn a_report_from_before_a_key_was_unlisted_does_not_list_it_and_a_later_one_does() {
    let database = Database::new();
    let shard = Shard::new(&database, 0);
    let lists = |report: &Report, now_ms: i64| {
        shard.report(report, now_ms).unwrap();
        database.number(&format!("SELECT count(*) FROM keys WHERE key = '{}'", report.key)) == 1
    };
    let gone = |key: &str, at_ms: i64| Report { is_listed: false, ..report(key, at_ms) };
    for at_ms in [START_MS, START_MS + 60_000] {
        assert!(!lists(&gone("a", at_ms + 20_000), at_ms + 20_000));
        assert!(!lists(&report("a", at_ms), at_ms + 30_000), "told before, and late");
        assert!(lists(&report("b", at_ms), at_ms + 30_000), "another one");
        assert!(lists(&report("a", at_ms + 20_001), at_ms + 30_000));
    }
    let kept = || database.number("SELECT count(*) FROM gone");
    assert_eq!(kept(), 1);
    let later_ms = START_MS + 2 * 3_600_000;
    assert!(lists(&report("b", later_ms), later_ms));
    assert_eq!(kept(), 0, "what can't come any more is forgotten, whoever reports");
}

#[test]
fn a_crash_at_any_statement_of_a_report_leaves_it_whole_or_not_there() {
    let mut crashes = 0;
    loop {
        let database = Database::new();
        database.crash_before(crashes);
        let ended = Shard::new(&database, 0).report(&report("a", START_MS), START_MS);
        if !database.has_crashed() {
            ended.unwrap();
            break;
        }
        database.reopen();
        assert!(ended.is_err());
        assert_eq!(Shard::new(&database, 0).count(), Ok(0), "crash {crashes}");
        assert_eq!(Shard::new(&database, 0).report(&report("a", START_MS), START_MS), Ok(Some(0)));
        assert_eq!(Shard::new(&database, 0).count(), Ok(1));
        crashes += 1;
    }
    assert!(crashes >= 10, "only {crashes} places to crash");
}

/// A key's clock may have been put back since its last report. It reports again until the list shows the report.
#[test]
fn a_key_is_told_if_the_registry_ignored_its_report_because_of_a_later_one() {
    let database = Database::new();
    let shard = Shard::new(&database, 0);
    shard.visit(1, START_S).unwrap();
    let tell = |at, is_listed| shard.report(&Report { is_listed, ..report("a", at) }, START_MS);
    assert_eq!(tell(START_MS + 5, true), Ok(Some(START_S)));
    assert_eq!(tell(START_MS + 4, true), Ok(Some(START_S)), "it is listed");
    assert_eq!((tell(START_MS + 4, false), shard.count()), (Ok(None), Ok(1)));
    assert_eq!((tell(START_MS + 5, false), shard.count()), (Ok(Some(START_S)), Ok(0)));
    assert_eq!(tell(START_MS + 4, false), Ok(Some(START_S)), "it is gone");
    assert_eq!((tell(START_MS + 4, true), shard.count()), (Ok(None), Ok(0)));
    assert_eq!((tell(START_MS + 6, true), shard.count()), (Ok(Some(START_S)), Ok(1)));
}

#[test]
fn a_shard_without_any_report_lists_no_keys_and_creates_no_tables() {
    let databases = [Database::new()];
    assert_eq!(listed(&databases, "limit=1"), json!({ "keys": [], "next": null, "total": 0 }));
    assert_eq!(databases[0].tables(), Vec::<String>::new());
}
