//! What happens before a key's object is asked.

use semel_core::id::Principal;
use semel_core::message::{Headers, Method, Request, Response};
use semel_core::path::Path;
use semel_core::server::edge::router::{Route, route, turn_wait_ms};
use semel_core::server::head::HEADER_BYTES_MAX;
use semel_core::server::storage::sql::SqlError;
use semel_core::server::{Access, Config, Context, Failure, Gate, Handler, KeyRule, Sql};
use semel_support::call::control;
use semel_support::{Call, Counter, KEY, Reply, START_MS, World, cancel, delete, get, head, look_up, post, take_over};

/// The answer of the router, which comes from no object.
#[track_caller]
fn answered(world: &World, call: &Call) -> Reply {
    match world.route(call) {
        Route::Answer(answer) => {
            let reply = Reply::checked(answer);
            assert_eq!(reply.header("semel-key"), None, "no object was asked");
            assert_eq!(reply.now_ms(), START_MS);
            reply
        }
        object => panic!("{object:?}"),
    }
}

/// The object that the router chooses: its key, the principal, and how long to wait.
#[track_caller]
fn routed(world: &World, call: &Call) -> (String, String, i64) {
    match world.route(call) {
        Route::Object { key, principal, wait_ms } => (key.as_str().to_owned(), principal.as_str().to_owned(), wait_ms),
        answer => panic!("{answer:?}"),
    }
}

fn change(path: &str) -> Call {
    post(path).id("a")
}

#[test]
fn without_settings_everybody_is_unauthorized_except_for_health_and_options() {
    let world = World::with(|config| config.open = false);
    for call in [change("/count"), get("/count"), look_up("a"), get("/unhandled"), get("/a//b")] {
        answered(&world, &call.header("authorization", "Bearer alice")).is_problem(
            401,
            "unauthorized",
            "no",
            "after-fix",
        );
    }
    let reply = answered(&world, &change("/count").header("authorization", "Bearer alice"));
    assert!(reply.field("detail").contains("no authentication is configured"), "what is to be done is said");
    answered(&world, &get("/semel/v1/health")).is_read(200);
    answered(&world, &Call::new("OPTIONS", "/count"));
}

#[test]
fn the_bearer_token_of_an_open_deployment_is_the_principal() {
    let world = World::new();
    let principal = |credentials: &str| routed(&world, &change("/count").header("authorization", credentials)).1;
    assert_eq!(principal("Bearer alice"), "alice");
    assert_eq!(principal("bearer alice"), "alice");
    assert_eq!(routed(&world, &change("/count")).1, "", "nobody in particular");
    let too_long = format!("Bearer {}", "x".repeat(256));
    for bad in ["alice", "Basic YTpi", "Bearer \u{e9}", &too_long] {
        answered(&world, &change("/count").header("authorization", bad)).is_problem(
            401,
            "unauthorized",
            "no",
            "after-fix",
        );
    }
}

#[test]
fn a_request_made_under_another_principal_is_forbidden() {
    let world = World::new();
    let by_alice =
        |expected: &str| change("/count").header("authorization", "Bearer alice").header("semel-principal", expected);
    assert_eq!(routed(&world, &by_alice("\"alice\"")).1, "alice");
    for other in ["\"bob\"", "\"\"", "\"Alice\""] {
        answered(&world, &by_alice(other)).is_problem(403, "forbidden", "no", "after-fix");
    }
    answered(&world, &by_alice("alice")).is_problem(400, "key-invalid", "no", "after-fix");
    answered(&world, &change("/count").header("semel-principal", "\"bob\"")).is_problem(
        403,
        "forbidden",
        "no",
        "after-fix",
    );
}

#[test]
fn the_key_is_that_of_the_key_rule_else_of_semel_key_else_the_path() {
    let world = World::new();
    let key = |call: Call| routed(&world, &call).0;
    assert_eq!(key(change("/keyed/k1/x")), "k1");
    assert_eq!(key(change("/keyed/k%2f1/x".replace("%2f", "%20").as_str())), "k 1");
    assert_eq!(key(change("/keyed/k1/x").header("semel-key", "\"k1\"")), "k1");
    assert_eq!(key(change("/count/h%C3%A9?x=1")), "count/h\u{e9}");
    assert_eq!(key(change("/count").header("semel-key", "\"h%C3%A9/1\"")), "h\u{e9}/1");
    assert_eq!(key(get("/count")), "count");
}

#[test]
fn a_semel_key_that_contradicts_the_key_rule_or_the_control_path_is_key_mismatch() {
    let world = World::new();
    let call = change("/keyed/k1/x").header("semel-key", "\"k2\"");
    answered(&world, &call).is_problem(400, "key-mismatch", "no", "after-fix");
    // A control path names its key itself.
    let call = cancel("own", "a").header("semel-key", "\"k2\"");
    answered(&world, &call).is_problem(400, "key-mismatch", "no", "after-fix");
}

#[test]
fn a_malformed_path_or_key_is_key_invalid() {
    let world = World::new();
    for path in ["/a//b", "/a/", "/a/%2e%2e", "/a%2fb", "/a%5Cb", "/%00", "/%ff", "/%zz", "/semel/v1/keys/%00/acks"] {
        answered(&world, &change(path)).is_problem(400, "key-invalid", "no", "after-fix");
    }
    let long = format!("/{}", "x".repeat(513));
    answered(&world, &change(&long)).is_problem(400, "key-invalid", "no", "after-fix");
    answered(&world, &change("/")).is_problem(400, "key-invalid", "no", "after-fix");
    for key in ["k1", "\"\"", "\"%ff\"", "\"%00\"", "\"%\"", "\"a\", \"b\"", &format!("\"{}\"", "x".repeat(513))] {
        answered(&world, &change("/count").header("semel-key", key)).is_problem(400, "key-invalid", "no", "after-fix");
    }
}

#[test]
fn a_request_whose_key_rule_fails_is_rolled_back_and_reaches_no_object() {
    let world = World::new();
    for call in [change("/keyless"), get("/keyless/x")] {
        answered(&world, &call).is_problem(500, "rolled-back", "no", "same-id");
    }
    answered(&world, &post("/keyless")).is_problem(400, "key-missing", "no", "after-fix");
    let place = "\"s\";epoch=1;seq=1";
    answered(&world, &get("/keyless").header("semel-session", place)).is_problem(400, "key-invalid", "no", "after-fix");
    answered(&world, &post("/keyless").header("semel-session", place)).is_problem(500, "rolled-back", "no", "same-id");
}

/// Makes an id for requests below `/named`.
struct Names;

impl Handler for Names {
    const SCHEMA_VERSION: i64 = 0;

    fn key(&self, _: &Method, _: &Path) -> KeyRule {
        KeyRule::Key("one".to_owned())
    }

    fn migrate(&self, _: &dyn Sql, _: i64) -> Result<(), SqlError> {
        Ok(())
    }

    fn id(&self, _: &Principal, request: &Request) -> Option<String> {
        self.makes_ids(&request.method, &request.path).then(|| "made".to_owned())
    }

    fn makes_ids(&self, _: &Method, path: &Path) -> bool {
        path.segments().first() == Some(&"named")
    }

    fn handle(&self, _: &mut Context<'_>, _: &Request) -> Result<Response, Failure> {
        Err(Failure::NotFound)
    }
}

#[test]
fn a_request_whose_id_the_handler_makes_is_not_refused_as_key_missing() {
    let world = World::of(Names, Config { open: true, ..Config::default() });
    let told = |call: Call| match world.route(&call.header("semel-key", "\"two\"")) {
        Route::Answer(answer) => Reply::checked(answer),
        object => panic!("{object:?}"),
    };
    told(post("/named")).is_problem(400, "key-mismatch", "no", "after-fix");
    told(post("/other")).is_problem(400, "key-missing", "no", "after-fix");
    // A malformed header is still reported first.
    told(post("/named").header("semel-deadline", "x")).is_problem(400, "key-invalid", "no", "after-fix");
    // No ids are made for the protocol's own requests.
    told(post(&control("cancel"))).is_problem(400, "key-missing", "no", "after-fix");
}

#[test]
fn a_path_or_method_that_nothing_handles_is_not_found_and_reaches_no_object() {
    let world = World::new();
    for call in [
        change("/unhandled/x"),
        get("/unhandled"),
        delete("/count").id("a"),
        Call::new("PROPFIND", "/count"),
        Call::new("post", "/count").id("a"),
        get("/semel/v1/keys/k/acks"),
        post("/semel/v1/keys/k/log").id("a"),
        post("/semel/v1/keys/k/log"),
        get("/semel/v1/keys/k/log"),
        get("/semel/v1/transactions/1"),
        get("/semel/v2/health"),
        get("/semel/unknown"),
        post("/semel/v1/health").id("a"),
    ] {
        answered(&world, &call).is_problem(404, "not-found", "no", "after-fix");
    }
}

#[test]
fn control_requests_go_to_the_key_of_their_path() {
    let world = World::new();
    let calls =
        [cancel("own", "a"), take_over("own"), look_up("a"), post(&control("acks")), head(&control("outcomes/a"))];
    for call in calls {
        assert_eq!(routed(&world, &call).0, "counters/1");
    }
    assert_eq!(routed(&world, &get("/semel/v1/keys/h%C3%A9/outcomes/a")).0, "h\u{e9}");
}

#[test]
fn an_attempt_waits_30_s_or_what_prefer_says_up_to_60_s_and_never_past_its_deadline() {
    let world = World::new();
    let wait = |call: Call| routed(&world, &call).2;
    assert_eq!(wait(change("/count")), 30_000);
    assert_eq!(wait(change("/count").header("prefer", "wait=5")), 5_000);
    assert_eq!(wait(change("/count").header("prefer", "wait=500")), 60_000);
    assert_eq!(wait(change("/count").header("prefer", "wait=never")), 30_000);
    assert_eq!(wait(change("/count").deadline_ms(START_MS + 7)), 7);
    assert_eq!(wait(change("/count").deadline_ms(START_MS + 100_000)), 30_000);
    assert_eq!(wait(change("/count").deadline_ms(START_MS + 100_000).header("prefer", "wait=60")), 60_000);
}

#[test]
fn an_attempt_past_its_deadline_does_not_wait_for_its_turn() {
    let waits =
        |deadline_ms: i64| turn_wait_ms(&Headers::from_iter([("semel-deadline", deadline_ms.to_string())]), START_MS);
    assert_eq!((waits(0), waits(START_MS - 1), waits(START_MS + 7)), (0, 0, 7));
    assert_eq!(turn_wait_ms(&Headers::from_iter([("prefer", "wait=5")]), START_MS), 5_000);
}

#[test]
fn options_allows_every_request_header_and_exposes_every_response_header() {
    let call = Call::new("OPTIONS", "/anything//at/all").header("access-control-request-headers", "x-own, , x bad");
    let reply = answered(&World::new(), &call);
    assert_eq!((reply.status(), reply.body()), (204, b"".as_slice()));
    let listed = |name: &str| reply.only(name).to_ascii_lowercase().split(", ").map(str::to_owned).collect::<Vec<_>>();
    let allowed = listed("access-control-allow-headers");
    for name in [
        "idempotency-key",
        "semel-key",
        "semel-ack",
        "semel-first-sent",
        "semel-deadline",
        "semel-session",
        "semel-principal",
        "prefer",
        "authorization",
        "content-type",
        "x-own",
    ] {
        assert!(allowed.contains(&name.to_owned()), "{name}");
    }
    for bad in ["x bad", ""] {
        assert!(!allowed.contains(&bad.to_owned()), "{bad:?}");
    }
    let methods = listed("access-control-allow-methods");
    for method in ["get", "head", "post", "put", "patch", "delete"] {
        assert!(methods.contains(&method.to_owned()), "{method}");
    }
    let exposed = listed("access-control-expose-headers");
    for name in [
        "semel-status",
        "semel-now",
        "idempotent-replayed",
        "semel-key",
        "semel-expires",
        "semel-offset",
        "retry-after",
    ] {
        assert!(exposed.contains(&name.to_owned()), "{name}");
    }
}

#[test]
fn answers_and_refusals_of_the_router_may_be_read_by_any_origin() {
    for call in [Call::new("OPTIONS", "/x"), get("/unhandled"), get("/semel/v1/health")] {
        assert_eq!(answered(&World::new(), &call).only("access-control-allow-origin"), "*");
    }
}

#[test]
fn a_request_whose_head_is_too_large_is_refused_before_any_object_is_asked() {
    let large = "x".repeat(HEADER_BYTES_MAX);
    for call in [change("/count"), get("/count"), get("/semel/v1/health"), Call::new("OPTIONS", "/count")] {
        answered(&World::new(), &call.header("x-large", &large)).is_problem(413, "too-large", "no", "after-fix");
    }
}

#[test]
fn an_open_deployment_without_rate_settings_limits_no_rate() {
    let mut gate = Gate::new(Access::from_settings(true, |_| None).expect("settings"));
    let alice = Principal::new("alice").expect("a principal");
    assert!((0..10_000).all(|_| gate.take_one(&alice, START_MS).is_ok()));
}

#[test]
fn a_list_of_keys_has_no_place_in_a_session() {
    let admin = |name: &str| (name == "SEMEL_ADMIN_TOKEN").then(|| "sixteen-chars-or-more".to_owned());
    let mut gate = Gate::new(Access::from_settings(false, admin).expect("settings"));
    let mut routed = |more: &[(&str, &str)]| {
        let lines = [&[("authorization", "Bearer sixteen-chars-or-more")], more].concat();
        let (config, method) = (Config::default(), Method::Get);
        let url = ("/semel/v1/admin/keys", "");
        route(&Counter::default(), &config, &mut gate, &method, url, &Headers::from_iter(lines), START_MS)
    };
    assert!(matches!(routed(&[]), Route::Registry { .. }));
    match routed(&[("semel-session", "\"s\";epoch=1;seq=1")]) {
        Route::Answer(answer) => Reply::checked(answer).is_problem(400, "key-invalid", "no", "after-fix"),
        other => panic!("{other:?}"),
    };
}

#[test]
fn health_tells_versions_limits_retention_and_clock() {
    let world = World::with(|config| config.retention_s = 77);
    let health = answered(&world, &get("/semel/v1/health"));
    health.is_read(200);
    let body = health.json();
    assert_eq!((body["now"].as_i64(), body["retentionSeconds"].as_i64()), (Some(START_MS), Some(77)));
    assert_eq!(body["versions"]["protocol"], 1);
    assert_eq!((body["limits"]["idChars"].as_i64(), body["limits"]["ackIds"].as_i64()), (Some(255), Some(64)));
}

#[test]
fn routing_never_runs_the_handler() {
    let handler = Counter::default();
    let config = semel_core::server::Config { open: true, ..semel_core::server::Config::default() };
    let headers = Headers::from_iter([("idempotency-key", "a")]);
    for path in ["/unhandled", "/count", "/keyed/1"] {
        let gate = &mut Gate::new(Access::open_or_closed(true));
        route(&handler, &config, gate, change(path).method(), (path, ""), &headers, START_MS);
    }
    assert_eq!(handler.calls.get(), 0);
}

#[test]
fn a_queues_message_may_only_be_a_change_of_the_application() {
    let world = World::with(|config| config.open = false);
    let principal = match world.route_own(&change("/count"), false) {
        Route::Object { principal, .. } => principal,
        other => panic!("{other:?}"),
    };
    assert!(principal.is_reserved(), "nobody's token has it");
    assert_eq!(principal.as_str(), "semel:queue");
    let acks = Call::new("POST", &control("acks"));
    let escaped = Call::new("POST", "/%73emel/v1/admin/keys");
    for call in [
        get("/count"),
        head("/count"),
        look_up("a"),
        cancel("a", "b"),
        take_over("a"),
        acks,
        escaped,
        change("/unhandled"),
    ] {
        match world.route_own(&call, false) {
            Route::Answer(answer) => Reply::checked(answer).is_problem(404, "not-found", "no", "after-fix"),
            other => panic!("{call:?}: {other:?}"),
        };
    }
}

#[test]
fn a_queue_that_gives_a_message_up_may_only_cancel() {
    let world = World::with(|config| config.open = false);
    match world.route_own(&cancel("a", "b"), true) {
        Route::Object { key, principal, .. } => assert_eq!((key.as_str(), principal.as_str()), (KEY, "semel:queue")),
        other => panic!("{other:?}"),
    }
    let by_administrator = Call::new("POST", "/semel/v1/admin/keys/k/cancel").id("a");
    let acks = Call::new("POST", &control("acks"));
    for call in [change("/count"), get("/count"), look_up("a"), take_over("a"), acks, by_administrator] {
        match world.route_own(&call, true) {
            Route::Answer(answer) => Reply::checked(answer).is_problem(404, "not-found", "no", "after-fix"),
            other => panic!("{call:?}: {other:?}"),
        };
    }
}
