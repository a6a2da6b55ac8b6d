//! Ids that a handler makes of a request's content. They can be computed, so nobody else may take one before.

use semel_core::id::{Principal, RequestId};
use semel_core::message::{Method, Request, Response};
use semel_core::path::Path;
use semel_core::server::engine::remote::Ended;
use semel_core::server::handler::Policy;
use semel_core::server::{Config, Context, Failure, Handler, KeyRule, Sql, SqlError};
use semel_support::batches::asker;
use semel_support::{Call, Reply, START_MS, START_S, World, post};
use serde_json::json;
use std::cell::Cell;

/// Makes an id of the principal and the body, if there is one, for requests below `/named`: always, or only from some point on.
/// Requests below `/named/elsewhere` are executed elsewhere. It would make ids for the layer's own paths too, if it were asked.
struct Names {
    has_begun: Cell<bool>,
}

impl Names {
    fn world(has_begun: bool) -> World<Self> {
        World::of(Self { has_begun: has_begun.into() }, Config { open: true, ..Config::default() })
    }
}

fn is_named(path: &Path) -> bool {
    matches!(path.segments().first(), Some(&"named" | &"semel"))
}

impl Handler for Names {
    const SCHEMA_VERSION: i64 = 0;

    fn key(&self, _: &Method, _: &Path) -> KeyRule {
        KeyRule::Any
    }

    fn migrate(&self, _: &dyn Sql, _: i64) -> Result<(), SqlError> {
        Ok(())
    }

    fn id(&self, principal: &Principal, request: &Request) -> Option<String> {
        let is_named = is_named(&request.path);
        (is_named && !request.body.is_empty())
            .then(|| format!("made-{}-{}", principal.as_str(), String::from_utf8_lossy(&request.body)))
    }

    fn makes_ids(&self, _: &Method, path: &Path) -> bool {
        is_named(path)
    }

    fn owns(&self, id: &RequestId) -> bool {
        self.has_begun.get() && id.as_str().starts_with("made-")
    }

    fn is_remote(&self, _: &Method, path: &Path) -> bool {
        path.segments().starts_with(&["named", "elsewhere"])
    }

    fn handle(&self, _: &mut Context<'_>, request: &Request) -> Result<Response, Failure> {
        if self.is_remote(&request.method, &request.path) {
            return Err(Failure::Remote(Policy::Report));
        }
        Ok(Response::json(201, json!({ "traceparent": request.headers.get("traceparent") }).to_string()))
    }
}

fn control(what: &str) -> String {
    format!("/semel/v1/keys/counters%2F1/{what}")
}

/// A request as the key's object gets it, with the id that was made.
fn order(principal: &str, body: &str) -> Call {
    post("/named").id(&format!("made-{principal}-{body}")).by(principal).body(body)
}

#[test]
fn an_id_made_of_a_request_belongs_to_that_request_and_nobody_can_take_it_before() {
    let mut world = Names::world(true);
    let mallory = |call: Call| call.by("mallory");
    let body = json!({ "id": "made-alice-one" }).to_string();
    for taken in [
        post(&control("cancel")).id("c").body(body),
        post(&control("cancel")).id("made-alice-one").body(json!({ "id": "x" }).to_string()),
        post(&control("sessions")).id("made-alice-one").body(json!({ "name": "s" }).to_string()),
        post("/named").id("made-alice-one").body("one"),
        post("/other").id("made-alice-one").body("one"),
    ] {
        world.send(&mallory(taken)).is_problem(400, "key-invalid", "no", "after-fix");
    }
    let first = world.send(&order("alice", "one"));
    first.is_executed(201);
    world.send(&order("alice", "one")).replays(&first);
    world.send(&order("mallory", "one")).is_executed(201);
}

#[test]
fn a_change_without_an_id_and_without_what_one_is_made_of_is_key_missing_and_told_of_id_from() {
    let mut world = Names::world(true);
    for (path, lacks) in [("/named", true), ("/other", false)] {
        let answer = world.send(&post(path));
        answer.is_problem(400, "key-missing", "no", "after-fix");
        assert_eq!(answer.json()["detail"].as_str().is_some_and(|detail| detail.contains("idFrom")), lacks, "{path}");
    }
}

#[test]
fn the_owner_of_a_made_id_looks_it_up_and_acknowledges_it_and_an_administrator_cancels_it() {
    let mut world = Names::world(true);
    world.send(&order("alice", "one")).is_executed(201);
    let look = || Call::new("GET", &control("outcomes/made-alice-one")).by("alice");
    assert_eq!(world.send(&look()).only("semel-status"), "replayed");
    let acks = post(&control("acks")).by("alice").body(json!({ "ids": ["made-alice-one"] }).to_string());
    assert_eq!(world.send(&acks).status(), 204);
    world.send(&look()).is_problem(410, "acknowledged", "yes", "never");
    let body = json!({ "id": "made-alice-two", "principal": "alice" }).to_string();
    let cancel = post("/semel/v1/admin/keys/counters%2F1/cancel").id("c").by("semel:admin").body(body);
    assert_eq!(world.send(&cancel).json()["state"], "cancelled");
    world.send(&order("alice", "two")).is_problem(410, "cancelled", "no", "never");
}

#[test]
fn a_record_from_before_the_handler_owned_such_ids_is_replayed_and_a_new_one_is_refused() {
    let mut world = Names::world(false);
    let first = world.send(&post("/other").id("made-own-one").by("alice"));
    first.is_executed(201);
    world.handler.has_begun.set(true);
    world.send(&post("/other").id("made-own-one").by("alice")).replays(&first);
    world.send(&post("/other").id("made-own-two").by("alice")).is_problem(400, "key-invalid", "no", "after-fix");
}

#[test]
fn a_request_that_crashed_before_the_handler_owned_such_ids_still_runs() {
    let mut world = Names::world(false);
    let call = post("/other").id("made-own-one").by("alice");
    world.crashed(&call).is_problem(500, "rolled-back", "no", "same-id");
    world.handler.has_begun.set(true);
    // While another request is under way, it waits as any other does.
    let elsewhere = post("/named/elsewhere").id("made-alice-one").by("alice").body("one");
    world.send(&elsewhere).is_problem(409, "in-flight", "unknown", "same-id");
    let sent = world.take_call().expect("something to send");
    world.wait(&call).is_problem(409, "locked", "no", "same-id");
    world.settle(&elsewhere, &sent, Ended::Answered(Response::json(201, "{}"))).is_executed(201);
    world.send(&call).is_executed(201);
}

#[test]
fn a_made_id_with_a_record_is_cancelled_for_its_owner_only_and_old_cancellations_replay() {
    let mut world = Names::world(false);
    let cancel =
        |own: &str, id: &str| post(&control("cancel")).id(own).by("alice").body(json!({ "id": id }).to_string());
    let first = world.send(&cancel("a", "made-own-one"));
    assert_eq!(first.json()["state"], "cancelled");
    world.handler.has_begun.set(true);
    world.send(&cancel("a", "made-own-one")).replays(&first);
    assert_eq!(world.send(&cancel("b", "made-own-one")).json()["state"], "cancelled");
    world.send(&cancel("c", "made-own-two")).is_problem(400, "key-invalid", "no", "after-fix");
    world.send(&order("alice", "one")).is_executed(201);
    assert_eq!(world.send(&cancel("d", "made-alice-one")).json()["state"], "executed");
    world.send(&cancel("e", "made-alice-one").by("mallory")).is_problem(400, "key-invalid", "no", "after-fix");
}

#[test]
fn if_the_handler_makes_no_ids_any_client_may_use_such_ids() {
    let mut world = World::new();
    world.send(&post("/count").id("made-alice-one")).is_executed(200);
    world.send(&post("/count").id("hash-1")).is_executed(200);
}

/// Something that becomes of what alice has made.
type Make = fn(&mut World<Names>);

/// Keys at which alice has made `made-alice-one`, one for each thing that may become of it.
fn made() -> Vec<(&'static str, World<Names>)> {
    let make: [(_, Make); 8] = [
        ("executed", |world| execute(world, &order("alice", "one"))),
        ("executed elsewhere", |world| send_elsewhere(world, true)),
        ("under way", |world| send_elsewhere(world, false)),
        ("crashed", |world| crash(world, 1)),
        ("poisoned", |world| crash(world, 3)),
        ("cancelled", |world| {
            let body = json!({ "id": "made-alice-one", "principal": "alice" }).to_string();
            let cancel = post("/semel/v1/admin/keys/counters%2F1/cancel").id("c").by("semel:admin").body(body);
            assert_eq!(world.send(&cancel).json()["state"], "cancelled");
        }),
        ("acknowledged", |world| {
            execute(world, &order("alice", "one"));
            execute(world, &order("alice", "two").ack("made-alice-one"));
            assert!(world.row("made-alice-one", "state").is_some());
        }),
        ("packed", |world| {
            execute(world, &order("alice", "one").first_sent_s(START_S).deadline_ms(START_MS + 1_000));
            execute(world, &order("alice", "two").ack_until("made-alice-one", START_MS));
            assert_eq!(world.row("made-alice-one", "state"), None);
        }),
    ];
    let world = |(state, make): (_, Make)| {
        let mut world = Names::world(true);
        make(&mut world);
        (state, world)
    };
    make.into_iter().map(world).collect()
}

fn execute(world: &mut World<Names>, call: &Call) {
    world.send(call).is_executed(201);
}

fn crash(world: &mut World<Names>, times: usize) {
    for _ in 0..times {
        assert_eq!(world.crashed(&order("alice", "one")).json()["executed"], "no");
    }
}

/// Has alice's request sent to where it is executed, and answered there or not.
fn send_elsewhere(world: &mut World<Names>, is_answered: bool) {
    let call = post("/named/elsewhere").id("made-alice-one").by("alice").body("one");
    world.send(&call).is_problem(409, "in-flight", "unknown", "same-id");
    let sent = world.take_call().expect("something to send");
    if is_answered {
        world.settle(&call, &sent, Ended::Answered(Response::json(201, "{}"))).is_executed(201);
    }
}

/// Everything that somebody may ask who has computed an id. `n`: how often this was asked.
fn asked(id: &str, n: usize) -> Vec<Call> {
    let own = format!("own-{n}");
    let cancel = |more: &str| post(&control("cancel")).id(&own).body(format!("{{\"id\":{id:?}{more}}}"));
    let calls = vec![
        post("/named").id(id).body("one"),
        post("/named").id(id).body("another"),
        post("/named/elsewhere").id(id).body("one"),
        post("/other").id(id).body("one"),
        post("/other").id(id).first_sent_s(START_S),
        post("/other").id(id).first_sent_s(1),
        post("/other").id(id).deadline_ms(START_MS - 1),
        post("/other").id(id).header("semel-session", "\"s\";epoch=1;seq=1"),
        cancel(""),
        cancel(&format!(",\"firstSent\":{START_S}")),
        cancel(",\"firstSent\":1"),
        post(&control("cancel")).id(id).body(json!({ "id": "x" }).to_string()),
        post(&control("sessions")).id(id).body(json!({ "name": "s" }).to_string()),
        Call::new("GET", &control(&format!("outcomes/{id}"))),
        post(&control("acks")).body(json!({ "ids": [id] }).to_string()),
        post("/other").id("made-mallory-none").ack(id),
        post("/named").ack(id),
    ];
    calls.into_iter().map(|call| call.by("mallory")).collect()
}

fn told(reply: &Reply) -> (u16, Vec<(&str, &str)>, &str) {
    (reply.status(), reply.headers().iter().collect(), reply.text())
}

/// Asks in one way about what alice has made and about what she has not. The answers must be the same.
#[track_caller]
fn tells_nothing(way: &str, ask: impl Fn(&mut World<Names>, &str, usize) -> Vec<Reply>) {
    for (state, mut world) in made() {
        let [of_made, of_none] = [("made-alice-one", 1), ("made-alice-none", 2)].map(|(id, n)| ask(&mut world, id, n));
        assert_eq!(of_made.len(), of_none.len());
        for (n, (of_made, of_none)) in of_made.iter().zip(&of_none).enumerate() {
            assert_eq!(told(of_made), told(of_none), "{way}, {state}, {n}");
        }
    }
}

#[test]
fn an_id_made_of_anothers_request_does_not_tell_whether_that_request_was_made() {
    tells_nothing("alone", |world, id, n| asked(id, n).iter().map(|call| world.send(call)).collect());
    tells_nothing("after another", |world, id, n| asked(id, n).iter().map(|call| world.follow(call)).collect());
    tells_nothing("crashed", |world, id, n| asked(id, n).iter().map(|call| world.crashed(call)).collect());
    tells_nothing("suspected", |world, id, n| {
        let mut each = |call: &Call| {
            world.start(call);
            world.send(call)
        };
        asked(id, n).iter().map(&mut each).collect()
    });
    tells_nothing("after a restart", |world, id, n| {
        world.restart();
        asked(id, n).iter().map(|call| world.send(call)).collect()
    });
    tells_nothing("late", |world, id, n| {
        world.forget(START_S + 1).expect("a fence");
        asked(id, n).iter().map(|call| world.send(call)).collect()
    });
}

#[test]
fn an_id_made_of_anothers_request_tells_nothing_while_another_request_is_under_way() {
    tells_nothing("waiting", |world, id, n| {
        // Requests to the object itself don't wait.
        let calls = asked(id, n).into_iter().filter(|call| !call.url().0.starts_with("/semel/"));
        calls.map(|call| world.wait(&call)).collect()
    });
    let mut world = Names::world(true);
    send_elsewhere(&mut world, false);
    let wait = |call: Call| call.body("one").by("mallory");
    world.wait(&wait(post("/other").id("made-alice-one"))).is_problem(400, "key-invalid", "no", "after-fix");
    world.wait(&wait(post("/other").id("made-alice-two"))).is_problem(400, "key-invalid", "no", "after-fix");
    world.wait(&wait(post("/named").id("made-mallory-one"))).is_problem(409, "locked", "no", "same-id");
    world.wait(&wait(post("/other").id("any"))).is_problem(409, "locked", "no", "same-id");
}

#[test]
fn an_id_made_of_anothers_request_tells_nothing_in_a_group_or_a_batch() {
    tells_nothing("a group", |world, id, n| {
        let calls: Vec<_> = asked(id, n).into_iter().filter(|call| !call.url().0.contains("elsewhere")).collect();
        world.group(&calls).unwrap_or_else(|| calls.iter().map(|call| world.send(call)).collect())
    });
    tells_nothing("a batch", |world, id, n| {
        let cancel = json!({ "id": id }).to_string();
        let acks = json!({ "ids": [id] }).to_string();
        let elements = json!([
            { "method": "POST", "path": "/other", "id": id, "body": "one" },
            { "method": "POST", "path": "/named", "id": id, "body": "one" },
            { "method": "POST", "path": control("cancel"), "id": format!("own-{n}"), "body": cancel },
            { "method": "GET", "path": control(&format!("outcomes/{id}")) },
            { "method": "POST", "path": control("acks"), "body": acks },
        ]);
        world.batch_by(&asker("mallory"), &[], &elements).expect("a batch that can be read")
    });
}

#[test]
fn a_batch_makes_ids_as_for_single_requests_and_passes_on_no_malformed_traceparent() {
    let mut world = Names::world(true);
    let first = world.send(&order("alice", "one"));
    let well_formed = format!("00-{}-{}-01", "1".repeat(32), "2".repeat(16));
    let of = |body: &str, trace: &str| json!({ "method": "POST", "path": "/named", "body": body, "headers": { "traceparent": trace } });
    let elements =
        json!([of("one", "x"), of("two", "x"), of("three", &well_formed), { "method": "POST", "path": "/other" }]);
    let replies = world.batch_by(&asker("alice"), &[], &elements).expect("a batch that can be read");
    let [again, two, three, nameless] = replies.as_slice() else { panic!("{replies:?}") };
    again.replays(&first);
    two.is_executed(201);
    assert_eq!(two.text(), r#"{"traceparent":null}"#);
    assert_eq!(three.is_executed(201).text(), json!({ "traceparent": well_formed }).to_string());
    nameless.is_problem(400, "key-missing", "no", "after-fix");
    world.send(&order("alice", "two")).replays(two);
}

#[test]
fn no_id_is_made_for_a_cancellation_which_is_key_missing_without_one() {
    let mut world = Names::world(true);
    let body = json!({ "id": "x" }).to_string();
    let cancel = || post(&control("cancel")).by("alice").body(body.clone());
    world.send(&cancel().id(&format!("made-alice-{body}"))).is_problem(400, "key-invalid", "no", "after-fix");
    let elements = json!([{ "method": "POST", "path": control("cancel"), "body": body }]);
    let mut replies = world.batch_by(&asker("alice"), &[], &elements).expect("a batch that can be read");
    replies.push(world.send(&cancel()));
    for nameless in replies {
        nameless.is_problem(400, "key-missing", "no", "after-fix");
        assert!(!nameless.text().contains("idFrom"), "{}", nameless.text());
    }
}

#[test]
fn a_made_id_with_a_first_sent_before_the_window_is_outside_window_for_every_principal() {
    let mut world = Names::world(true);
    for call in [order("alice", "one"), post("/other").id("made-alice-one").by("mallory")] {
        world.send(&call.first_sent_s(1)).is_problem(412, "outside-window", "unknown", "never");
    }
}

#[test]
fn a_request_with_an_id_of_its_own_gets_no_made_id() {
    let mut world = Names::world(true);
    let elements = json!([{ "id": "own", "method": "POST", "path": "/named", "body": "one" }]);
    let replies = world.batch_by(&asker("alice"), &[], &elements).expect("a batch that can be read");
    let [own] = replies.as_slice() else { panic!("{replies:?}") };
    own.is_executed(201);
    world.send(&Call::new("GET", &control("outcomes/own")).by("alice")).replays(own);
    world.send(&order("alice", "one")).is_executed(201);
}

#[test]
fn acks_beside_anothers_made_id_are_applied_and_its_owner_gets_replay_and_mismatch() {
    for id in ["made-alice-one", "made-alice-none"] {
        let mut world = Names::world(true);
        world.send(&order("mallory", "own")).is_executed(201);
        let first = world.send(&order("alice", "one"));
        let refused = post("/other").id(id).by("mallory").ack("made-mallory-own");
        world.send(&refused).is_problem(400, "key-invalid", "no", "after-fix");
        world.send(&order("mallory", "own")).is_problem(410, "acknowledged", "yes", "never");
        world.send(&order("alice", "one")).replays(&first);
        let another = post("/named").id("made-alice-one").by("alice").header("content-type", "text/plain").body("one");
        world.send(&another).is_problem(422, "fingerprint-mismatch", "no", "after-fix");
    }
}

/// A principal whose id somebody took before the handler made ids is told so.
#[test]
fn a_request_whose_made_id_another_principal_took_before_is_a_fingerprint_mismatch() {
    let mut world = Names::world(false);
    world.send(&post("/other").id("made-alice-one").by("mallory")).is_executed(201);
    world.handler.has_begun.set(true);
    world.send(&order("alice", "one")).is_problem(422, "fingerprint-mismatch", "no", "after-fix");
    world.wait(&order("alice", "one")).is_problem(422, "fingerprint-mismatch", "no", "after-fix");
}
