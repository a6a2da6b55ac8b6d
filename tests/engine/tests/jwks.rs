//! Keys that come from a URL: when they are fetched, and which keys count meanwhile.

use semel_core::message::Headers;
use semel_core::problem::Code;
use semel_core::server::edge::auth::Refusal;
use semel_core::server::{Access, Gate};
use semel_support::token::{AUDIENCE, admitted, jwks};
use semel_support::{START_MS, Signer, claims};
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
    let mut claims = claims("alice");
    claims["exp"] = json!(now_ms / 1000 + 60);
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
fn keys_are_fetched_once_when_they_are_needed() {
    let mut gate = with_url();
    is(asked(&mut gate, OLD, START_MS), "wait", true);
    is(asked(&mut gate, OLD, START_MS), "wait", false);
    assert_eq!(gate.keys_fetched(Some(&jwks(&[OLD])), START_MS + 9), Ok(()));
    is(asked(&mut gate, OLD, START_MS + 9), "let in", false);
    assert_eq!(gate.admit(&Headers::new(), START_MS).map_err(|_| gate.keys_wanted()), Err(None), "nobody needs no key");
}

#[test]
fn a_key_that_cannot_be_read_is_left_out_of_what_is_fetched() {
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
fn a_set_that_ages_is_fetched_again_while_nobody_waits() {
    let mut gate = with_fetched(&[OLD]);
    is(asked(&mut gate, OLD, START_MS + 149_999), "let in", false);
    is(asked(&mut gate, OLD, START_MS + 150_000), "let in", true);
    is(asked(&mut gate, OLD, START_MS + 150_001), "let in", false);
    gate.keys_fetched(Some(&jwks(&[NEW])), START_MS + 150_100).expect("keys");
    is(asked(&mut gate, OLD, START_MS + 150_101), "unauthorized", false);
    is(asked(&mut gate, NEW, START_MS + 150_101), "let in", false);
}

#[test]
fn a_set_that_nobody_asked_for_in_five_minutes_is_waited_for() {
    let mut gate = with_fetched(&[OLD]);
    is(asked(&mut gate, OLD, START_MS + 5 * MINUTE_MS), "wait", true);
    gate.keys_fetched(Some(&jwks(&[NEW])), START_MS + 5 * MINUTE_MS).expect("keys");
    is(asked(&mut gate, OLD, START_MS + 5 * MINUTE_MS), "unauthorized", false);
}

#[test]
fn a_new_key_is_taken_within_30_seconds_and_a_removed_one_is_forgotten_with_its_tokens() {
    let mut gate = with_fetched(&[OLD]);
    is(asked(&mut gate, OLD, START_MS), "let in", false);
    is(asked(&mut gate, NEW, START_MS + 29_999), "unauthorized", false);
    is(asked(&mut gate, NEW, START_MS + 30_000), "wait", true);
    is(asked(&mut gate, OLD, START_MS + 30_000), "let in", false);
    gate.keys_fetched(Some(&jwks(&[NEW])), START_MS + 30_001).expect("keys");
    is(asked(&mut gate, NEW, START_MS + 30_001), "let in", false);
    is(asked(&mut gate, OLD, START_MS + 30_002), "unauthorized", false);
}

#[test]
fn a_clock_that_goes_back_keeps_no_old_keys_and_no_new_ones_out() {
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
fn keys_that_are_left_unfetched_end_after_a_day_and_come_back_with_the_issuer() {
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
fn where_keys_can_not_be_had_nobody_is_refused_for_it() {
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
fn who_failed_slowly_just_now_keeps_nobody_waiting_again() {
    let mut gate = with_fetched(&[OLD]);
    is(asked(&mut gate, OLD, START_MS + 6 * MINUTE_MS), "wait", true);
    gate.keys_fetched(None, START_MS + 6 * MINUTE_MS + 4_000).expect_err("no keys");
    is(asked(&mut gate, OLD, START_MS + 7 * MINUTE_MS), "let in", true);
    is(asked(&mut gate, OLD, START_MS + 7 * MINUTE_MS + 1), "let in", false);
}

#[test]
fn a_fetch_that_never_comes_back_is_made_again_after_the_same_pause_as_any() {
    let mut gate = with_url();
    is(asked(&mut gate, OLD, START_MS), "wait", true);
    is(asked(&mut gate, OLD, START_MS + 4_999), "wait", false);
    is(asked(&mut gate, OLD, START_MS + 5_000), "unavailable", false);
    is(asked(&mut gate, OLD, START_MS + 29_999), "unavailable", false);
    is(asked(&mut gate, OLD, START_MS + 30_000), "wait", true);
}

#[test]
fn a_gate_that_is_made_anew_goes_on_with_the_keys_and_the_pause_of_the_one_before() {
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
fn another_key_under_the_same_kid_is_another_key() {
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
fn of_what_is_fetched_secrets_and_unusable_keys_are_left_out() {
    let mut gate = with_url();
    judged(&mut gate, OLD, START_MS);
    let rsa = json!({ "kty": "RSA", "kid": "r", "n": "AQAB", "e": "AQAB", "x5c": ["MII"] });
    let set = json!({ "keys": [rsa, Signer::Hs256(3).jwk(), { "kty": "EC" }, OLD.jwk()] }).to_string();
    gate.keys_fetched(Some(&set), START_MS).expect("keys");
    assert_eq!(judged(&mut gate, OLD, START_MS), "let in");
    assert_eq!(judged(&mut gate, Signer::Hs256(3), START_MS), "unauthorized");
}

#[test]
fn keys_that_are_set_need_no_url() {
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
fn a_problem_of_the_gate_is_the_one_in_the_table() {
    let mut gate = with_url();
    judged(&mut gate, OLD, START_MS);
    gate.keys_fetched(None, START_MS).expect_err("no keys");
    let Err(Refusal::Problem(problem)) = gate.admit(&bearer(&OLD.token(&claims("alice"))), START_MS) else {
        panic!("let in")
    };
    assert_eq!((problem.code, problem.executed), (Code::Unavailable, Code::Unavailable.executed()));
}

#[test]
fn a_url_for_keys_needs_an_audience_and_a_deployment_that_asks_for_tokens() {
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
fn a_set_of_too_many_keys_is_none() {
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
fn a_key_that_is_too_old_serves_while_a_fetch_hangs_longer_than_it_may() {
    let mut gate = with_fetched(&[OLD]);
    let late_ms = START_MS + 6 * MINUTE_MS;
    is(asked(&mut gate, OLD, late_ms), "wait", true);
    is(asked(&mut gate, OLD, late_ms + 4_999), "wait", false);
    is(asked(&mut gate, OLD, late_ms + 5_000), "let in", false);
}
