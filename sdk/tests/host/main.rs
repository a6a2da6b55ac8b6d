//! Tests the boundary of the wasm module: the host reads every call and writes every action, and an input that can't be read changes
//! nothing.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

mod tab;

use proptest::collection::vec;
use proptest::prelude::*;
use semel_core::client::bytes::Writer;
use semel_core::client::row::Settled;
use semel_core::client::{Row, codec};
use semel_sdk::Host;
use tab::*;

const EXECUTED: &str = "semel-status:executed\nsemel-key:\"k\"\nx-receipt:7:8\n";

#[test]
fn a_request_crosses_the_boundary_from_its_row_to_its_outcome_and_its_acknowledgement() {
    let mut tab = Tab::default();
    tab.open();
    let ticket = tab.request("id-1", Some("k"));
    let (kind, row) = tab.change("id-1", None);
    let entry = pending(&row);
    assert_eq!((kind, entry.owner.as_str(), entry.outbox.as_str()), (1, "tab", "semel https://test alice"));
    assert_eq!((entry.draft.method.as_str(), entry.draft.target.as_str()), ("POST", "/deposit?a=b"));
    assert_eq!((entry.draft.key.as_deref(), entry.draft.body.as_slice()), (Some("k"), [0, 255, 10].as_slice()));
    assert_eq!(entry.draft.headers.get("x-note"), Some("a:b"));

    let (health, target, lines) = tab.attempt();
    assert_eq!((target.as_str(), lines.as_str()), ("/semel/v1/health", ""));
    tab.now_ms += 10;
    tab.answered(health, 200, &format!("semel-status:read\nsemel-now:{SERVER_MS}\n"), "");
    let (kind, row) = tab.change("id-1", Some(&row));
    assert_eq!((kind, pending(&row).until_ms), (1, Some(SERVER_MS + ATTEMPT_TIMEOUT_MS)));
    let sent = tab.next();
    let Asked::Transmit { attempt, method, target, lines, body } = sent else { panic!("{sent:?}") };
    assert_eq!((method.as_str(), target.as_str(), body), ("POST", "/deposit?a=b", vec![0, 255, 10]));
    for line in ["x-note:a:b", "idempotency-key:\"id-1\"", "semel-key:\"k\"", "semel-principal:\"alice\""] {
        assert!(lines.lines().any(|each| each == line), "{line} in {lines}");
    }
    assert_eq!(tab.wakes_at, Some(tab.now_ms + ATTEMPT_TIMEOUT_MS));

    tab.answered(attempt, 201, EXECUTED, "");
    let request = (ticket, "id-1".into(), "POST".into(), "/deposit?a=b".into());
    let outcome = Asked::Outcome { request, is_awaited: true, status: 201, lines: EXECUTED.into(), body: b"{}".into() };
    assert_eq!(tab.next(), outcome);
    let overview = tab.call(OVERVIEW, |input| rows(input, &[("id-1", &row)]));
    assert_eq!(text(&overview), "id-1\tPOST\t/deposit?a=b\tanswered\t1");
    tab.number(DELIVERED, ticket);
    let (kind, row) = tab.settle("id-1", Some(&row));
    assert_eq!(kind, 1);
    let Ok(Row::Settled(Settled { until_ms, .. })) = codec::decode(&row) else { panic!("it is not settled") };
    assert_eq!(tab.call(IS_DONE, |input| input.bytes(&row)), [1]);
    assert_eq!(until_ms, SERVER_MS + ATTEMPT_TIMEOUT_MS);

    tab.wake();
    let (acks, target, _) = tab.attempt();
    assert_eq!(target, "/semel/v1/keys/k/acks");
    tab.answered(acks, 204, "semel-status:executed\nsemel-key:\"k\"\n", "");
    assert_eq!(tab.next(), Asked::Remove("id-1".into()));
}

#[test]
fn timeouts_losses_pauses_resumes_and_giving_up_cross_the_boundary() {
    let mut tab = Tab::ready();
    let (ticket, row, attempt) = tab.sent("id-1", Some("k"));
    tab.wake();
    assert_eq!(tab.next(), Asked::Abort(attempt));
    tab.wake();
    let (_, row) = tab.change("id-1", Some(&row));
    let (attempt, ..) = tab.attempt();
    tab.number(LOST, attempt);
    tab.wake();
    let (_, row) = tab.change("id-1", Some(&row));
    let (attempt, ..) = tab.attempt();
    tab.answered(attempt, 401, "semel-status:unauthorized\n", "executed:no\nretry:after-fix\ndetail:log in\n");
    let request = (ticket, "id-1".into(), "POST".into(), "/deposit?a=b".into());
    let why = |code: &str, retry: &str, detail: &str, problem: &[u8]| {
        (code.to_owned(), "unknown".to_owned(), retry.to_owned(), detail.to_owned(), problem.to_owned())
    };
    assert_eq!(tab.next(), Asked::Pause(request, why("unauthorized", "after-fix", "log in", b"{}")));
    tab.wake();
    let gave_up = "no definitive answer in time; it goes on";
    assert_eq!(tab.next(), Asked::GiveUp("id-1".into(), why("gave-up", "same-id", gave_up, b"")));
    for resume in [RESUME, RESUME_ALL] {
        tab.now_ms += RETRY_INTERVAL_MS;
        tab.number(resume, ticket);
        tab.change("id-1", Some(&row));
        let (attempt, ..) = tab.attempt();
        tab.answered(attempt, 401, "semel-status:unauthorized\n", "");
        assert!(matches!(tab.next(), Asked::Pause(..)));
    }
    tab.now_ms += RETRY_INTERVAL_MS;
    tab.number(GIVE_UP, ticket);
    tab.change("id-1", Some(&row));
    let (attempt, target, _) = tab.attempt();
    assert_eq!(target, "/semel/v1/keys/k/cancel");
    tab.answered(attempt, 200, EXECUTED, "state:cancelled\n");
    let asked = tab.next();
    let Asked::Failure { is_awaited: false, why: (code, executed, retry, ..), .. } = &asked else {
        panic!("{asked:?}")
    };
    assert_eq!((code.as_str(), executed.as_str(), retry.as_str()), ("cancelled", "no", "never"));
}

#[test]
fn a_change_that_is_not_committed_fails_its_request_and_a_row_that_is_gone_is_not_written() {
    let mut tab = Tab::ready();
    let ticket = tab.request("id-1", Some("k"));
    let Asked::Change(number, _) = tab.next() else { panic!("no change") };
    tab.call(CHANGE, |input| {
        input.integer(number);
        input.flag(false);
    });
    tab.committed(number, false);
    let asked = tab.next();
    let Asked::Failure { request, is_awaited: true, why: (code, executed, ..) } = &asked else { panic!("{asked:?}") };
    assert_eq!((request.0, code.as_str(), executed.as_str()), (ticket, "store-failed", "no"));

    let (_, _, attempt) = tab.sent("id-2", Some("k"));
    tab.number(LOST, attempt);
    tab.wake();
    let (kind, _) = tab.change("id-2", None);
    assert_eq!(kind, 0, "a row that is gone is not written");
    assert!(matches!(tab.next(), Asked::Failure { why: (code, ..), .. } if code == "outcome-lost"));
}

#[test]
fn a_refused_request_without_a_key_has_its_row_deleted_once_its_caller_is_told() {
    let mut tab = Tab::ready();
    let (ticket, row, attempt) = tab.sent("id-1", None);
    assert_eq!(tab.call(IS_DONE, |input| input.bytes(&row)), [0]);
    assert_eq!(tab.call(IS_DONE, |input| input.bytes(&row[1..])), [0], "nor what can't be read");
    // No key's object has answered, so there is nothing to acknowledge.
    tab.answered(attempt, 410, "semel-status:cancelled\n", "executed:no\nretry:never\n");
    assert_eq!(tab.change("id-1", Some(&row)), (0, Vec::new()), "it is only looked at");
    let asked = tab.next();
    assert!(matches!(asked, Asked::Failure { .. }), "{asked:?}");
    tab.number(DELIVERED, ticket);
    assert_eq!(tab.settle("id-1", Some(&row)), (2, Vec::new()));
}

#[test]
fn stored_rows_are_taken_from_owners_that_are_gone_and_all_owners_are_listed() {
    let mut first = Tab::ready();
    let (_, row, _) = first.sent("id-1", Some("k"));
    for (alive, takes) in [(Some("other\ntab"), false), (Some("other"), true), (None, true)] {
        let mut tab = Tab::ready();
        let mut stored = pending(&row);
        stored.owner = "other-tab".into();
        let row = codec::encode(&Row::Pending(stored));
        let owners = tab.call(STORED, |input| {
            rows(input, &[("id-1", &row)]);
            input.optional(alive.map(|alive| alive.replace("tab", "other-tab")).as_deref(), Writer::text);
        });
        assert_eq!(text(&owners), "other-tab");
        let expected = if takes { vec!["id-1"] } else { vec![] };
        let changed: Vec<_> = tab
            .asked
            .iter()
            .map(|asked| match asked {
                Asked::Change(_, id) => id.as_str(),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(changed, expected, "{alive:?}");
    }
}

#[test]
fn a_row_that_cannot_be_read_changes_nothing() {
    let mut tab = Tab::ready();
    let (_, row, attempt) = tab.sent("id-1", Some("k"));
    tab.number(LOST, attempt);
    tab.wake();
    let Asked::Change(number, _) = tab.next() else { panic!("no change") };
    let before = format!("{:?}", tab.host);
    for damaged in [&row[..row.len() - 1], &[], &[9, 9]] {
        let calls = [
            (CHANGE, {
                let mut input = Writer::default();
                input.integer(number);
                input.optional(Some(damaged), Writer::bytes);
                input.done()
            }),
            (STORED, {
                let mut input = Writer::default();
                rows(&mut input, &[("id-0", &row), ("id-1", damaged)]);
                input.flag(false);
                input.done()
            }),
            (OVERVIEW, {
                let mut input = Writer::default();
                rows(&mut input, &[("id-0", &row), ("id-1", damaged)]);
                input.done()
            }),
        ];
        for (what, rest) in calls {
            let input = [&[what], tab.now_ms.to_le_bytes().as_slice(), &rest].concat();
            assert_eq!(tab.host.call(&input), None, "{what}");
            assert_eq!(format!("{:?}", tab.host), before, "{what}");
        }
    }
}

#[test]
fn an_unknown_call_or_one_before_open_changes_nothing() {
    let mut tab = Tab::default();
    let number = [0; 16];
    for what in 0..=u8::MAX {
        if what != OPEN && what != IS_DONE {
            assert_eq!(tab.host.call(&[&[what], number.as_slice()].concat()), None, "{what}");
        }
    }
    assert_eq!(format!("{:?}", tab.host), format!("{:?}", Host::default()));
    tab.open();
    let before = format!("{:?}", tab.host);
    for what in IS_DONE + 1..=u8::MAX {
        assert_eq!(tab.host.call(&[&[what], number.as_slice()].concat()), None, "{what}");
    }
    for what in [CHANGE, COMMITTED] {
        assert_eq!(tab.host.call(&[&[what], number.as_slice(), &[0]].concat()), None, "no such change");
    }
    assert_eq!(format!("{:?}", tab.host), before);
}

#[test]
fn a_doubted_clock_asks_for_nothing_at_once() {
    let mut tab = Tab::ready();
    tab.sent("id-1", Some("k"));
    tab.number(DOUBT_CLOCK, 0);
    assert_eq!(tab.asked, []);
}

/// A store may run a change late, even after the outbox is closed. The change then affects only the row that its own request made.
#[test]
fn a_change_that_the_store_makes_late_affects_only_a_row_of_its_own_maker() {
    for is_own in [true, false] {
        let mut tab = Tab::ready();
        let (ticket, row, attempt) = tab.sent("id-1", Some("k"));
        tab.answered(attempt, 201, EXECUTED, "");
        assert!(matches!(tab.next(), Asked::Outcome { .. }));
        tab.number(DELIVERED, ticket);
        let Asked::Patient(number, _) = tab.next() else { panic!("it is not settled") };
        let mut entry = pending(&row);
        if !is_own {
            entry.maker = "another".into();
        }
        let row = codec::encode(&Row::Pending(entry));
        let made = tab.call(CHANGE, |input| {
            input.integer(number);
            input.optional(Some(row.as_slice()), Writer::bytes);
        });
        assert_eq!(made[0] != 0, is_own);
    }
}

#[test]
fn offline_and_online_cross_the_boundary_and_every_call_returns_the_counts() {
    let mut tab = Tab::ready();
    let (_, row, attempt) = tab.sent("id-1", Some("k"));
    assert_eq!(tab.counts, (1, 0));
    tab.number(OFFLINE, 0);
    tab.number(LOST, attempt);
    assert_eq!((tab.wakes_at, tab.asked.len()), (Some(GIVE_UP_AFTER_MS), 0), "only for the caller");
    for _ in 0..2 {
        // When the network comes back, a request that waits for its retry interval is sent at once.
        tab.number(ONLINE, 0);
        tab.change("id-1", Some(&row));
        let (attempt, ..) = tab.attempt();
        tab.number(LOST, attempt);
    }
    tab.wake();
    tab.change("id-1", Some(&row));
    let (attempt, ..) = tab.attempt();
    tab.answered(attempt, 401, "semel-status:unauthorized\n", "");
    assert!(matches!(tab.next(), Asked::Pause(..)));
    assert_eq!(tab.counts, (1, 1));
}

#[test]
fn watching_a_row_of_another_tab_shares_it_until_leave_and_an_id_has_one_ticket() {
    let mut tab = Tab::ready();
    let (_, row, attempt) = tab.sent("id-1", Some("k"));
    let mut other = pending(&row);
    other.owner = "other".into();
    let theirs = codec::encode(&Row::Pending(other));
    let ticket = integer(&tab.call(WATCH, |input| input.text("id-2")));
    let (kind, joined) = tab.change("id-2", Some(&theirs));
    assert_eq!((kind, pending(&joined).is_shared, tab.counts), (1, true, (1, 0)));
    tab.number(LEAVE, ticket);
    tab.number(LOST, attempt);
    tab.number(OFFLINE, 0);
    tab.wake();
    assert_eq!(tab.change("id-2", Some(&joined)), (0, Vec::new()));
    assert_eq!((tab.wakes_at, tab.asked.len()), (Some(GIVE_UP_AFTER_MS), 0), "it looks no more");
    // An id names one request. The same request gets the same ticket, another payload gets none (0).
    let again = integer(&tab.call(WATCH, |input| input.text("id-1")));
    assert_eq!(tab.request("id-1", Some("k")), again);
    assert_eq!(tab.request("id-1", Some("l")), 0);
    for (id, ticket) in [("id-1", again), ("id-2", 0)] {
        assert_eq!(integer(&tab.call(TICKET_OF, |input| input.text(id))), ticket);
    }
}

/// The bytes of a call. Most of its parts have the right types.
fn input() -> impl Strategy<Value = Vec<u8>> {
    let integer = prop_oneof![0..4i64, Just(-1), Just(i64::MAX), Just(i64::MIN), any::<i64>()];
    let text = prop_oneof!["[a-z\":\n]{0,8}", Just("semel-status:executed\nsemel-key:\"k\"\n".to_owned())];
    let part = prop_oneof![
        3 => integer.prop_map(|integer| integer.to_le_bytes().to_vec()),
        3 => text.prop_map(|text| [(text.len() as i64).to_le_bytes().as_slice(), text.as_bytes()].concat()),
        2 => prop_oneof![Just(vec![0]), Just(vec![1])],
        1 => vec(any::<u8>(), 0..9),
    ];
    (0..IS_DONE + 2, 0..100_000i64, vec(part, 0..9))
        .prop_map(|(what, now_ms, parts)| [vec![what], now_ms.to_le_bytes().to_vec(), parts.concat()].concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_executed_or_refused_without_a_panic_and_every_output_can_be_read(calls in vec(prop_oneof![4 => input(), 1 => vec(any::<u8>(), 0..60)], 0..12)) {
        let mut tab = Tab::ready();
        for input in calls {
            if let Some(output) = tab.host.call(&input) {
                told(&output);
            }
        }
    }
}
