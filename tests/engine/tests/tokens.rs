//! Which principal a bearer token names, and which tokens name none.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use semel_core::message::Headers;
use semel_core::problem::Code;
use semel_core::server::edge::auth::{Asker, Refusal, TOKEN_BYTES_MAX};
use semel_core::server::{Access, Gate};
use semel_support::token::{AUDIENCE, admitted, hs256, jwks};
use semel_support::{START_MS, START_S, Signer, claims};
use serde_json::{Value, json};

fn settings<'a>(set: &'a [(&'a str, &'a str)]) -> impl Fn(&str) -> Option<String> + 'a {
    |asked| set.iter().find(|(name, _)| *name == asked).map(|(_, value)| (*value).to_owned())
}

fn gate_with(keys: &str, more: &[(&str, &str)]) -> Gate {
    let set = [&[("SEMEL_JWT_KEYS", keys), ("SEMEL_JWT_AUDIENCE", AUDIENCE)], more].concat();
    Gate::new(Access::from_settings(false, settings(&set)).expect("settings"))
}

fn gate() -> Gate {
    gate_with(&jwks(&Signer::ALL), &[])
}

fn bearer(token: &str) -> Headers {
    Headers::from_iter([("authorization", format!("Bearer {token}"))])
}

fn ask(gate: &mut Gate, token: &str) -> Result<Asker, Refusal> {
    admitted(gate, &bearer(token), START_MS)
}

#[track_caller]
fn refused(gate: &mut Gate, token: &str, why: &str) {
    match ask(gate, token) {
        Err(Refusal::Problem(problem)) => {
            assert_eq!(problem.code, Code::Unauthorized, "{}", problem.detail);
            assert!(problem.detail.contains(why), "{:?}, not {why:?}", problem.detail);
        }
        other => panic!("{other:?}"),
    }
}

/// The usual claims, with some of them changed; null removes a claim.
fn with(changes: &Value) -> Value {
    let mut claims = claims("alice");
    for (name, value) in changes.as_object().expect("an object") {
        match value {
            Value::Null => claims.as_object_mut().and_then(|claims| claims.remove(name)),
            value => claims.as_object_mut().and_then(|claims| claims.insert(name.clone(), value.clone())),
        };
    }
    claims
}

#[test]
fn a_token_of_each_algorithm_tells_the_principal() {
    for signer in Signer::ALL {
        let mut gate = gate();
        for _ in 0..3 {
            let asker = ask(&mut gate, &signer.token(&claims("alice"))).expect("let in");
            assert_eq!(asker.principal.as_str(), "alice");
        }
    }
}

#[test]
fn a_token_with_any_character_changed_cut_off_or_added_is_refused() {
    for signer in Signer::ALL {
        let token = signer.token(&claims("alice"));
        for at in 0..token.len() {
            let mut changed = token.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).expect("ASCII");
            assert!(ask(&mut gate(), &changed).is_err(), "{signer:?}: {at}");
        }
        for cut in 0..token.len() {
            assert!(ask(&mut gate(), &token[..cut]).is_err(), "{signer:?}: {cut}");
        }
        for more in [
            format!("{token}."),
            format!(".{token}"),
            format!("{token}A"),
            format!("{token}="),
            format!("{token}.{token}"),
        ] {
            assert!(ask(&mut gate(), &more).is_err(), "{more}");
        }
    }
}

#[test]
fn alg_none_is_refused_however_it_is_written() {
    for alg in ["none", "None", "NONE", ""] {
        for signer in Signer::ALL {
            let header = json!({ "alg": alg, "kid": signer.kid() }).to_string();
            let message = format!("{}.{}", BASE64.encode(&header), BASE64.encode(claims("alice").to_string()));
            refused(&mut gate(), &format!("{message}."), "algorithm");
            refused(&mut gate(), &signer.token_with(&header, &claims("alice").to_string()), "algorithm");
        }
    }
}

#[test]
fn the_refusal_of_an_unsupported_algorithm_names_the_supported_ones() {
    // Fetched keys of these algorithms are left out, so the refusal must not say that nobody has such a key.
    for alg in ["PS256", "RS512", "ES384", "Ed448"] {
        let header = json!({ "alg": alg, "kid": "of-the-issuer" }).to_string();
        refused(
            &mut gate(),
            &Signer::Hs256(7).token_with(&header, &claims("alice").to_string()),
            "no key of HS256, RS256, ES256 or EdDSA",
        );
    }
}

#[test]
fn alg_ed25519_is_accepted_for_an_ed25519_key_and_for_no_other() {
    for signer in Signer::ALL {
        let header = json!({ "alg": "Ed25519", "kid": signer.kid() }).to_string();
        let token = signer.token_with(&header, &claims("alice").to_string());
        if matches!(signer, Signer::EdDsa(_)) {
            assert!(ask(&mut gate(), &token).is_ok());
        } else {
            refused(&mut gate(), &token, "algorithm");
        }
    }
}

#[test]
fn a_key_is_never_used_for_another_algorithm() {
    for signer in Signer::ALL {
        for other in Signer::ALL.into_iter().filter(|other| other.alg() != signer.alg()) {
            // The header names the other's key, and the token is signed with the signer's own.
            let header = json!({ "alg": signer.alg(), "kid": other.kid() }).to_string();
            refused(&mut gate(), &signer.token_with(&header, &claims("alice").to_string()), "algorithm");
            let header = json!({ "alg": other.alg(), "kid": other.kid() }).to_string();
            refused(&mut gate(), &signer.token_with(&header, &claims("alice").to_string()), "signature");
        }
    }
}

#[test]
fn a_public_key_is_never_used_as_a_secret_of_hs256() {
    // An attacker has the bytes of a public key, in every form, and uses them as a secret of HS256.
    for public in [Signer::Rs256(0x87), Signer::Es256(7), Signer::EdDsa(7)] {
        let jwk = public.jwk();
        let part = |name: &str| BASE64.decode(jwk[name].as_str().unwrap_or_default()).expect("base64url");
        let forms = [
            [part("n"), part("x")].concat(),
            [vec![4], part("x"), part("y")].concat(),
            jwk.to_string().into_bytes(),
            jwk["n"].to_string().into_bytes(),
            jwk["x"].to_string().into_bytes(),
        ];
        for secret in forms {
            let header = json!({ "alg": "HS256", "kid": public.kid() }).to_string();
            let message = format!("{}.{}", BASE64.encode(header), BASE64.encode(claims("alice").to_string()));
            let token = format!("{message}.{}", BASE64.encode(hs256(&secret, message.as_bytes())));
            refused(&mut gate(), &token, "algorithm");
        }
    }
}

#[test]
fn jwk_jku_and_x5u_in_the_header_of_a_token_are_ignored() {
    let own = Signer::EdDsa(9);
    for more in [
        json!({ "jwk": own.jwk() }),
        json!({ "jku": "https://evil.example/jwks" }),
        json!({ "x5u": "https://evil.example" }),
    ] {
        let mut header = json!({ "alg": "EdDSA", "kid": own.kid() });
        header.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        refused(&mut gate(), &own.token_with(&header.to_string(), &claims("alice").to_string()), "kid");
    }
}

#[test]
fn a_header_with_crit_a_doubled_member_an_unknown_kid_or_malformed_json_is_refused() {
    let signer = Signer::Hs256(7);
    let kid = signer.kid();
    for (header, why) in [
        (format!(r#"{{"alg":"HS256","kid":"{kid}","crit":["b64"],"b64":false}}"#), "critical"),
        (format!(r#"{{"alg":"HS256","kid":"{kid}","crit":[]}}"#), "critical"),
        (r#"{"alg":"HS256"}"#.to_owned(), "kid"),
        (r#"{"alg":"HS256","kid":"nobody's"}"#.to_owned(), "kid"),
        (format!(r#"{{"alg":"HS256","alg":"HS256","kid":"{kid}"}}"#), "no JWT"),
        (format!(r#"{{"alg":"HS256","kid":"x","kid":"{kid}"}}"#), "no JWT"),
        (format!(r#"{{"alg":"HS256","kid":["{kid}"]}}"#), "no JWT"),
        (format!(r#"["HS256","{kid}",null]"#), "no JWT"),
        (format!(r#"{{"alg":"HS256","kid":"{kid}"}}x"#), "no JWT"),
        ("[".repeat(5_000), "no JWT"),
    ] {
        refused(&mut gate(), &signer.token_with(&header, &claims("alice").to_string()), why);
    }
}

#[test]
fn a_token_is_valid_from_nbf_to_exp_with_30_s_of_leeway() {
    let signer = Signer::Hs256(7);
    for (claims, why) in [
        (with(&json!({ "exp": START_S - 30 })), "expired"),
        (with(&json!({ "exp": 0 })), "expired"),
        (with(&json!({ "exp": -1e300 })), "expired"),
        (with(&json!({ "nbf": START_S + 31 })), "not valid yet"),
        (with(&json!({ "exp": null })), "can't be read"),
        (with(&json!({ "exp": "9999999999" })), "can't be read"),
        (with(&json!({ "nbf": "0" })), "can't be read"),
    ] {
        refused(&mut gate(), &signer.token(&claims), why);
    }
    for claims in [
        json!({ "exp": START_S - 29 }),
        json!({ "exp": 1e300 }),
        json!({ "exp": START_S as f64 + 0.5 }),
        json!({ "nbf": START_S + 30 }),
    ] {
        assert!(ask(&mut gate(), &signer.token(&with(&claims))).is_ok(), "{claims}");
    }
}

#[test]
fn a_token_that_was_verified_before_still_expires() {
    let mut gate = gate();
    let headers = bearer(&Signer::Es256(7).token(&claims("alice")));
    assert!(admitted(&mut gate, &headers, START_MS).is_ok());
    assert!(gate.admit(&headers, START_MS + 3_629_999).is_ok());
    assert!(gate.admit(&headers, START_MS + 3_630_000).is_err());
}

#[test]
fn a_token_needs_the_audience_of_the_server_and_its_issuer_if_one_is_set() {
    let signer = Signer::EdDsa(7);
    for (aud, is_let_in) in [
        (json!(AUDIENCE), true),
        (json!(["x", AUDIENCE]), true),
        (json!([]), false),
        (json!("https://api.example.evil"), false),
        (json!({ "0": AUDIENCE }), false),
        (json!(null), false),
    ] {
        assert_eq!(ask(&mut gate(), &signer.token(&with(&json!({ "aud": aud })))).is_ok(), is_let_in, "{aud}");
    }
    let anybodys = signer.token(&with(&json!({ "iss": "https://id.example" })));
    assert!(ask(&mut gate(), &anybodys).is_ok(), "where no issuer is set, it may be any");
    let issuer = || gate_with(&jwks(&Signer::ALL), &[("SEMEL_JWT_ISSUER", "https://id.example")]);
    for (iss, is_let_in) in [
        (json!("https://id.example"), true),
        (json!("https://id.example/"), false),
        (json!(["https://id.example"]), false),
        (json!(null), false),
    ] {
        assert_eq!(ask(&mut issuer(), &signer.token(&with(&json!({ "iss": iss })))).is_ok(), is_let_in, "{iss}");
    }
}

#[test]
fn a_sub_needs_1_to_255_printable_characters_and_must_not_be_reserved() {
    let signer = Signer::Hs256(7);
    let long = "x".repeat(255);
    for sub in ["a", " ", "a b\"\\", "SEMEL:admin", "semel", long.as_str()] {
        let asker = ask(&mut gate(), &signer.token(&claims(sub))).expect("let in");
        assert_eq!(asker.principal.as_str(), sub);
    }
    let too_long = "x".repeat(256);
    for sub in ["", "semel:admin", "semel:", "a\nb", "caf\u{e9}", "\u{1b}[31m", "\0", too_long.as_str()] {
        refused(&mut gate(), &signer.token(&claims(sub)), "sub");
    }
    for sub in [json!(null), json!(5), json!(["alice"])] {
        refused(&mut gate(), &signer.token(&with(&json!({ "sub": sub }))), "can't be read");
    }
    let doubled = format!(r#"{{"sub":"bob","aud":"{AUDIENCE}","exp":{},"sub":"alice"}}"#, START_S + 60);
    refused(
        &mut gate(),
        &signer.token_with(&json!({ "alg": "HS256", "kid": signer.kid() }).to_string(), &doubled),
        "can't be read",
    );
}

#[test]
fn tokens_that_nest_too_deep_overflow_a_number_or_are_too_long_are_refused() {
    let signer = Signer::Hs256(7);
    let header = json!({ "alg": "HS256", "kid": signer.kid() }).to_string();
    let valid = claims("alice").to_string();
    for bomb in [
        "[".repeat(5_000),
        format!(r#"{{"x":{},{}"#, "[".repeat(2_000), &valid[1..]),
        valid.replace(&(START_S + 3600).to_string(), "1e999"),
    ] {
        refused(&mut gate(), &signer.token_with(&header, &bomb), "can't be read");
    }
    let padded = |bytes: usize| signer.token_with(&header, &format!("{valid}{}", " ".repeat(bytes)));
    let room = (TOKEN_BYTES_MAX - padded(0).len()) / 4 * 3;
    assert!(ask(&mut gate(), &padded(room - 3)).is_ok());
    refused(&mut gate(), &padded(room + 3), "too long");
}

#[test]
fn credentials_must_be_exactly_one_bearer_token() {
    let token = Signer::Hs256(7).token(&claims("alice"));
    let mut gate = gate();
    let lines = |lines: &[&str]| Headers::from_iter(lines.iter().map(|line| ("authorization", *line)));
    let twice = format!("Bearer {token}");
    for bad in [
        vec![],
        vec![""],
        vec!["Bearer"],
        vec!["Bearer "],
        vec![token.as_str()],
        vec!["Basic YTpi"],
        vec![&twice, &twice],
        vec![&twice, ""],
        vec!["", &twice],
    ] {
        assert!(
            matches!(gate.admit(&lines(&bad), START_MS), Err(Refusal::Problem(problem)) if problem.code == Code::Unauthorized),
            "{bad:?}"
        );
    }
    assert!(gate.admit(&lines(&[&format!("bEaReR  {token}")]), START_MS).is_ok());
}

#[test]
fn the_host_gets_only_the_members_of_a_key_that_its_algorithm_needs() {
    for signer in [Signer::Rs256(0x87), Signer::Es256(7), Signer::EdDsa(7)] {
        let mut jwk = signer.jwk();
        for more in ["d", "x5c", "alg_", "ext"] {
            jwk[more] = "AQAB".into();
        }
        let mut gate = gate_with(&json!({ "keys": [jwk] }).to_string(), &[]);
        let token = signer.token(&claims("alice"));
        assert_eq!(gate.admit(&bearer(&token), START_MS), Err(Refusal::Wait));
        let (_, signed) = gate.signature_wanted().expect("a signature");
        assert_eq!(gate.signature_wanted(), None, "it is told once");
        let mut public = signer.jwk();
        public.as_object_mut().expect("an object").remove("kid");
        assert_eq!(serde_json::from_str::<Value>(&signed.jwk).expect("a JWK"), public);
        let (message, signature) = token.rsplit_once('.').expect("a token");
        assert_eq!((signed.alg, signed.message.as_str()), (signer.alg(), message));
        assert_eq!(BASE64.encode(signed.signature), signature);
    }
}

#[test]
fn a_signature_check_counts_for_its_token_alone_and_only_a_valid_one_is_remembered() {
    let mut gate = gate();
    let [alices, bobs] = ["alice", "bob"].map(|sub| bearer(&Signer::Rs256(0x87).token(&claims(sub))));
    let asked = |gate: &mut Gate, headers: &Headers| {
        assert_eq!(gate.admit(headers, START_MS), Err(Refusal::Wait));
        gate.signature_wanted().expect("a signature").0
    };
    let of_alice = asked(&mut gate, &alices);
    gate.signature_checked(of_alice, Some(true));
    let of_bob = asked(&mut gate, &bobs);
    assert_ne!(of_alice, of_bob);
    gate.signature_checked(of_bob, Some(false));
    assert!(
        matches!(gate.admit(&bobs, START_MS), Err(Refusal::Problem(problem)) if problem.code == Code::Unauthorized)
    );
    assert_eq!(asked(&mut gate, &bobs), of_bob, "a refusal is not remembered");
    // If the host can't use a key, this is not the fault of whoever has a token of it.
    gate.signature_checked(of_bob, None);
    assert!(matches!(gate.admit(&bobs, START_MS), Err(Refusal::Problem(problem)) if problem.code == Code::Unavailable));
    let of_alice = asked(&mut gate, &alices);
    gate.signature_checked(of_alice, Some(true));
    assert!(gate.admit(&alices, START_MS).is_ok());
    assert!(gate.admit(&alices, START_MS).is_ok(), "a signature that was right is");
    assert_eq!(gate.signature_wanted(), None);
}
