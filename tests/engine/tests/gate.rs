//! Who is let in to what: the administrator, what a token allows, and how often.

use semel_core::id::{Key, Principal};
use semel_core::message::{Headers, Method};
use semel_core::problem::Code;
use semel_core::server::edge::auth::{Asker, LEEWAY_S};
use semel_core::server::edge::rate::Table;
use semel_core::server::edge::router::{Route, route};
use semel_core::server::{Access, Answer, Config, Gate};
use semel_support::token::{AUDIENCE, check, jwks};
use semel_support::{Counter, START_MS, Signer, claims};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

const ADMIN: &str = "sixteen-chars-or-more";

fn gate(set: &[(&str, &str)]) -> Gate {
    let setting = |asked: &str| set.iter().find(|(name, _)| *name == asked).map(|(_, value)| (*value).to_owned());
    Gate::new(Access::from_settings(false, setting).expect("settings"))
}

fn with_keys(more: &[(&str, &str)]) -> Gate {
    gate(
        &[
            &[
                ("SEMEL_JWT_KEYS", jwks(&Signer::ALL).as_str()),
                ("SEMEL_JWT_AUDIENCE", AUDIENCE),
                ("SEMEL_ADMIN_TOKEN", ADMIN),
            ],
            more,
        ]
        .concat(),
    )
}

fn token(sub: &str) -> String {
    Signer::Hs256(7).token(&claims(sub))
}

fn limited(semel: &Value) -> String {
    let mut claims = claims("alice");
    claims["semel"] = semel.clone();
    Signer::Hs256(7).token(&claims)
}

fn bearer(token: &str) -> Headers {
    Headers::from_iter([("authorization", format!("Bearer {token}"))])
}

fn ask(gate: &mut Gate, method: &str, path: &str, mut headers: Headers) -> Route {
    headers.append("idempotency-key", "a");
    let routed = |gate: &mut Gate| {
        route(&Counter::default(), &Config::default(), gate, &Method::new(method), (path, ""), &headers, START_MS)
    };
    let asked = routed(gate);
    if asked == Route::Wait && check(gate) { routed(gate) } else { asked }
}

/// The principal and the key, or the code of the refusal.
fn outcome(route: &Route) -> String {
    match route {
        Route::Object { key, principal, .. } => format!("{} {}", principal.as_str(), key.as_str()),
        Route::Batch { key, asker, .. } => format!("batch {} {}", asker.principal.as_str(), key.as_str()),
        Route::Socket { key, .. } => format!("socket {}", key.as_str()),
        Route::Elsewhere { key, principal, .. } => format!("elsewhere {} {}", principal.as_str(), key.as_str()),
        Route::Registry { .. } => "registry".to_owned(),
        Route::Answer(Answer { headers, .. }) => headers.get("semel-status").unwrap_or_default().to_owned(),
        Route::Wait => "wait".to_owned(),
    }
}

#[test]
fn only_the_administrators_token_opens_the_administrators_paths() {
    let mut gate = with_keys(&[]);
    let registry =
        [("GET", "/semel/v1/admin/keys"), ("POST", "/semel/v1/admin/forget"), ("GET", "/semel/v1/admin/forget/1")];
    let objects = [
        ("GET", "/semel/v1/admin/keys/a%2Fb"),
        ("DELETE", "/semel/v1/admin/keys/a%2Fb"),
        ("POST", "/semel/v1/admin/keys/a%2Fb/cancel"),
        ("GET", "/semel/v1/admin/keys/a%2Fb/records/%zz"),
    ];
    let nowhere = [
        ("GET", "/semel/v1/admin"),
        ("PUT", "/semel/v1/admin/keys"),
        ("GET", "/semel/v1/%61dmin/none"),
        ("GET", "/%73emel/v1/admin/keys"),
        // No handler of an application may get these, because its key rule was not asked.
        ("PUT", "/semel/v1/admin/keys/a%2Fb"),
        ("POST", "/semel/v1/admin/keys/a%2Fb/records/1/revive"),
        ("GET", "/semel/v1/admin/keys/%zz"),
    ];
    for (method, path) in registry.into_iter().chain(objects).chain(nowhere) {
        let mut code = |headers: Headers| outcome(&ask(&mut gate, method, path, headers));
        assert_eq!(code(Headers::new()), "unauthorized", "{path}");
        assert_eq!(code(bearer("wrong-wrong-wrong")), "unauthorized", "{path}");
        assert_eq!(code(bearer(&ADMIN[1..])), "unauthorized", "{path}");
        assert_eq!(code(bearer(&format!("{ADMIN}x"))), "unauthorized", "{path}");
        assert_eq!(code(bearer(&token("alice"))), "forbidden", "{path}");
        let mut as_another = bearer(ADMIN);
        as_another.append("semel-principal", "\"alice\"");
        assert_eq!(code(as_another), "forbidden", "{path}");
    }
    for (method, path) in registry {
        assert_eq!(outcome(&ask(&mut gate, method, path, bearer(ADMIN))), "registry", "{path}");
    }
    for (method, path) in &objects[..3] {
        assert_eq!(outcome(&ask(&mut gate, method, path, bearer(ADMIN))), "semel:admin a/b", "{path}");
    }
    for (method, path) in &nowhere[..6] {
        assert_eq!(outcome(&ask(&mut gate, method, path, bearer(ADMIN))), "not-found", "{path}");
    }
    assert_eq!(outcome(&ask(&mut gate, "GET", nowhere[6].1, bearer(ADMIN))), "key-invalid");
    // These only look like them.
    for path in ["/semel/v1/%62dmin/keys", "/semel/%76%31/admins", "/semel/v1/admin%2Fkeys"] {
        assert_eq!(outcome(&ask(&mut gate, "GET", path, bearer(&token("alice")))), "not-found", "{path}");
        assert_eq!(outcome(&ask(&mut gate, "GET", path, bearer(ADMIN))), "forbidden", "{path}");
    }
}

#[test]
fn an_administrators_request_with_a_malformed_header_or_another_key_is_refused() {
    let mut gate = with_keys(&[]);
    let mut code = |method: &str, path: &str, name: &str, value: &str| {
        let mut headers = bearer(ADMIN);
        headers.append(name, value);
        outcome(&ask(&mut gate, method, path, headers))
    };
    let (keys, key) = ("/semel/v1/admin/keys", "/semel/v1/admin/keys/a%2Fb");
    for (name, value) in [("semel-deadline", "soon"), ("semel-ack", "a"), ("semel-session", "a"), ("semel-key", "a")] {
        assert_eq!(code("GET", keys, name, value), "key-invalid", "{name}");
    }
    for method in ["GET", "DELETE"] {
        assert_eq!(code(method, key, "semel-key", "a/b"), "key-invalid");
        assert_eq!(code(method, key, "semel-key", "\"a\""), "key-mismatch");
        assert_eq!(code(method, key, "semel-key", "\"a%2fb\""), "semel:admin a/b");
    }
}

#[test]
fn the_administrators_token_opens_no_other_path_and_no_user_can_be_the_administrator() {
    let open = |admin: &'static str| {
        Gate::new(
            Access::from_settings(true, move |name| (name == "SEMEL_ADMIN_TOKEN").then(|| admin.to_owned()))
                .expect("settings"),
        )
    };
    for mut gate in [with_keys(&[]), open(ADMIN)] {
        assert_eq!(outcome(&ask(&mut gate, "POST", "/count", bearer(ADMIN))), "forbidden");
    }
    let mut open = open(ADMIN);
    assert_eq!(
        outcome(&ask(&mut open, "GET", "/semel/v1/admin/keys", bearer("alice"))),
        "unauthorized",
        "any name is a token here"
    );
    assert_eq!(outcome(&ask(&mut open, "GET", "/semel/v1/admin/keys", bearer(ADMIN))), "registry");
    for reserved in ["semel:admin", "semel:"] {
        assert_eq!(outcome(&ask(&mut open, "POST", "/count", bearer(reserved))), "unauthorized");
    }
    let mut named = bearer("alice");
    named.append("semel-principal", "\"semel:admin\"");
    assert_eq!(outcome(&ask(&mut open, "POST", "/count", named)), "forbidden");
}

#[test]
fn if_no_administrators_token_is_set_nobody_is_the_administrator() {
    let mut gate = gate(&[]);
    for token in ["", "x", ADMIN] {
        assert_eq!(outcome(&ask(&mut gate, "GET", "/semel/v1/admin/keys", bearer(token))), "unauthorized");
    }
}

#[test]
fn the_semel_claim_limits_methods_and_keys_and_an_invalid_one_is_unauthorized() {
    let mut gate = with_keys(&[]);
    let mut code =
        |semel: &Value, method: &str, path: &str| outcome(&ask(&mut gate, method, path, bearer(&limited(semel))));
    let get = json!({ "methods": ["GET"] });
    let post = json!({ "methods": ["POST"] });
    let keyed = json!({ "keys": ["1", "a*"] });
    let none = json!({ "methods": [], "keys": [] });
    let control = |what: &str| format!("/semel/v1/keys/1/{what}");
    for (semel, method, path, expected) in [
        (&json!({}), "POST", "/keyed/1", "alice 1"),
        (&get, "GET", "/keyed/1", "alice 1"),
        (&get, "HEAD", "/keyed/1", "alice 1"),
        (&json!({ "methods": ["HEAD"] }), "HEAD", "/keyed/1", "alice 1"),
        (&json!({ "methods": ["HEAD"] }), "GET", "/keyed/1", "forbidden"),
        (&get, "POST", "/keyed/1", "forbidden"),
        (&get, "POST", &control("acks"), "forbidden"),
        (&get, "POST", &control("cancel"), "forbidden"),
        (&get, "POST", &control("sessions"), "forbidden"),
        (&get, "GET", &control("outcomes/x"), "alice 1"),
        (&post, "POST", "/keyed/1", "alice 1"),
        (&post, "DELETE", "/keyed/1", "forbidden"),
        (&post, "GET", "/keyed/1", "forbidden"),
        (&json!({ "methods": ["PUT"] }), "POST", &control("acks"), "alice 1"),
        (&json!({ "methods": ["PUT"] }), "POST", &control("cancel"), "alice 1"),
        (&json!({ "methods": ["PUT"] }), "POST", &control("sessions"), "alice 1"),
        (&post, "GET", &control("outcomes/x"), "alice 1"),
        (&keyed, "POST", "/keyed/1", "alice 1"),
        (&keyed, "POST", "/keyed/ab", "alice ab"),
        (&keyed, "POST", "/keyed/11", "forbidden"),
        (&keyed, "POST", "/keyed/ba", "forbidden"),
        (&json!({ "keys": ["*"] }), "POST", "/keyed/ba", "alice ba"),
        (&json!({ "keys": ["k*d"] }), "POST", "/keyed/kd", "forbidden"),
        (&keyed, "POST", "/semel/v1/keys/2/acks", "forbidden"),
        (&keyed, "POST", "/semel/v1/keys/2/cancel", "forbidden"),
        (&keyed, "GET", "/semel/v1/keys/2/outcomes/x", "forbidden"),
        (&none, "GET", "/keyed/1", "forbidden"),
        (&none, "GET", &control("outcomes/x"), "forbidden"),
        // A claim that isn't understood limits nothing, so such a token is refused.
        (&json!({ "method": ["GET"] }), "GET", "/keyed/1", "unauthorized"),
        (&json!({ "methods": ["get"] }), "GET", "/keyed/1", "unauthorized"),
        (&json!({ "methods": "GET" }), "GET", "/keyed/1", "unauthorized"),
        (&json!({ "keys": [""] }), "GET", "/keyed/1", "unauthorized"),
        // Some issuers write an empty list as `null`.
        (&json!({ "keys": null }), "GET", "/keyed/1", "unauthorized"),
        (&json!({ "methods": null, "keys": ["keyed/*"] }), "GET", "/keyed/1", "unauthorized"),
        (&json!(null), "GET", "/keyed/1", "unauthorized"),
        (&json!([]), "GET", "/keyed/1", "unauthorized"),
        (&json!("all"), "GET", "/keyed/1", "unauthorized"),
    ] {
        assert_eq!(code(semel, method, path), expected, "{semel} {method} {path}");
    }
}

#[test]
fn parsing_comes_before_what_a_token_allows() {
    let mut gate = with_keys(&[]);
    let mut headers = bearer(&limited(&json!({ "keys": ["b"] })));
    assert_eq!(outcome(&ask(&mut gate, "POST", "/a", headers.clone())), "forbidden");
    headers.append("semel-deadline", "soon");
    assert_eq!(outcome(&ask(&mut gate, "POST", "/a", headers)), "key-invalid");
}

#[test]
fn an_acknowledgement_on_any_request_needs_a_token_that_allows_a_changing_method() {
    let mut gate = with_keys(&[]);
    let mut headers = bearer(&limited(&json!({ "methods": ["GET"] })));
    headers.append("semel-ack", "\"b\"");
    assert_eq!(outcome(&ask(&mut gate, "GET", "/keyed/1", headers.clone())), "forbidden");
    assert_eq!(outcome(&ask(&mut gate, "GET", "/semel/v1/keys/1/outcomes/b", headers)), "forbidden");
    let mut headers = bearer(&limited(&json!({ "methods": ["GET", "POST"] })));
    headers.append("semel-ack", "\"b\"");
    assert_eq!(outcome(&ask(&mut gate, "GET", "/keyed/1", headers)), "alice 1");
}

#[test]
fn each_principal_has_its_own_rate_which_is_checked_before_parsing() {
    let mut gate = with_keys(&[("SEMEL_RATE_PER_SECOND", "10"), ("SEMEL_RATE_BURST", "3")]);
    for path in ["/keyed/1", "/unhandled", "/a//b"] {
        assert_ne!(outcome(&ask(&mut gate, "POST", path, bearer(&token("alice")))), "rate-limited");
    }
    let Route::Answer(refused) = ask(&mut gate, "POST", "/a//b", bearer(&token("alice"))) else {
        panic!("asked an object")
    };
    assert_eq!((refused.status, refused.headers.get("retry-after")), (429, Some("1")));
    let another_token = Signer::EdDsa(7).token(&claims("alice"));
    assert_eq!(outcome(&ask(&mut gate, "POST", "/keyed/1", bearer(&another_token))), "rate-limited", "one principal");
    assert_eq!(outcome(&ask(&mut gate, "POST", "/keyed/1", bearer(&token("bob")))), "bob 1");
    assert_eq!(
        outcome(&ask(&mut gate, "POST", "/keyed/1", Headers::new())),
        "unauthorized",
        "who is nobody has no rate"
    );
    for _ in 0..10 {
        assert_eq!(outcome(&ask(&mut gate, "GET", "/semel/v1/admin/keys", bearer(ADMIN))), "registry");
    }
    let mut code = || outcome(&ask(&mut gate, "GET", "/semel/v1/admin/keys", bearer(&token("carol"))));
    assert_eq!([code(), code(), code(), code()], ["forbidden", "forbidden", "forbidden", "rate-limited"]);
}

fn ask_as(gate: &mut Gate, sub: &str) -> String {
    outcome(&ask(gate, "POST", "/keyed/1", bearer(&token(sub))))
}

/// A table that outlives its gate.
#[derive(Debug, Clone, Default)]
struct Kept(Rc<RefCell<BTreeMap<String, i64>>>);

impl Table for Kept {
    fn get(&self, who: &str) -> i64 {
        Table::get(&*self.0.borrow(), who)
    }

    fn put(&mut self, who: &str, free_ns: i64) {
        self.0.borrow_mut().put(who, free_ns);
    }

    fn count(&self) -> usize {
        self.0.borrow().count()
    }

    fn sweep(&mut self, now_ns: i64) {
        self.0.borrow_mut().sweep(now_ns);
    }
}

#[test]
fn a_refusal_is_logged_if_keys_could_not_be_fetched_and_not_if_the_token_is_missing() {
    let mut gate = gate(&[("SEMEL_JWKS_URL", "https://id.example/jwks"), ("SEMEL_JWT_AUDIENCE", AUDIENCE)]);
    let log = |route: Route| match route {
        Route::Answer(answer) => answer.log,
        other => panic!("{other:?}"),
    };
    assert_eq!(ask(&mut gate, "GET", "/count", bearer(&token("alice"))), Route::Wait);
    gate.keys_fetched(None, START_MS).expect_err("no keys");
    let unavailable = ask(&mut gate, "GET", "/count", bearer(&token("alice")));
    assert_eq!(outcome(&unavailable), "unavailable");
    assert!(log(unavailable).is_some());
    assert_eq!(log(ask(&mut gate, "GET", "/count", Headers::new())), None);
}

#[test]
fn a_renewed_gate_does_not_reset_the_rate_of_a_principal() {
    let kept = Kept::default();
    let renewed = || {
        let set = [("SEMEL_JWT_KEYS", jwks(&Signer::ALL)), ("SEMEL_JWT_AUDIENCE", AUDIENCE.to_owned())];
        let rates = ["SEMEL_RATE_PER_SECOND", "SEMEL_RATE_BURST"].map(|name| (name, "2".to_owned()));
        let set: Vec<_> = set.into_iter().chain(rates).collect();
        let setting = |asked: &str| set.iter().find(|(name, _)| *name == asked).map(|(_, value)| value.clone());
        Gate::with_table(Access::from_settings(false, setting).expect("settings"), Box::new(kept.clone()))
    };
    let asked: Vec<String> = (0..4).map(|_| ask_as(&mut renewed(), "alice")).collect();
    assert_eq!(asked, ["alice 1", "alice 1", "rate-limited", "rate-limited"]);
}

#[test]
fn a_batch_carries_its_principal_with_what_the_token_allows_and_when_it_ends() {
    let mut gate = with_keys(&[]);
    let allowed = json!({ "methods": ["GET", "POST"], "keys": ["a", "b/*"] });
    let batch = "/semel/v1/keys/a/batch";
    let Route::Batch { asker, .. } = ask(&mut gate, "POST", batch, bearer(&limited(&allowed))) else {
        panic!("a batch")
    };
    let ends_ms = (claims("alice")["exp"].as_i64().expect("an instant") + LEEWAY_S) * 1000;
    assert_eq!((asker.principal.as_str(), asker.ends_ms), ("alice", Some(ends_ms)));
    assert!(!asker.has_ended(ends_ms - 1) && asker.has_ended(ends_ms));
    let told = Asker::from_text(&asker.to_text()).expect("as it was written");
    assert_eq!(told, asker);
    let key = |key: &str| Key::new(key).expect("a key");
    let may = |method: &str, at: &str| told.grant.allows(&Method::new(method), &key(at));
    assert!(may("POST", "a") && may("HEAD", "b/c") && !may("POST", "c") && !may("PUT", "a"));
    for bad in
        ["", "{}", "\nalice", "\nalice\n", "\nalice\nnull", "x\nalice\n{}", "1\nalice\n{\"more\":1}", "\n\u{e9}\n{}"]
    {
        assert_eq!(Asker::from_text(bad), None, "{bad}");
    }
    // A principal that may do nothing at a key may not send it an empty batch.
    let mut refused = |token: &str, path: &str| outcome(&ask(&mut gate, "POST", path, bearer(token)));
    assert_eq!(refused(&limited(&allowed), "/semel/v1/keys/c/batch"), "forbidden");
    assert_eq!(refused("x", batch), "unauthorized");
    assert_eq!(refused(ADMIN, batch), "forbidden");
    assert_eq!(refused(&token("alice"), batch), "batch alice a");
}

#[test]
fn a_socket_is_opened_without_a_token_and_at_a_limited_rate_from_one_address() {
    let mut gate = with_keys(&[("SEMEL_RATE_BURST", "3"), ("SEMEL_RATE_PER_SECOND", "1")]);
    let socket = "/semel/v1/keys/a/socket";
    let from = |address: &str| Headers::from_iter([("upgrade", "websocket"), ("cf-connecting-ip", address)]);
    let mut open = |path: &str, headers: Headers| outcome(&ask(&mut gate, "GET", path, headers));
    for expected in ["socket a", "socket a", "socket a", "rate-limited"] {
        assert_eq!(open(socket, from("192.0.2.1")), expected);
    }
    assert_eq!(open(socket, from("192.0.2.2")), "socket a");
    // An IPv6 address counts by its first 64 bits, because their owner has all the addresses below.
    for _ in 0..3 {
        assert_eq!(open(socket, from("2001:db8::1")), "socket a");
    }
    for same in ["2001:db8::1", "2001:db8::ffff", "2001:db8:0:0:1:2:3:4", "2001:db8::1:2:3:4"] {
        assert_eq!(open(socket, from(same)), "rate-limited", "{same}");
    }
    for other in ["2001:db8:0:1::1", "2001:db8:1::1", "2001:db8:0:2:0:0:0:1", "2001:db8::3:0:0:0:1", "::1", "192.0.2.5"]
    {
        assert_eq!(open(socket, from(other)), "socket a", "{other}");
    }
    // An IPv4 address counts as a whole, also if it is written as IPv6.
    for mapped in ["::ffff:192.0.2.1", "::ffff:192.0.2.2"] {
        for expected in ["socket a", "socket a", "socket a", "rate-limited"] {
            assert_eq!(open(socket, from(mapped)), expected, "{mapped}");
        }
    }
    // Nothing else may be opened without a token, and a socket only in this way.
    for path in ["/semel/v1/keys/a/batch", "/socket", "/semel/v1/keys/a/socket/x", "/semel/v1/keys//socket"] {
        assert_eq!(open(path, from("192.0.2.3")), "unauthorized", "{path}");
    }
    assert_eq!(open(socket, Headers::new()), "unauthorized");
    assert_eq!(open(socket, bearer(&token("alice"))), "not-found");
}

#[test]
fn the_requests_of_a_batch_each_count_against_the_rate_of_their_principal_alone() {
    let mut gate = with_keys(&[("SEMEL_RATE_BURST", "10"), ("SEMEL_RATE_PER_SECOND", "1")]);
    let alice = Principal::new("alice").expect("a principal");
    let batch = "/semel/v1/keys/a/batch";
    assert_eq!(outcome(&ask(&mut gate, "POST", batch, bearer(&token("alice")))), "batch alice a");
    assert_eq!(gate.take_more(&alice, 8, START_MS), Ok(()));
    assert_eq!(gate.take_one(&alice, START_MS), Ok(()));
    // If they are refused, the one that came before them is given back.
    assert_eq!(gate.take_more(&alice, 2, START_MS).map_err(|problem| problem.code), Err(Code::RateLimited));
    assert_eq!(gate.take_one(&alice, START_MS), Ok(()));
    assert_eq!(outcome(&ask(&mut gate, "POST", batch, bearer(&token("alice")))), "rate-limited");
    assert_eq!(outcome(&ask(&mut gate, "POST", batch, bearer(&token("bob")))), "batch bob a");
}
