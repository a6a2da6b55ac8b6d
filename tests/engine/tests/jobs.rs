//! The coordinator of the registry's jobs: it takes each job once, by the rules of all changes, and a job is done when every
//! shard has said so.

use semel_core::id::Principal;
use semel_core::message::{Headers, Method, Request};
use semel_core::path::Path;
use semel_core::server::Config;
use semel_core::server::registry::{Coordinator, Job, Progress, SHARDS};
use semel_support::{Database, Reply, START_MS, START_S};
use serde_json::{Value, json};

/// Sends a request to a coordinator.
fn ask(coordinator: &mut Coordinator, database: &Database, method: Method, path: &str, id: &str, body: &str) -> Reply {
    let name = (!id.is_empty()).then(|| ("idempotency-key", format!("\"{id}\"")));
    ask_with(coordinator, database, method, path, Headers::from_iter(name), body)
}

fn ask_with(
    coordinator: &mut Coordinator,
    database: &Database,
    method: Method,
    path: &str,
    headers: Headers,
    body: &str,
) -> Reply {
    let path = Path::new(&format!("/semel/v1/admin/{path}"), "").unwrap();
    let request = Request { method, path, headers, body: body.as_bytes().to_vec() };
    let keys = vec![10; usize::from(SHARDS)];
    let administrator = Principal::administrator();
    Reply::checked(coordinator.handle(database, (&request, false), &administrator, keys, START_MS).unwrap())
}

fn json_of(reply: &Reply) -> Value {
    serde_json::from_slice(reply.body()).unwrap()
}

#[test]
fn a_job_is_accepted_once_under_its_id_by_the_rules_of_all_changes() {
    let database = Database::new();
    let mut coordinator = Coordinator::new(Config::default());
    assert_eq!(coordinator.jobs(&database), Ok(Vec::new()));
    let body = format!("{{\"before\":{START_S}}}");
    let mut post = |id: &str, body: &str| ask(&mut coordinator, &database, Method::Post, "forget", id, body);
    let made = post("a", &body);
    assert_eq!((made.status(), made.only("semel-status")), (202, "executed"));
    let running = json!({ "id": "1", "before": START_S, "state": "running", "keys": 160, "done": 0 });
    assert_eq!(json_of(&made), running);
    let again = post("a", &body);
    assert_eq!((again.only("semel-status"), again.body()), ("replayed", made.body()));
    post("a", "{\"before\":1}").is_problem(422, "fingerprint-mismatch", "no", "after-fix");
    post("", &body).is_problem(400, "key-missing", "no", "after-fix");
    for bad in [
        "",
        "[]",
        "{}",
        "{\"before\":-1}",
        "{\"before\":1.5}",
        "{\"before\":1,\"x\":1}",
        &format!("{{\"before\":{}}}", START_S + 1),
    ] {
        post("bad", bad).is_problem(400, "body-invalid", "no", "after-fix");
    }
    assert_eq!(post("b", "{\"before\":0}").status(), 202);
    let jobs = coordinator.jobs(&database).unwrap();
    let all: Vec<u8> = (0..SHARDS).collect();
    assert_eq!(jobs, [Job { id: 1, before_s: START_S, shards: all.clone() }, Job { id: 2, before_s: 0, shards: all }]);
}

#[test]
fn a_job_with_a_place_in_a_session_is_refused() {
    let database = Database::new();
    let headers = Headers::from_iter([("semel-session", "\"s\";epoch=1;seq=1")]);
    let mut coordinator = Coordinator::new(Config::default());
    let reply = ask_with(&mut coordinator, &database, Method::Post, "forget", headers, "{\"before\":5}");
    reply.is_problem(400, "key-invalid", "no", "after-fix");
}

#[test]
fn more_than_100_running_jobs_are_refused_until_one_is_done() {
    let database = Database::new();
    let mut coordinator = Coordinator::new(Config::default());
    let mut post =
        |id: usize| ask(&mut coordinator, &database, Method::Post, "forget", &format!("job-{id}"), "{\"before\":5}");
    for id in 1..=100 {
        assert_eq!(post(id).status(), 202, "{id}");
    }
    post(101).is_problem(503, "capacity", "no", "same-id");
    assert_eq!(post(7).only("semel-status"), "replayed");
    let done = Progress { keys: 1, done: 1, failed: Vec::new(), is_done: true };
    for shard in 0..SHARDS {
        Coordinator::new(Config::default()).told(&database, 50, shard, &done).unwrap();
    }
    assert_eq!(post(101).status(), 202, "the same id, once there is room");
    post(102).is_problem(503, "capacity", "no", "same-id");
}

#[test]
fn limits_set_for_keys_do_not_limit_the_coordinators_jobs() {
    let database = Database::new();
    let rules = "[{\"keys\":\"*\",\"recordsMax\":1,\"bytesMax\":1,\"retentionSeconds\":1}]";
    let settings = |name: &str| match name {
        "SEMEL_KEY_RULES" => Some(rules.to_owned()),
        "SEMEL_RECORDS_MAX" | "SEMEL_BYTES_MAX" => Some("1".to_owned()),
        _ => None,
    };
    let mut coordinator = Coordinator::new(Config::from_settings(settings).unwrap());
    for id in ["a", "b", "c"] {
        let made = ask(&mut coordinator, &database, Method::Post, "forget", id, "{\"before\":5}");
        assert_eq!(made.status(), 202);
    }
}

#[test]
fn progress_sums_up_what_the_shards_reported_and_a_job_ends_with_the_last_shard() {
    let database = Database::new();
    let mut coordinator = Coordinator::new(Config::default());
    ask(&mut coordinator, &database, Method::Post, "forget", "a", "{\"before\":5}");
    let failed = vec!["a b".to_owned(), "caf\u{e9}".to_owned()];
    coordinator.told(&database, 1, 0, &Progress { keys: 12, done: 7, failed, is_done: false }).unwrap();
    for shard in 1..SHARDS {
        coordinator
            .told(&database, 1, shard, &Progress { keys: 1, done: 1, failed: Vec::new(), is_done: true })
            .unwrap();
    }
    let progress =
        |coordinator: &mut Coordinator| json_of(&ask(coordinator, &database, Method::Get, "forget/1", "", ""));
    let expected =
        json!({ "id": "1", "before": 5, "state": "running", "keys": 27, "done": 22, "failed": ["a b", "caf\u{e9}"] });
    assert_eq!(progress(&mut coordinator), expected);
    assert_eq!(coordinator.jobs(&database).unwrap().len(), 1);
    coordinator.told(&database, 1, 0, &Progress { keys: 12, done: 12, failed: Vec::new(), is_done: true }).unwrap();
    // A late report, with an earlier state.
    coordinator.told(&database, 1, 0, &Progress { keys: 12, done: 7, failed: Vec::new(), is_done: false }).unwrap();
    let expected = json!({ "id": "1", "before": 5, "state": "done", "keys": 27, "done": 27, "failed": [] });
    assert_eq!(progress(&mut coordinator), expected);
    assert_eq!(coordinator.jobs(&database), Ok(Vec::new()));
    let unknown = ask(&mut coordinator, &database, Method::Get, "forget/2", "", "");
    unknown.is_problem(404, "not-found", "no", "after-fix");
}

#[test]
fn the_last_100_finished_jobs_are_kept_and_all_unfinished_ones() {
    let database = Database::in_memory();
    let mut coordinator = Coordinator::new(Config::default());
    let done = Progress { keys: 1, done: 1, failed: Vec::new(), is_done: true };
    for id in 1..=150 {
        let made = ask(&mut coordinator, &database, Method::Post, "forget", &format!("job-{id}"), "{\"before\":5}");
        assert_eq!(made.status(), 202);
        let is_done = |shard: &u8| id != 7 || *shard > 0;
        (0..SHARDS).filter(is_done).for_each(|shard| coordinator.told(&database, id, shard, &done).unwrap());
    }
    let jobs =
        |table: &str| database.number(&format!("SELECT count(DISTINCT id) FROM {table} WHERE id = 7 OR id > 50"));
    for table in ["forgets", "parts"] {
        assert_eq!((jobs(table), database.number(&format!("SELECT count(DISTINCT id) FROM {table}"))), (101, 101));
    }
    assert_eq!(coordinator.jobs(&database).unwrap().len(), 1);
}

#[test]
fn a_crash_at_any_statement_of_taking_a_job_leaves_one_job() {
    let mut crashes = 0;
    loop {
        let database = Database::new();
        database.crash_before(crashes);
        let body = "{\"before\":5}";
        let mut coordinator = Coordinator::new(Config::default());
        let got = ask(&mut coordinator, &database, Method::Post, "forget", "a", body);
        if !database.has_crashed() {
            assert_eq!(got.status(), 202);
            break;
        }
        got.is_problem(503, "unavailable", "unknown", "same-id");
        database.reopen();
        let mut coordinator = Coordinator::new(Config::default());
        assert_eq!(ask(&mut coordinator, &database, Method::Post, "forget", "a", body).status(), 202);
        assert_eq!(coordinator.jobs(&database).unwrap().len(), 1, "crash {crashes}");
        crashes += 1;
    }
    assert!(crashes >= 30, "only {crashes} places to crash");
}

#[test]
fn only_the_administrator_can_start_a_forget_job() {
    let database = Database::new();
    let mut coordinator = Coordinator::new(Config::default());
    let path = Path::new("/semel/v1/admin/forget", "").unwrap();
    let headers = [("idempotency-key", "\"a\"")].into_iter().collect();
    let request = Request { method: Method::Post, path, headers, body: b"{\"before\":5}".to_vec() };
    let alice = Principal::new("alice").unwrap();
    let answer = coordinator.handle(&database, (&request, false), &alice, Vec::new(), START_MS).unwrap();
    Reply::checked(answer).is_problem(403, "forbidden", "no", "after-fix");
    assert_eq!(coordinator.jobs(&database), Ok(Vec::new()));
}
