//! An operator's settings about who may ask: invalid keys, and settings that contradict each other.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use semel_core::server::Access;
use semel_support::Signer;
use semel_support::token::{AUDIENCE, jwks};
use serde_json::{Value, json};

fn settings<'a>(set: &'a [(&'a str, &'a str)]) -> impl Fn(&str) -> Option<String> + 'a {
    |asked| set.iter().find(|(name, _)| *name == asked).map(|(_, value)| (*value).to_owned())
}

#[test]
fn an_invalid_set_of_keys_in_the_settings_is_an_error_that_contains_no_secret() {
    let secret = BASE64.encode([0xa5; 31]);
    let long = BASE64.encode([0xa5; 32]);
    let ec = Signer::Es256(7).jwk();
    for set in [
        "nonsense".to_owned(),
        "{}".to_owned(),
        json!({ "keys": [{ "kty": "oct", "kid": "a", "k": secret }] }).to_string(),
        json!({ "keys": [{ "kty": "oct", "k": long }] }).to_string(),
        json!({ "keys": [{ "kty": "oct", "kid": "a", "k": format!("{long}=") }] }).to_string(),
        json!({ "keys": [{ "kty": "oct", "kid": "a", "k": long, "alg": "HS512" }] }).to_string(),
        json!({ "keys": [{ "kty": "oct", "kid": "a", "k": long, "use": "enc" }] }).to_string(),
        json!({ "keys": [{ "kty": "oct", "kid": "a", "k": long, "key_ops": ["sign"] }] }).to_string(),
        json!({ "keys": [{ "kty": "oct", "kid": "a", "k": long }, { "kty": "oct", "kid": "a", "k": long }] })
            .to_string(),
        json!({ "keys": [{ "kty": "EC", "crv": "P-384", "kid": "a", "x": ec["x"], "y": ec["y"] }] }).to_string(),
        json!({ "keys": [{ "kty": "EC", "crv": "P-256", "kid": "a", "x": ec["x"] }] }).to_string(),
        json!({ "keys": [{ "kty": "EC", "crv": "P-256", "kid": "a", "x": "", "y": "" }] }).to_string(),
        // Both parts are whole bytes. Together they have the right length, but each of them does not.
        json!({ "keys": [{ "kty": "EC", "crv": "P-256", "kid": "a", "x": BASE64.encode([7; 31]), "y": BASE64.encode([7; 33]) }] })
            .to_string(),
        json!({ "keys": [{ "kty": "OKP", "crv": "Ed25519", "kid": "a", "x": BASE64.encode([7; 31]) }] }).to_string(),
        format!("{{\"keys\":[{{\"kty\":\"oct\",\"kid\":\"a\",\"k\":{long}}}]}}"),
    ] {
        let set = [("SEMEL_JWT_KEYS", set.as_str()), ("SEMEL_JWT_AUDIENCE", AUDIENCE)];
        let error = Access::from_settings(false, settings(&set)).expect_err(set[0].1);
        assert!(error.contains("SEMEL_JWT_KEYS"), "{error}");
        assert!(!error.contains(&secret[..8]) && !error.contains(&long[..8]), "{error}");
    }
}

/// What is wrong with a set of one key, if anything is.
fn wrong_with(key: &Value) -> Option<String> {
    let set = json!({ "keys": [key] }).to_string();
    let set = [("SEMEL_JWT_KEYS", set.as_str()), ("SEMEL_JWT_AUDIENCE", AUDIENCE)];
    Access::from_settings(false, settings(&set)).err()
}

#[test]
fn an_rsa_key_needs_2048_to_4096_bits_the_exponent_65537_and_no_other_algorithm() {
    let rsa = |modulus: &[u8], exponent: &str| json!({ "kty": "RSA", "kid": "a", "n": BASE64.encode(modulus), "e": exponent });
    let with_first = |first: u8, bytes: usize| [vec![first], vec![0xff; bytes - 1]].concat();
    for (modulus, is_taken) in [
        (vec![], false),
        (vec![0; 300], false),
        (vec![0xff; 128], false),
        (vec![0xff; 255], false),
        (with_first(0x7f, 256), false),
        (with_first(0x80, 256), true),
        // With a leading zero for the sign, as some write it.
        ([vec![0], with_first(0x7f, 256)].concat(), false),
        ([vec![0], with_first(0x80, 256)].concat(), true),
        (vec![0xff; 512], true),
        (with_first(1, 513), false),
        (vec![0xff; 1024], false),
    ] {
        let wrong = wrong_with(&rsa(&modulus, "AQAB"));
        assert_eq!(wrong.is_none(), is_taken, "{} bytes, {:?}: {wrong:?}", modulus.len(), modulus.first());
    }
    for exponent in ["Aw", "EQ", "AAEAAQ", "AQAC", "AA", "", "AQAB="] {
        assert!(wrong_with(&rsa(&[0xff; 256], exponent)).is_some(), "{exponent}");
    }
    for alg in ["RS512", "PS256", "HS256"] {
        let mut key = rsa(&[0xff; 256], "AQAB");
        key["alg"] = alg.into();
        assert!(wrong_with(&key).is_some(), "{alg}");
    }
    for missing in ["n", "e"] {
        let mut key = rsa(&[0xff; 256], "AQAB");
        key.as_object_mut().expect("an object").remove(missing);
        assert!(wrong_with(&key).is_some(), "{missing}");
    }
}

#[test]
fn an_ed25519_key_that_is_a_point_of_small_order_is_refused() {
    // Points of order 1, 2, 4 and 8, with either sign, and other encodings of them: by RFC 8032, y is taken modulo 2^255 - 19.
    let mut prime = [0xff; 32];
    (prime[0], prime[31]) = (0xed, 0x7f);
    let shifted = |by: i16| {
        let mut y = prime;
        y[0] = u8::try_from(0xed + by).expect("a byte");
        y
    };
    let small = |y: u8| std::array::from_fn(|at| if at == 0 { y } else { 0 });
    let of_order_8 = ["JuiVj8KyJ7BFw_SJ8u-Y8NXfrAXTxjM5sTgCiG1T_AU", "xxdqcD1N2E-6PAt2DRBnDyogU_osOczGTsf9d5KsA3o"];
    let of_order_8 = of_order_8.map(|y| BASE64.decode(y).expect("base64url").try_into().expect("32 bytes"));
    let others: [[u8; 32]; 5] = [small(0), small(1), shifted(-1), shifted(0), shifted(1)];
    for y in others.into_iter().chain(of_order_8) {
        for sign in [0, 0x80] {
            let mut x = y;
            x[31] |= sign;
            let key = json!({ "kty": "OKP", "crv": "Ed25519", "kid": "a", "x": BASE64.encode(x) });
            assert!(wrong_with(&key).is_some_and(|wrong| wrong.contains("no point")), "{x:?}");
        }
    }
    assert_eq!(wrong_with(&Signer::EdDsa(7).jwk()), None);
}

#[test]
fn contradictory_or_invalid_access_settings_are_an_error_that_names_the_setting() {
    let keys = jwks(&Signer::ALL);
    let error =
        |is_open: bool, set: &[(&str, &str)]| Access::from_settings(is_open, settings(set)).expect_err("no settings");
    assert!(error(false, &[("SEMEL_JWT_KEYS", &keys)]).contains("SEMEL_JWT_AUDIENCE"));
    assert!(error(true, &[("SEMEL_JWT_KEYS", &keys), ("SEMEL_JWT_AUDIENCE", "a")]).contains("SEMEL_OPEN"));
    assert!(
        error(false, &[("SEMEL_JWKS_URL", "http://id.example/"), ("SEMEL_JWT_AUDIENCE", "a")])
            .contains("SEMEL_JWKS_URL")
    );
    for secret in ["fifteen-chars-!", "has a space in it", "caf\u{e9}-caf\u{e9}-caf\u{e9}-caf\u{e9}"] {
        let error = error(false, &[("SEMEL_ADMIN_TOKEN", secret)]);
        assert!(error.contains("SEMEL_ADMIN_TOKEN") && !error.contains(secret), "{error}");
    }
    let with_password = "https://reader:pass-word@id.example/jwks";
    let wrong = error(false, &[("SEMEL_JWKS_URL", with_password), ("SEMEL_JWT_AUDIENCE", "a")]);
    assert!(wrong.contains("SEMEL_JWKS_URL") && wrong.contains("without a user name"), "{wrong}");
    assert!(!wrong.contains("pass-word"), "{wrong}");
    for rate in ["0", "-1", "many", "1000001"] {
        assert!(error(false, &[("SEMEL_RATE_BURST", rate)]).contains("SEMEL_RATE_BURST"));
        assert!(error(false, &[("SEMEL_RATE_PER_SECOND", rate)]).contains("SEMEL_RATE_PER_SECOND"));
    }
}
