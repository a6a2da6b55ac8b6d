//! Ids that a handler makes of what a request is. They can be computed, so nobody may take one before.

use semel_core::id::{Principal, RequestId};
use semel_core::message::{Method, Request, Response};
use semel_core::path::Path;
use semel_core::server::{Config, Context, Failure, Handler, KeyRule, Sql, SqlError};
use semel_support::{Call, World, post};
use serde_json::json;
use std::cell::Cell;

/// Makes an id of the principal and the body, if there is one, of what is below `/named`; and has done so at all times, or does from now on.
struct Names {
    has_begun: Cell<bool>,
}

impl Names {
    fn world(has_begun: bool) -> World<Self> {
        World::of(Self { has_begun: has_begun.into() }, Config { open: true, ..Config::default() })
    }
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
        let is_named = request.path.segments().first() == Some(&"named");
        (is_named && !request.body.is_empty())
            .then(|| format!("made-{}-{}", principal.as_str(), String::from_utf8_lossy(&request.body)))
    }

    fn makes_ids(&self, _: &Method, path: &Path) -> bool {
        path.segments().first() == Some(&"named")
    }

    fn owns(&self, id: &RequestId) -> bool {
        self.has_begun.get() && id.as_str().starts_with("made-")
    }

    fn handle(&self, _: &mut Context<'_>, _: &Request) -> Result<Response, Failure> {
        Ok(Response::json(201, "{}"))
    }
}

fn control(what: &str) -> String {
    format!("/semel/v1/keys/counters%2F1/{what}")
}

/// As the object of a key names it.
fn order(principal: &str, body: &str) -> Call {
    post("/named").id(&format!("made-{principal}-{body}")).by(principal).body(body)
}

#[test]
fn an_id_that_is_made_of_a_request_is_that_requests_and_nobody_takes_it_before() {
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
fn who_sends_no_id_and_not_what_one_is_made_of_is_told_so() {
    let mut world = Names::world(true);
    for (path, lacks) in [("/named", true), ("/other", false)] {
        let answer = world.send(&post(path));
        answer.is_problem(400, "key-missing", "no", "after-fix");
        assert_eq!(answer.json()["detail"].as_str().is_some_and(|detail| detail.contains("idFrom")), lacks, "{path}");
    }
}

#[test]
fn whose_request_it_was_looks_its_id_up_and_acknowledges_it_and_an_administrator_cancels() {
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
fn what_was_made_under_such_an_id_before_they_were_the_handlers_is_answered_from_its_record() {
    let mut world = Names::world(false);
    let first = world.send(&post("/other").id("made-own-one").by("alice"));
    first.is_executed(201);
    world.handler.has_begun.set(true);
    world.send(&post("/other").id("made-own-one").by("alice")).replays(&first);
    world.send(&post("/other").id("made-own-two").by("alice")).is_problem(400, "key-invalid", "no", "after-fix");
}

#[test]
fn what_has_crashed_under_such_an_id_before_goes_on_under_it() {
    let mut world = Names::world(false);
    let call = post("/other").id("made-own-one").by("alice");
    world.crashed(&call).is_problem(500, "rolled-back", "no", "same-id");
    world.handler.has_begun.set(true);
    world.send(&call).is_executed(201);
}

#[test]
fn a_cancellation_that_has_its_record_is_answered_from_it_and_one_of_what_has_a_record_tells_whose_that_is() {
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
    world.send(&cancel("e", "made-alice-one").by("mallory")).is_problem(422, "fingerprint-mismatch", "no", "after-fix");
}

#[test]
fn where_no_ids_are_made_they_are_anybodys() {
    let mut world = World::new();
    world.send(&post("/count").id("made-alice-one")).is_executed(200);
    world.send(&post("/count").id("hash-1")).is_executed(200);
}
