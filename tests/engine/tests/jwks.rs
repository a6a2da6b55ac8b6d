//! Keys that come from a URL: when they are fetched, and which keys count meanwhile.

use semel_core::message::Headers;
use semel_core::problem::{Code, Executed};
use semel_core::server::edge::auth::Refusal;
use semel_core::server::{Access, Gate};
use semel_support::token::{AUDIENCE, admitted, jwks};
use semel_support::{START_MS, START_S, Signer, claims};
use serde_json::json;

const URL: &str = "https://id.example/jwks";
const OLD: Signer = Signer::Es256(1);
const NEW: Signer = Signer::EdDsa(2);
const MINUTE_MS: i64 = 60_000;
const DAY_MS: i64 = 24 * 60 * MINUTE_MS;

fn gate(set: &[(&str, &str)]) -> Gate {
    let setting = |asked: &str| set.iter().find(|(name, _)| *name == asked).map(|(_, value)| (*value).to_owned());
    Gate::new(Access::from_settings(false, setting).expect("settings"))
}

fn with_url() -> Gate {
    gate(&[("SEMEL_JWKS_URL", URL), ("SEMEL_JWT_AUDIENCE", AUDIENCE)])
}

/// A gate that has fetched these keys.
fn with_fetched(signers: &[Signer]) -> Gate {
    let mut gate = with_url();
    assert_eq!(asked(&mut gate, OLD, START_MS), ("wait".to_owned(), true));
    gate.keys_fetched(Some(&jwks(signers)), START_MS).expect("keys");
    gate
}

fn bearer(token: &str) -> Headers {
    Headers::from_iter([("authorization", format!("Bearer {token}"))])
}

/// How the gate judges a token of this signer at this time.
fn judged(gate: &mut Gate, signer: Signer, now_ms: i64) -> String {
    judged_as(gate, signer, &json!(null), now_ms)
}

/// The same, of a token that says when it was issued.
fn judged_as(gate: &mut Gate, signer: Signer, issued: &serde_json::Value, now_ms: i64) -> String {
    let mut claims = claims("alice");
    claims["exp"] = json!(now_ms / 1000 + 60);
    claims["iat"] = issued.clone();
    match admitted(gate, &bearer(&signer.token(&claims)), now_ms) {
        Ok(_) => "let in".to_owned(),
        Err(Refusal::Problem(problem)) => problem.code.as_str().to_owned(),
        Err(Refusal::Wait) => "wait".to_owned(),
    }
}

/// The same, and whether keys are to be fetched now.
fn asked(gate: &mut Gate, signer: Signer, now_ms: i64) -> (String, bool) {
    let judged = judged(gate, signer, now_ms);
    let wanted = gate.keys_wanted();
    assert!(wanted.is_none_or(|url| url == URL));
    (judged, wanted.is_some())
}

#[track_caller]
fn is(asked: (String, bool), judged: &str, is_fetched: bool) {
    assert_eq!(asked, (judged.to_owned(), is_fetched));
}

#[test]
fn the_jwks_is_fetched_once_when_a_token_needs_it() {
    let mut gate = with_url();
    is(asked(&mut gate, OLD, START_MS), "wait", true);
    is(asked(&mut gate, OLD, START_MS), "wait", false);
    assert_eq!(gate.keys_fetched(Some(&jwks(&[OLD])), START_MS + 9), Ok(()));
    is(asked(&mut gate, OLD, START_MS + 9), "let in", false);
    assert_eq!(gate.admit(&Headers::new(), START_MS).map_err(|_| gate.keys_wanted()), Err(None), "nobody needs no key");
}

#[test]
fn an_unreadable_key_in_a_fetched_jwks_is_left_out() {
    let odd = [
        json!({"kty": "oct", "kid": 7}),
        json!({"kty": "EC", "crv": "P-256", "kid": "odd", "x": 1, "y": []}),
        json!({"kty": "OKP", "crv": "Ed25519", "kid": "odd", "key_ops": "verify"}),
        json!({}),
        json!(null),
        json!("a key"),
    ];
    for odd in odd {
        let mut set: serde_json::Value = serde_json::from_str(&jwks(&[OLD])).expect("a set");
        set["keys"].as_array_mut().expect("keys").insert(0, odd.clone());
        let mut gate = with_url();
        is(asked(&mut gate, OLD, START_MS), "wait", true);
        assert_eq!(gate.keys_fetched(Some(&set.to_string()), START_MS), Ok(()), "{odd}");
        is(asked(&mut gate, OLD, START_MS), "let in", false);
    }
}

#[test]
fn an_aging_jwks_is_fetched_again_while_tokens_are_still_judged_by_it() {
    let mut gate = with_fetched(&[OLD]);
    is(asked(&mut gate, OLD, START_MS + 149_999), "let in", false);
    is(asked(&mut gate, OLD, START_MS + 150_000), "let in", true);
    is(asked(&mut gate, OLD, START_MS + 150_001), "let in", false);
    gate.keys_fetched(Some(&jwks(&[NEW])), START_MS + 150_100).expect("keys");
    is(asked(&mut gate, OLD, START_MS + 150_101), "unauthorized", false);
    is(asked(&mut gate, NEW, START_MS + 150_101), "let in", false);
}

#[test]
fn a_jwks_that_is_five_minutes_old_is_fetched_again_before_a_token_is_judged() {
    let mut gate = with_fetched(&[OLD]);
    is(asked(&mut gate, OLD, START_MS + 5 * MINUTE_MS), "wait", true);
    gate.keys_fetched(Some(&jwks(&[NEW])), START_MS + 5 * MINUTE_MS).expect("keys");
    is(asked(&mut gate, OLD, START_MS + 5 * MINUTE_MS), "unauthorized", false);
}

#[test]
fn a_new_key_is_accepted_within_30_seconds_and_tokens_of_a_removed_key_are_refused() {
    let mut gate = with_fetched(&[OLD]);
    is(asked(&mut gate, OLD, START_MS), "let in", false);
    is(asked(&mut gate, NEW, START_MS + 29_999), "unauthorized", false);
    is(asked(&mut gate, NEW, START_MS + 30_000), "wait", true);
    is(asked(&mut gate, OLD, START_MS + 30_000), "let in", false);
    gate.keys_fetched(Some(&jwks(&[NEW])), START_MS + 30_001).expect("keys");
    is(asked(&mut gate, NEW, START_MS + 30_001), "let in", false);
    is(asked(&mut gate, OLD, START_MS + 30_002), "unauthorized", false);
}

/// A client takes 401 for a word about its credentials, and stops.
#[test]
fn a_token_issued_since_the_last_fetch_with_an_unknown_kid_is_not_refused_before_the_next_fetch() {
    let fetched_ms = START_MS + 20 * MINUTE_MS + 500;
    let fetched_s = fetched_ms / 1000;
    let mut gate = with_url();
    is(asked(&mut gate, OLD, fetched_ms), "wait", true);
    gate.keys_fetched(Some(&jwks(&[OLD])), fetched_ms + 100).expect("keys");
    for (issued, code) in [
        (json!(fetched_s), "rate-limited"),
        (json!(fetched_s + 7), "rate-limited"),
        (json!(fetched_s as f64 + 0.25), "rate-limited"),
        (json!(fetched_s - 1), "unauthorized"),
        (json!(fetched_ms), "unauthorized"),
        (json!("soon"), "unauthorized"),
        (json!(null), "unauthorized"),
    ] {
        assert_eq!(judged_as(&mut gate, NEW, &issued, fetched_ms + 29_999), code, "{issued}");
        assert_eq!(gate.keys_wanted(), None);
    }
    let issued = json!(fetched_s + 7);
    assert_eq!(judged_as(&mut gate, NEW, &issued, fetched_ms + 30_000), "wait");
    assert_eq!(gate.keys_wanted(), Some(URL));
    gate.keys_fetched(Some(&jwks(&[OLD])), fetched_ms + 30_100).expect("keys");
    assert_eq!(
        judged_as(&mut gate, NEW, &issued, fetched_ms + 30_100),
        "unauthorized",
        "it is older than what was fetched"
    );
}

#[test]
fn the_problem_of_a_token_that_may_be_of_a_new_key_says_so_and_that_it_did_not_run() {
    let mut gate = with_fetched(&[OLD]);
    let mut claims = claims("alice");
    claims["iat"] = json!(START_S + 3);
    let Err(Refusal::Problem(problem)) = gate.admit(&bearer(&NEW.token(&claims)), START_MS + 4_000) else {
        panic!("let in")
    };
    assert_eq!((problem.code, problem.executed), (Code::RateLimited, Executed::No));
    assert!(problem.detail.contains("the token's kid"), "{}", problem.detail);
}

#[test]
fn where_no_keys_are_fetched_a_new_token_with_an_unknown_kid_is_unauthorized() {
    let mut gate = gate(&[("SEMEL_JWT_KEYS", &jwks(&[OLD])), ("SEMEL_JWT_AUDIENCE", AUDIENCE)]);
    assert_eq!(judged_as(&mut gate, NEW, &json!(START_S), START_MS), "unauthorized");
}

#[test]
fn after_the_clock_goes_back_the_jwks_is_fetched_again_before_a_token_is_judged() {
    for back_ms in [DAY_MS, 60 * MINUTE_MS, 5 * MINUTE_MS] {
        let mut gate = with_url();
        is(asked(&mut gate, OLD, START_MS + back_ms), "wait", true);
        gate.keys_fetched(Some(&jwks(&[OLD])), START_MS + back_ms).expect("keys");
        is(asked(&mut gate, NEW, START_MS), "wait", true);
        is(asked(&mut gate, OLD, START_MS), "wait", false);
        gate.keys_fetched(Some(&jwks(&[NEW])), START_MS + 1).expect("keys");
        is(asked(&mut gate, NEW, START_MS + 1), "let in", false);
        is(asked(&mut gate, OLD, START_MS + 1), "unauthorized", false);
    }
}

#[test]
fn if_the_jwks_can_not_be_fetched_its_keys_serve_for_a_day_and_again_after_a_fetch() {
    let mut gate = with_fetched(&[OLD]);
    // The issuer fails all the time.
    for now_ms in (START_MS + 150_000..START_MS + DAY_MS).step_by(600_000) {
        is(asked(&mut gate, OLD, now_ms), if now_ms > START_MS + 150_000 { "wait" } else { "let in" }, true);
        gate.keys_fetched(None, now_ms).expect_err("no keys");
        is(asked(&mut gate, OLD, now_ms), "let in", false);
    }
    is(asked(&mut gate, OLD, START_MS + DAY_MS - 1), "wait", true);
    gate.keys_fetched(None, START_MS + DAY_MS - 1).expect_err("no keys");
    is(asked(&mut gate, OLD, START_MS + DAY_MS - 1), "let in", false);
    is(asked(&mut gate, OLD, START_MS + DAY_MS), "unavailable", false);
    let now_ms = START_MS + DAY_MS + 30_000;
    is(asked(&mut gate, OLD, now_ms), "wait", true);
    gate.keys_fetched(Some(&jwks(&[OLD])), now_ms).expect("keys");
    is(asked(&mut gate, OLD, now_ms), "let in", false);
}

#[test]
fn if_the_jwks_can_not_be_fetched_a_token_of_an_unknown_key_is_unavailable() {
    let mut gate = with_url();
    is(asked(&mut gate, OLD, START_MS), "wait", true);
    assert!(gate.keys_fetched(None, START_MS + 1).is_err());
    is(asked(&mut gate, OLD, START_MS + 2), "unavailable", false);
    is(asked(&mut gate, OLD, START_MS + 30_000), "wait", true);
    assert!(gate.keys_fetched(Some("<html>"), START_MS + 30_001).is_err());
    is(asked(&mut gate, OLD, START_MS + 30_002), "unavailable", false);
    gate.keys_fetched(Some(&jwks(&[OLD])), START_MS + 60_001).expect("keys");
    is(asked(&mut gate, OLD, START_MS + 240_000), "let in", true);
    gate.keys_fetched(None, START_MS + 240_001).expect_err("no keys");
    is(asked(&mut gate, OLD, START_MS + 240_002), "let in", false);
    is(asked(&mut gate, NEW, START_MS + 240_002), "unavailable", false);
}

#[test]
fn after_a_slow_failed_fetch_the_next_one_is_made_while_nobody_waits() {
    let mut gate = with_fetched(&[OLD]);
    is(asked(&mut gate, OLD, START_MS + 6 * MINUTE_MS), "wait", true);
    gate.keys_fetched(None, START_MS + 6 * MINUTE_MS + 4_000).expect_err("no keys");
    is(asked(&mut gate, OLD, START_MS + 7 * MINUTE_MS), "let in", true);
    is(asked(&mut gate, OLD, START_MS + 7 * MINUTE_MS + 1), "let in", false);
}

#[test]
fn a_fetch_that_never_ends_is_waited_for_5_seconds_and_made_again_after_30() {
    let mut gate = with_url();
    is(asked(&mut gate, OLD, START_MS), "wait", true);
    is(asked(&mut gate, OLD, START_MS + 4_999), "wait", false);
    is(asked(&mut gate, OLD, START_MS + 5_000), "unavailable", false);
    is(asked(&mut gate, OLD, START_MS + 29_999), "unavailable", false);
    is(asked(&mut gate, OLD, START_MS + 30_000), "wait", true);
}

#[test]
fn a_renewed_gate_keeps_the_fetched_keys_and_the_pause_of_the_one_before() {
    let text = jwks(&[OLD]);
    let mut renewed = with_url();
    renewed.keys_kept(Some(&text), START_MS, START_MS);
    is(asked(&mut renewed, OLD, START_MS + 1), "let in", false);
    is(asked(&mut renewed, NEW, START_MS + 29_999), "unauthorized", false);
    is(asked(&mut renewed, NEW, START_MS + 30_000), "wait", true);
    let mut renewed = with_url();
    renewed.keys_kept(Some(&text), START_MS, START_MS);
    is(asked(&mut renewed, OLD, START_MS + DAY_MS), "wait", true);
    let mut renewed = with_url();
    renewed.keys_kept(None, 0, START_MS);
    is(asked(&mut renewed, OLD, START_MS + 29_999), "unavailable", false);
    is(asked(&mut renewed, OLD, START_MS + 30_000), "wait", true);
}

#[test]
fn a_new_key_under_the_same_kid_replaces_the_old_one_and_refuses_its_tokens() {
    let mut gate = with_url();
    let kid = |signer: Signer| {
        let mut jwk = signer.jwk();
        jwk["kid"] = json!("one");
        json!({ "keys": [jwk] }).to_string()
    };
    let token = |signer: Signer| {
        signer.token_with(&json!({ "alg": signer.alg(), "kid": "one" }).to_string(), &claims("alice").to_string())
    };
    let old = bearer(&token(Signer::EdDsa(1)));
    assert_eq!(gate.admit(&old, START_MS), Err(Refusal::Wait));
    gate.keys_fetched(Some(&kid(Signer::EdDsa(1))), START_MS).expect("keys");
    assert!(admitted(&mut gate, &old, START_MS).is_ok());
    gate.keys_fetched(Some(&kid(Signer::EdDsa(2))), START_MS).expect("keys");
    assert!(matches!(admitted(&mut gate, &old, START_MS), Err(Refusal::Problem(_))));
    assert!(admitted(&mut gate, &bearer(&token(Signer::EdDsa(2))), START_MS).is_ok());
}

#[test]
fn secrets_and_unusable_keys_in_a_fetched_jwks_are_left_out() {
    let mut gate = with_url();
    judged(&mut gate, OLD, START_MS);
    let rsa = json!({ "kty": "RSA", "kid": "r", "n": "AQAB", "e": "AQAB", "x5c": ["MII"] });
    let set = json!({ "keys": [rsa, Signer::Hs256(3).jwk(), { "kty": "EC" }, OLD.jwk()] }).to_string();
    gate.keys_fetched(Some(&set), START_MS).expect("keys");
    assert_eq!(judged(&mut gate, OLD, START_MS), "let in");
    assert_eq!(judged(&mut gate, Signer::Hs256(3), START_MS), "unauthorized");
}

#[test]
fn keys_from_settings_need_no_fetch_and_take_precedence_over_fetched_ones() {
    let both = [("SEMEL_JWKS_URL", URL), ("SEMEL_JWT_AUDIENCE", AUDIENCE), ("SEMEL_JWT_KEYS", &jwks(&[OLD]))];
    let mut gate = gate(&both);
    assert_eq!(judged(&mut gate, OLD, START_MS), "let in");
    let another =
        json!({ "keys": [{ "kty": "OKP", "crv": "Ed25519", "kid": OLD.kid(), "x": NEW.jwk()["x"] }, NEW.jwk()] })
            .to_string();
    assert_eq!(judged(&mut gate, NEW, START_MS), "wait");
    assert_eq!(gate.keys_wanted(), Some(URL));
    gate.keys_fetched(Some(&another), START_MS).expect("keys");
    assert_eq!(judged(&mut gate, OLD, START_MS), "let in", "what an operator has set comes first");
    assert_eq!(judged(&mut gate, NEW, START_MS), "let in");
}

#[test]
fn if_no_keys_could_be_fetched_the_problem_is_unavailable_with_executed_as_in_the_table() {
    let mut gate = with_url();
    judged(&mut gate, OLD, START_MS);
    gate.keys_fetched(None, START_MS).expect_err("no keys");
    let Err(Refusal::Problem(problem)) = gate.admit(&bearer(&OLD.token(&claims("alice"))), START_MS) else {
        panic!("let in")
    };
    assert_eq!((problem.code, problem.executed), (Code::Unavailable, Code::Unavailable.executed()));
}

#[test]
fn a_jwks_url_needs_an_audience_and_contradicts_semel_open() {
    let access = |is_open: bool, set: &[(&str, &str)]| {
        let set: Vec<(String, String)> =
            set.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Access::from_settings(is_open, |asked| {
            set.iter().find(|(name, _)| name == asked).map(|(_, value)| value.clone())
        })
        .err()
        .unwrap_or_default()
    };
    let (url, audience) = (("SEMEL_JWKS_URL", URL), ("SEMEL_JWT_AUDIENCE", AUDIENCE));
    assert_eq!(access(false, &[url, audience]), "");
    assert!(access(false, &[url]).contains("SEMEL_JWT_AUDIENCE is not set"));
    assert!(access(true, &[url, audience]).contains("SEMEL_OPEN"));
}

#[test]
fn a_fetched_jwks_of_more_than_100_keys_is_refused() {
    let set = |count: u8| {
        let keys: Vec<_> = (0..count).map(|_| OLD.jwk()).collect();
        json!({ "keys": keys }).to_string()
    };
    let mut gate = with_url();
    is(asked(&mut gate, OLD, START_MS), "wait", true);
    let error = gate.keys_fetched(Some(&set(101)), START_MS).expect_err("too many");
    assert!(error.contains("more than 100 keys"), "{error}");
    gate.keys_fetched(Some(&set(100)), START_MS).expect("keys");
    assert_eq!(judged(&mut gate, OLD, START_MS), "let in");
}

/// A fetch that hangs is none that failed: its pause is over for who has a key.
#[test]
fn an_old_key_serves_once_a_fetch_has_hung_for_5_seconds() {
    let mut gate = with_fetched(&[OLD]);
    let late_ms = START_MS + 6 * MINUTE_MS;
    is(asked(&mut gate, OLD, late_ms), "wait", true);
    is(asked(&mut gate, OLD, late_ms + 4_999), "wait", false);
    is(asked(&mut gate, OLD, late_ms + 5_000), "let in", false);
}
