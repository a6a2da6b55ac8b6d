//! *What an administrator reads* in the protocol: a test for each sentence.

use semel_core::id::Principal;
use semel_support::admin::{ask, cancel_for, delete_key, delete_record, path};
use semel_support::{Call, Reply, START_MS, START_S, World, acknowledge, cancel, delete, get, head, look_up, post};
use serde_json::{Value, json};

fn change(id: &str) -> Call {
    post("/count").id(id)
}

fn world() -> World {
    World::with(|config| config.retention_s = 1000)
}

/// The body of a read.
#[track_caller]
fn read(world: &mut World, what: &str) -> Value {
    let reply = world.send(&ask(what));
    assert_eq!((reply.status(), reply.only("semel-status")), (200, "read"), "{:?}", reply.json());
    assert_eq!(reply.only("cache-control"), "no-store");
    reply.json()
}

/// A key with a record in every state.
fn of_every_state() -> World {
    let mut world = world();
    world.send(&change("executed").first_sent_s(START_S).deadline_ms(START_MS + 1));
    (0..3).for_each(|_| drop(world.crashed(&change("poisoned"))));
    world.send(&cancel("cancel-it", "cancelled").by("bob"));
    world.crashed(&change("suspect").first_sent_s(START_S));
    world.send(&change("acknowledged").deadline_ms(START_MS));
    world.send(&acknowledge(&format!("[{{\"id\":\"acknowledged\",\"until\":{START_MS}}}]")));
    world.send(&change("expired"));
    world.send(&delete_record("delete-it", "expired")).is_executed(200);
    world
}

/// An id with the form of an effect's id.
const EFFECT: &str = "00000000000000000000000000000001";

#[test]
fn paths_of_the_administrator_are_forbidden_to_any_other_principal_and_change_nothing() {
    let mut world = world();
    world.send(&change("a")).is_executed(200);
    let before = world.rows();
    let calls = |id: &str| {
        vec![
            get(&path("")),
            head(&path("")),
            get(&path("/records")),
            get(&path("/times?from=0&step=1&count=1")),
            get(&path("/records/a")),
            delete(&path("")).id(id),
            delete(&path("/records/a")).id(id),
            post(&path("/cancel")).id(id).body("{\"id\":\"b\"}"),
            post(&path("/records/a/resolve")).id(id).body("{\"executed\":\"no\"}"),
            get(&path("/effects")),
            post(&path(&format!("/effects/{EFFECT}/retry"))).id(id).body("{}"),
            post(&path(&format!("/effects/{EFFECT}/drop"))).id(id).body("{}"),
            post(&path(&format!("/effects/{EFFECT}/park"))).id(id).body("{}"),
        ]
    };
    for principal in ["alice", "", "semel:admi", "admin"] {
        for call in calls("own") {
            let reply = world.send(&call.by(principal));
            assert_eq!((reply.status(), reply.only("semel-status")), (403, "forbidden"), "{principal}");
        }
    }
    assert_eq!((world.rows(), world.effects()), (before, 1));
    assert_eq!(world.send(&look_up("a")).status(), 200);
}

#[test]
fn effects_of_an_application_that_emits_none_are_not_found_with_the_reason() {
    let mut world = world();
    world.send(&change("a")).is_executed(200);
    for call in [get(&path("/effects")), post(&path(&format!("/effects/{EFFECT}/retry"))).id("mend").body("{}")] {
        let reply = world.send(&call.by("semel:admin"));
        assert_eq!((reply.status(), reply.json()["detail"].clone()), (404, json!("no effects leave this application")));
    }
}

#[test]
fn a_key_shows_what_it_holds_its_limits_and_its_answers() {
    let mut world = World::with(|config| {
        config.retention_s = 1000;
        config.records_max = 10;
        config.tombstones_max = 20;
        config.bytes_max = 1_000_000;
    });
    world.send(&change("a")).is_executed(200);
    world.pass_s(1);
    world.send(&change("b")).is_executed(200);
    world.send(&change("b")).is_replayed(200);
    world.send(&get("/count").ack("b"));
    world.forget(START_S - 500).expect("storage");
    let shown = read(&mut world, "");
    let bytes = shown["bytes"].as_u64().expect("bytes");
    assert!((4096..100_000).contains(&bytes) && bytes.is_multiple_of(4096), "{bytes}");
    let expected = json!({
        "key": "counters/1", "now": START_MS + 1000, "records": 1, "tombstones": 1, "bytes": bytes, "sessions": 0,
        "oldest": START_MS, "inDoubt": 0, "retentionSeconds": 1000, "fence": START_S - 500, "forgottenBefore": START_S - 500,
        "recordsMax": 10, "tombstonesMax": 20, "sessionsMax": 100_000, "bytesMax": 1_000_000,
        "counters": { "executed": 2, "replayed": 1, "read": 1 },
    });
    assert_eq!(shown, expected);
    // The counters belong to the object, which has answered these two reads.
    assert_eq!(read(&mut world, "")["counters"]["read"], 2);
    world.restart();
    assert_eq!(read(&mut world, "")["counters"], json!({}));
}

#[test]
fn counting_a_start_is_not_counted_as_an_answer() {
    let mut world = world();
    world.start(&change("a"));
    world.send(&change("a")).is_executed(200);
    assert_eq!(read(&mut world, "")["counters"], json!({ "executed": 1 }));
}

#[test]
fn a_key_that_nobody_has_used_is_not_found_and_gets_no_tables() {
    let mut world = world();
    for what in ["", "/records", "/times?from=0&step=1&count=1", "/records/a"] {
        world.send(&ask(what)).is_problem(404, "not-found", "no", "after-fix");
    }
    world.send(&delete_key("own")).is_problem(404, "not-found", "no", "after-fix");
    world.send(&delete_record("own", "a")).is_problem(404, "not-found", "no", "after-fix");
    assert_eq!(world.database.tables(), [""; 0]);
}

#[test]
fn an_administrators_read_writes_nothing_but_the_acknowledgements_that_it_carries() {
    let mut world = of_every_state();
    // A sweep is due from now on.
    world.pass_s(100);
    let written = world.database.rows_written();
    for what in ["", "/records?limit=2", "/times?from=0&step=1000&count=10", "/records/executed", "/records/nobody"] {
        world.send(&ask(what));
    }
    assert_eq!(world.database.rows_written(), written);
    world.send(&ask("").ack("delete-it"));
    assert_eq!(world.send(&ask("/records/delete-it")).field("state"), "acknowledged");
}

#[test]
fn a_head_request_is_answered_without_a_body() {
    let mut world = of_every_state();
    let reply = world.send(&head(&path("")).by(Principal::administrator().as_str()));
    assert_eq!((reply.status(), reply.body()), (200, &b""[..]));
}

#[test]
fn records_are_listed_by_id_page_by_page() {
    let mut world = of_every_state();
    let all = read(&mut world, "/records");
    let ids = |page: &Value| -> Vec<String> {
        let ids = page["records"].as_array().expect("records").iter();
        ids.map(|record| record["id"].as_str().expect("an id").to_owned()).collect()
    };
    let expected =
        ["acknowledged", "cancel-it", "cancelled", "delete-it", "executed", "expired", "poisoned", "suspect"];
    assert_eq!((ids(&all), &all["next"]), (expected.map(str::to_owned).to_vec(), &Value::Null));
    let mut paged = Vec::new();
    let mut after = String::new();
    loop {
        let page = read(&mut world, &format!("/records?limit=3{after}"));
        assert!(page["records"].as_array().is_some_and(|records| records.len() <= 3));
        paged.extend(page["records"].as_array().expect("records").clone());
        let Some(next) = page["next"].as_str() else { break };
        after = format!("&after={next}");
    }
    assert_eq!(Value::Array(paged), all["records"]);
    // A page that ends with the last record has no next page.
    assert_eq!(read(&mut world, "/records?limit=8")["next"], Value::Null);
    assert_eq!(read(&mut world, "/records?limit=7")["next"], "poisoned");
}

#[test]
fn a_record_of_each_state_is_shown_in_full_in_the_list_and_alone() {
    let mut world = of_every_state();
    let record = |id: &str, state: &str, executed: &str| {
        json!({
            "id": id, "state": state, "principal": "alice", "firstSent": null, "at": START_MS, "deadline": null,
            "lapses": null, "executed": executed, "status": null, "bytes": null, "crashes": null,
        })
    };
    let with = |mut record: Value, members: Value| {
        record.as_object_mut().expect("a record").extend(members.as_object().expect("members").clone());
        record
    };
    let ten_s_ms = START_MS + 10_000;
    let records = [
        with(
            record("acknowledged", "acknowledged", "yes"),
            json!({ "deadline": START_MS, "lapses": START_MS + 60_000 }),
        ),
        with(record("cancelled", "cancelled", "unknown"), json!({ "principal": "bob" })),
        with(
            record("executed", "executed", "yes"),
            json!({ "firstSent": START_S, "deadline": ten_s_ms, "status": 200, "bytes": 11 }),
        ),
        with(record("expired", "expired", "yes"), json!({ "lapses": START_MS + 1_000_000 })),
        record("poisoned", "poisoned", "no"),
        with(record("suspect", "suspect", "no"), json!({ "firstSent": START_S, "crashes": 1 })),
    ];
    let listed = read(&mut world, "/records");
    for record in records {
        let id = record["id"].as_str().expect("an id");
        let found = listed["records"].as_array().expect("records").iter().find(|each| each["id"] == id);
        assert_eq!(found, Some(&record), "{id}");
        let mut alone = read(&mut world, &format!("/records/{id}"));
        let members = alone.as_object_mut().expect("a record");
        let (outcome, fingerprint) = (members.remove("outcome"), members.remove("fingerprint"));
        assert_eq!(alone, record);
        assert_eq!(outcome.is_some_and(|outcome| !outcome.is_null()), id == "executed");
        let is_hex = |text: &str| text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let has_print = fingerprint.as_ref().and_then(Value::as_str).is_some_and(is_hex);
        assert_eq!(has_print, id == "executed" || id == "poisoned", "{id}");
    }
    world.send(&ask("/records/nobody")).is_problem(404, "not-seen", "unknown", "same-id");
}

#[test]
fn an_outcome_is_shown_as_it_is_recorded() {
    let mut world = world();
    let body = world.send(&change("a")).text().to_owned();
    let outcome = &read(&mut world, "/records/a")["outcome"];
    let headers = json!({ "content-type": "application/json", "cache-control": "no-store" });
    assert_eq!(outcome, &json!({ "status": 200, "headers": headers, "body": body }));
    world.send(&post("/headers").id("bytes"));
    assert_eq!(read(&mut world, "/records/bytes")["outcome"]["body"], json!({ "base64": "AP8KgA==" }));
}

#[test]
fn ids_are_percent_encoded_in_paths_and_queries() {
    let mut world = world();
    for id in ["a/b?c#d", "100% +1"] {
        world.send(&change(id)).is_executed(200);
    }
    assert_eq!(read(&mut world, "/records/a%2Fb%3Fc%23d")["id"], "a/b?c#d");
    let page = read(&mut world, "/records?after=100%25+%2B1");
    assert_eq!(page["records"][0]["id"], "a/b?c#d", "a form's space and plus");
    assert_eq!(read(&mut world, "/records?after=100%25%20%2B1"), page);
    world.send(&delete_record("own", "a%2Fb%3Fc%23d")).is_executed(200);
    assert_eq!(read(&mut world, "/records/a%2Fb%3Fc%23d")["state"], "expired");
}

#[test]
fn records_and_tombstones_are_counted_per_interval_of_time() {
    let mut world = world();
    for (n, id) in ["a", "b", "c", "d", "e"].iter().enumerate() {
        world.wall_ms = START_MS + 400 * n as i64;
        world.send(&change(id)).is_executed(200);
    }
    world.send(&acknowledge("[\"c\",\"e\"]"));
    // a is at 0, b at 400, d at 1200; c and e are tombstones since 1600.
    let times = read(&mut world, &format!("/times?from={START_MS}&step=500&count=4"));
    let expected = json!({ "from": START_MS, "step": 500, "records": [2, 0, 1, 0], "tombstones": [0, 0, 0, 2] });
    assert_eq!(times, expected);
    let later = read(&mut world, &format!("/times?from={}&step=500&count=1", START_MS + 1000));
    assert_eq!((&later["records"], &later["tombstones"]), (&json!([1]), &json!([0])), "nothing before and after");
}

#[test]
fn the_counts_per_time_read_at_most_10000_rows_and_say_if_there_are_more() {
    let mut world = world();
    world.send(&change("!")).is_executed(200);
    world.database.tamper(&format!(
        "WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 10000) INSERT INTO semel_records \
         (id, state, principal, at_ms) SELECT 'r' || n, 3, 'alice', {START_MS} FROM n"
    ));
    world.restart();
    let what = format!("/times?from={START_MS}&step=1&count=1");
    let times = read(&mut world, &what);
    assert_eq!((&times["truncated"], &times["tombstones"]), (&json!(true), &json!([9_999])));
    world.database.tamper("DELETE FROM semel_records WHERE id = 'r1'");
    world.restart();
    let times = read(&mut world, &what);
    assert_eq!((times.get("truncated"), &times["tombstones"]), (None, &json!([9_999])));
    // As many rows of packed tombstones are more than one plot looks at, too.
    world.database.tamper(&format!(
        "WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 10000) INSERT INTO semel_tombstones \
         (at_ms, lapses_ms, principal, entries) SELECT {START_MS}, {}, 'alice', x'000000000161' FROM n",
        START_MS + 60_000
    ));
    world.restart();
    assert_eq!(read(&mut world, &what)["truncated"], json!(true));
}

/// A page of records: their ids, and the id after which the next page begins.
type Page = (Vec<String>, Option<String>);

fn page(ids: &[&str], next: Option<&str>) -> Page {
    (ids.iter().map(ToString::to_string).collect(), next.map(str::to_owned))
}

/// All pages of a key's records in one state.
fn pages_of(world: &mut World, state: &str, limit: usize) -> Vec<Page> {
    let mut pages: Vec<Page> = Vec::new();
    loop {
        let after =
            pages.last().and_then(|(_, next)| next.as_ref()).map_or_else(String::new, |id| format!("&after={id}"));
        let page = read(world, &format!("/records?state={state}&limit={limit}{after}"));
        let ids = page["records"].as_array().expect("records").iter();
        let ids = ids.map(|record| record["id"].as_str().expect("an id").to_owned()).collect();
        pages.push((ids, page["next"].as_str().map(str::to_owned)));
        if page["next"].is_null() {
            return pages;
        }
    }
}

#[test]
fn records_can_be_listed_by_state_page_by_page() {
    let mut world = of_every_state();
    let all = read(&mut world, "/records")["records"].as_array().expect("records").clone();
    for state in ["executed", "poisoned", "cancelled", "suspect", "acknowledged", "expired", "in-doubt"] {
        let meant: Vec<_> = all.iter().filter(|record| record["state"] == state).cloned().collect();
        assert_eq!(read(&mut world, &format!("/records?state={state}"))["records"], Value::Array(meant), "{state}");
    }
    // "cancel-it" and "delete-it" were executed too.
    let expected =
        [page(&["cancel-it", "delete-it"], Some("delete-it")), page(&["executed"], Some("executed")), page(&[], None)];
    assert_eq!(pages_of(&mut world, "executed", 2), expected);
    assert_eq!(pages_of(&mut world, "in-doubt", 2), [page(&[], None)]);
}

#[test]
fn a_page_of_one_state_reads_at_most_10000_rows_and_the_next_page_goes_on_behind_them() {
    let mut world = world();
    world.send(&change("z")).is_executed(200);
    world.database.tamper(&format!(
        "WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 20001) INSERT INTO semel_records \
         (id, state, principal, at_ms, crashes, is_started) SELECT printf('r%05d', n), iif(n IN (10000, 10001), 3, 4), \
         'alice', {START_MS}, 1, 0 FROM n"
    ));
    world.restart();
    let expected = [page(&["r10000"], Some("r10000")), page(&["r10001"], Some("r20000")), page(&[], None)];
    assert_eq!(pages_of(&mut world, "cancelled", 200), expected);
    let expected = [page(&[], Some("r10000")), page(&[], Some("r20000")), page(&["z"], Some("z")), page(&[], None)];
    assert_eq!(pages_of(&mut world, "executed", 200), expected);
}

#[test]
fn a_query_that_cannot_be_read_is_key_invalid() {
    let mut world = of_every_state();
    for what in [
        "/records?limit=0",
        "/records?limit=201",
        "/records?limit=many",
        "/records?after=",
        "/records?after=%00",
        "/records?after=%zz",
        "/records?limit=1&limit=2",
        "/records?before=a",
        "/records?state=lost",
        "/records?state=",
        "/times",
        "/times?from=0&step=0&count=1",
        "/times?from=-1&step=1&count=1",
        "/times?from=0&step=1&count=501",
        "/times?from=1e3&step=1&count=1",
        "/times?from=9999999999999999&step=1&count=1",
        "/times?from=0&step=1&count=1&to=2",
        "/effects?limit=0",
        "/effects?limit=201",
        "/effects?after=-1",
        "/effects?before=1",
    ] {
        let reply: Reply = world.send(&ask(what));
        assert_eq!(reply.only("semel-status"), "key-invalid", "{what}");
    }
    for id in [&EFFECT[1..], &format!("{EFFECT}0"), &EFFECT.replace('0', "G"), &EFFECT.replace('0', "A")] {
        let retry = post(&path(&format!("/effects/{id}/retry"))).id("m").by("semel:admin").body("{}");
        assert_eq!(world.send(&retry).only("semel-status"), "key-invalid", "{id}");
    }
}

#[test]
fn the_outcome_of_an_administrators_change_is_replayed_to_no_other_principal() {
    let mut world = world();
    let first = world.send(&change("own").by("semel:admin"));
    first.is_executed(200);
    world.send(&change("own")).is_problem(422, "fingerprint-mismatch", "no", "after-fix");
    world.send(&change("own").by("semel:admin")).replays(&first);
}

#[test]
fn an_administrator_cancels_for_the_principal_of_the_record_or_else_for_the_one_it_names() {
    let mut world = world();
    world.crashed(&change("hers").first_sent_s(START_S));
    world.send(&cancel_for("one", "{\"id\":\"hers\",\"principal\":\"bob\"}")).is_executed(200);
    world.send(&change("hers").first_sent_s(START_S)).is_problem(410, "cancelled", "no", "never");
    world.send(&cancel_for("two", &format!("{{\"id\":\"new\",\"principal\":\"alice\",\"firstSent\":{START_S}}}")));
    world.send(&change("new").first_sent_s(START_S)).is_problem(410, "cancelled", "no", "never");
    assert_eq!(world.send(&cancel_for("three", "{\"id\":\"nobodys\"}")).field("state"), "cancelled");
    // The cancellation holds for any principal, because no attempt has come yet.
    for who in ["", "alice"] {
        world.send(&change("nobodys").by(who)).is_problem(410, "cancelled", "no", "never");
    }
    assert_eq!((world.effects(), read(&mut world, "/records/nobodys")["principal"].clone()), (0, json!("semel:admin")));
}

#[test]
fn an_administrators_cancellation_of_an_executed_id_answers_with_its_outcome() {
    let mut world = world();
    let ran = world.send(&change("a"));
    let reply = world.send(&cancel_for("own", "{\"id\":\"a\"}"));
    assert_eq!((reply.field("state").as_str(), &reply.json()["outcome"]["body"]), ("executed", &json!(ran.text())));
    assert_eq!(world.send(&change("a")).only("semel-status"), "replayed");
}

#[test]
fn an_administrators_cancellation_passes_the_same_checks_as_any_other() {
    let mut world = world();
    let late = cancel_for("own", "{\"id\":\"a\"}").deadline_ms(START_MS - 1);
    world.send(&late).is_problem(408, "attempt-expired", "no", "same-id");
    let old = cancel_for("own", "{\"id\":\"a\",\"firstSent\":1}");
    world.send(&old).is_problem(412, "outside-window", "unknown", "never");
    let own = cancel_for("own", "{\"id\":\"own\"}");
    assert_eq!(world.send(&own).only("semel-status"), "body-invalid");
    // Only an administrator may name a principal.
    let named = cancel("own", "a").body("{\"id\":\"a\",\"principal\":\"bob\"}");
    assert_eq!(world.send(&named).only("semel-status"), "body-invalid");
    assert_eq!(world.send(&change("a")).only("semel-status"), "executed");
}
