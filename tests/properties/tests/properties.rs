//! The checks of `semel_properties` with generated inputs, mostly close to valid ones and at limits.

use proptest::collection::vec;
use proptest::prelude::*;
use semel_core::header::{self, ACK_BYTES_MAX, ACKS_MAX, Ack, INSTANT_MAX, quoted};
use semel_core::id::{KEY_BYTES_MAX, Key, PRINCIPAL_BYTES_MAX, Principal, REQUEST_ID_CHARS_MAX, RequestId};
use semel_core::message::{Headers, Method};
use semel_core::server::config::CONTROL_IDS_MAX;
use semel_core::server::control;
use semel_properties::{bodies, client, desk, engine, headers, machine, paths, sessions, table};

/// Enough to find what is wrong in one of a hundred inputs. The fuzzer looks for rarer cases.
const CASES: u32 = 2_000;
/// For checks that need a database.
const DATABASE_CASES: u32 = 1_000;
/// For checks that need two databases, and much work in both.
const DESK_CASES: u32 = 300;

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

/// A header value: valid, nearly valid, or anything.
fn value() -> impl Strategy<Value = String> {
    let edge = prop_oneof![Just(header::AHEAD_MS_MAX), Just(0), Just(-1), Just(INSTANT_MAX), any::<i64>()];
    let ms = edge.prop_flat_map(|edge| (-2..=2i64).prop_map(move |by| edge.wrapping_add(by)));
    let instant =
        (ms, any::<bool>()).prop_map(|(ms, is_ahead)| if is_ahead { headers::NOW_MS.wrapping_add(ms) } else { ms });
    prop_oneof![
        "[ -~]{0,12}",
        "[-A-Za-z0-9._~:/+=]{1,300}",
        "\"[ -~]{0,300}\"",
        " ?\"([^\"\\\\]|\\\\.){0,8}\" ?",
        "\"(%[0-9A-Fa-f]{2}|[a-z/.%]){0,12}\"",
        "@?-?[0-9]{0,17}(\\.[0-9])?",
        instant.clone().prop_map(|ms| ms.to_string()),
        instant.prop_map(|ms| format!("@{}", ms.div_euclid(1000))),
        "\"[a-z]{0,3}\"(;until=[0-9]{1,16})?(, ?\"[a-z]\"(;[a-z]{1,5}(=[0-9a-z\"]{1,3})?)?){0,3}",
        "(wait|foo) ?= ?[0-9]{0,5}[;,]?",
        ".{0,12}",
    ]
}

fn request_id() -> impl Strategy<Value = RequestId> {
    prop_oneof!["[ -~]{1,255}", "[\"\\\\ ]{1,9}", "\\.{1,3}"].prop_map(|id| RequestId::new(id).expect("an id"))
}

fn target() -> impl Strategy<Value = String> {
    let segment =
        prop_oneof!["[a-z]{1,4}", "\\.{1,3}", "(%2e|%2F|%5c|%25|%00|%ff|%7F|%C3%A9){1,2}", "", "[ -~]{1,4}", ".{1,3}"];
    let target = (vec(segment, 0..5), "(\\?.{0,4})?").prop_map(|(segments, query)| segments.join("/") + &query);
    let control = ("[ -~]{1,6}", prop_oneof!["acks", "cancel", "outcomes/[!-~]{1,3}"])
        .prop_map(|(key, what)| format!("semel/v1/keys/{key}/{what}"));
    prop_oneof![3 => target, 1 => control]
}

fn method() -> impl Strategy<Value = Method> {
    prop::sample::select(vec!["GET", "HEAD", "POST", "DELETE", "OPTIONS", "TRACE"]).prop_map(Method::new)
}

/// Header lines that the router reads.
fn lines() -> impl Strategy<Value = Headers> {
    let names = [
        "idempotency-key",
        "semel-key",
        "semel-principal",
        "authorization",
        "semel-ack",
        "access-control-request-headers",
    ];
    let line = prop_oneof![value(), "Bearer [ -~]{0,5}", "\"[a-z/%]{1,5}\""];
    vec((prop::sample::select(names.to_vec()), line), 0..3).prop_map(|lines| lines.into_iter().collect())
}

proptest! {
    #![proptest_config(config(CASES))]

    #[test]
    fn a_header_value_is_read_as_the_specification_says_or_refused(value in value()) {
        headers::check(&value);
    }

    #[test]
    fn a_key_survives_its_encoding_and_every_url_parser(key in prop_oneof![".{1,40}", "[ -~]{1,8}", "[./\\\\%]{1,3}"]) {
        if let Ok(key) = Key::new(key) {
            headers::check_key(&key);
            paths::check_control_path(&key);
        }
    }

    #[test]
    fn acknowledgements_written_into_semel_ack_are_read_unchanged_within_its_limits(ids in vec((request_id(), prop::option::of(0..=INSTANT_MAX)), 0..70)) {
        let acks: Vec<Ack> = ids.into_iter().map(|(id, until_ms)| Ack { id, until_ms }).collect();
        let written = headers::ack_header(&acks);
        let fits = acks.len() <= ACKS_MAX && written.len() <= ACK_BYTES_MAX;
        prop_assert_eq!(header::acks(&headers::one("semel-ack", &written)).ok(), fits.then_some(acks));
    }

    #[test]
    fn a_target_and_its_path_are_routed_as_a_url_parser_reads_them(target in target(), method in method(), headers in lines()) {
        paths::check_target(&target, &method, &headers);
        let (pathname, search) = target.split_at(target.find('?').unwrap_or(target.len()));
        paths::check_path(&format!("/{pathname}"), search);
    }

    #[test]
    fn any_bytes_as_a_request_are_routed_or_refused_and_fingerprinted(bytes in vec(any::<u8>(), 0..120)) {
        paths::check(&bytes);
    }

    #[test]
    fn an_accepted_control_body_is_read_as_any_reader_of_json_reads_it(
        body in prop_oneof![
            "\\{\"ids\":\\[(\"[a-z]{0,2}\"|\\{\"id\":\"a\"(,\"until\":(null|-?[0-9]{1,16}|1e3|1\\.5))?\\})\\]\\}",
            "\\{\"id\":\"(a|own|\\\\u00e9|\\\\\"|)\"(,\"firstSent\":(null|[0-9]{1,12}|\"1\"))?(,\"x\":1)?\\}",
            "[\\[\\]{}:,\"a-z0-9 ]{0,40}",
        ],
    ) {
        bodies::check(body.as_bytes());
    }

    #[test]
    fn an_id_quoted_into_a_control_body_is_read_back_unless_its_until_is_out_of_range(id in request_id(), until in prop::option::of(-1..=INSTANT_MAX + 1)) {
        bodies::check_written(&id, until);
    }

    #[test]
    fn the_clients_machine_keeps_its_invariants_whatever_it_is_told(bytes in vec(any::<u8>(), 0..600)) {
        machine::check(&bytes);
    }

    #[test]
    fn sessions_of_the_client_keep_their_invariants_whatever_they_are_told(bytes in vec(any::<u8>(), 0..600)) {
        sessions::check(&bytes);
    }

    #[test]
    fn rows_changes_and_answers_of_the_client_keep_their_invariants(bytes in vec(any::<u8>(), 0..300)) {
        client::check(&bytes);
    }
}

proptest! {
    #![proptest_config(config(DATABASE_CASES))]

    #[test]
    fn a_row_of_a_key_is_read_as_written_and_a_damaged_one_never_runs(bytes in vec(any::<u8>(), 0..200)) {
        table::check(&bytes);
    }

    #[test]
    fn any_requests_in_any_order_have_as_many_effects_as_answers(bytes in vec(any::<u8>(), 0..600)) {
        engine::check(&bytes);
    }
}

proptest! {
    #![proptest_config(config(DESK_CASES))]

    #[test]
    fn requests_that_are_committed_together_end_as_if_committed_one_by_one(bytes in vec(any::<u8>(), 0..800)) {
        desk::check(&bytes);
    }

    #[test]
    fn rows_written_at_a_desk_equal_those_written_one_by_one(bytes in vec(any::<u8>(), 0..4_000)) {
        table::check_at_a_desk(&bytes);
    }
}

#[test]
fn limits_of_ids_keys_principals_and_acknowledgements_hold_at_their_boundaries() {
    let text = |length: usize| "x".repeat(length);
    assert!(
        RequestId::new(text(REQUEST_ID_CHARS_MAX)).is_ok() && RequestId::new(text(REQUEST_ID_CHARS_MAX + 1)).is_err()
    );
    assert!(Key::new(text(KEY_BYTES_MAX)).is_ok() && Key::new(text(KEY_BYTES_MAX + 1)).is_err());
    assert!(Key::new("\u{e9}".repeat(KEY_BYTES_MAX / 2 + 1)).is_err(), "bytes count, not characters");
    assert!(
        Principal::new(text(PRINCIPAL_BYTES_MAX)).is_ok() && Principal::new(text(PRINCIPAL_BYTES_MAX + 1)).is_err()
    );
    let acks = |count: usize, length: usize| {
        header::acks(&headers::one("semel-ack", &vec![quoted(&text(length)); count].join(","))).is_ok()
    };
    // This many ids of this length. Each has two quotes and, except for the last, a comma.
    assert!(acks(ACKS_MAX, 1) && !acks(ACKS_MAX + 1, 1));
    let length = (ACK_BYTES_MAX + 1) / 17 - 3;
    assert!(acks(17, length) && !acks(17, length + 1));
    let posted =
        |count: usize| control::acks(format!("{{\"ids\":[{}]}}", vec!["\"a\""; count].join(",")).as_bytes()).is_ok();
    assert!(posted(CONTROL_IDS_MAX) && !posted(CONTROL_IDS_MAX + 1));
}
