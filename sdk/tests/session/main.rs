//! Tests the boundary of the wasm module for a session: a request passes through it, and an input that can't be read changes nothing.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

use proptest::collection::vec;
use proptest::prelude::*;
use semel_core::client::bytes::{Reader, Writer};
use semel_core::client::session::{Place, row};
use semel_sdk::session::Host;

const EXECUTED: &str = "semel-status:executed\n";
const TAKE_OVER: &str = "epoch:4\nlastseq:17\n";

/// A call that has no effect.
const DOUBT_CLOCK: u8 = 14;

fn told(what: u8, write: impl FnOnce(&mut Writer)) -> Vec<u8> {
    let mut input = Writer::default();
    input.byte(what);
    input.integer(0);
    write(&mut input);
    input.done()
}

/// The call that opens the session, with a stored row.
fn open_with(row: Option<&[u8]>) -> Vec<u8> {
    open_as(row, false)
}

/// The same call. `is_kept`: no store has the rows, the module keeps them in memory.
fn open_as(row: Option<&[u8]>, is_kept: bool) -> Vec<u8> {
    told(0, |input| {
        for text in ["semel sessions https://test alice", "tab", "alice"] {
            input.text(text);
        }
        for number in [50, 10_000, 1_000] {
            input.integer(number);
        }
        input.flag(false);
        for text in ["k", "s", "take-over"] {
            input.text(text);
        }
        input.optional(Some(3), Writer::integer);
        input.optional(Some(60_000), Writer::integer);
        input.flag(is_kept);
        match row {
            None => input.integer(0),
            Some(row) => {
                input.integer(1);
                input.text("id-0");
                input.bytes(row);
            }
        }
    })
}

fn open() -> Vec<u8> {
    open_with(None)
}

fn number(what: u8, number: i64) -> Vec<u8> {
    told(what, |input| input.integer(number))
}

fn request(id: &str) -> Vec<u8> {
    together(&[], &[id])
}

/// A call with the tickets of the answers that callers have taken, and with new requests.
fn together(heard: &[i64], ids: &[&str]) -> Vec<u8> {
    told(2, |input| {
        input.integer(heard.len() as i64);
        for ticket in heard {
            input.integer(*ticket);
        }
        input.integer(ids.len() as i64);
        for id in ids {
            for text in [id, "POST", "/deposit"] {
                input.text(text);
            }
            input.flag(false);
            input.text("x-note:a\n");
            input.bytes(&[0, 255]);
        }
    })
}

fn answered(attempt: i64, members: &str) -> Vec<u8> {
    told(3, |input| {
        input.integer(attempt);
        input.integer(200);
        input.text(EXECUTED);
        input.bytes(b"{}");
        input.text(members);
    })
}

fn change(number: i64, row: Option<&[u8]>) -> Vec<u8> {
    told(4, |input| {
        input.integer(number);
        input.optional(row, Writer::bytes);
    })
}

fn committed(number: i64) -> Vec<u8> {
    told(5, |input| {
        input.integer(number);
        input.flag(true);
    })
}

/// The result and the actions of a call.
fn output(host: &mut Host, input: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let output = host.call(input).expect("it can be read");
    let mut output = Reader::new(&output);
    let _ = (output.optional(Reader::integer), output.integer(), output.integer());
    (output.bytes().to_vec(), output.bytes().to_vec())
}

/// The attempt, target and header lines of a transmission.
fn sent(actions: &[u8]) -> (i64, String, String) {
    let mut actions = Reader::new(actions);
    assert_eq!(actions.byte(), 2, "something is to be sent");
    let attempt = actions.integer();
    let (_, target, lines) = (actions.text(), actions.text(), actions.text());
    (attempt, target, lines)
}

/// A host that has taken over its session and has no requests.
fn ready() -> Host {
    ready_as(false)
}

fn ready_as(is_kept: bool) -> Host {
    let mut host = Host::new();
    output(&mut host, &open_as(None, is_kept));
    let (_, actions) = output(&mut host, &number(13, 0));
    let (attempt, target, _) = sent(&actions);
    assert_eq!(target, "/semel/v1/keys/k/sessions");
    output(&mut host, &answered(attempt, TAKE_OVER));
    host
}

#[test]
fn a_request_of_a_session_crosses_the_boundary_from_its_row_to_its_outcome() {
    let mut host = ready();
    let (ticket, actions) = output(&mut host, &request("id-1"));
    let ticket = Reader::new(&ticket).integer();
    let mut asked = Reader::new(&actions);
    assert_eq!(asked.byte(), 0);
    let (change_number, id) = (asked.integer(), asked.text());
    assert_eq!(id, "id-1");
    let (made, _) = output(&mut host, &change(change_number, None));
    let mut made = Reader::new(&made);
    assert_eq!(made.byte(), 1);
    let stored = made.bytes().to_vec();
    let entry = row::decode(&stored).unwrap();
    assert_eq!((entry.place, entry.draft.body.as_slice()), (Some(Place { epoch: 4, seq: 18 }), [0, 255].as_slice()));
    let (_, actions) = output(&mut host, &committed(change_number));
    let (attempt, target, lines) = sent(&actions);
    assert_eq!(target, "/deposit");
    for line in ["x-note:a", "semel-session:\"s\";epoch=4;seq=18", "semel-key:\"k\"", "semel-principal:\"alice\""] {
        assert!(lines.lines().any(|each| each == line), "{line} in {lines}");
    }
    let (_, actions) = output(&mut host, &answered(attempt, ""));
    let mut actions = Reader::new(&actions);
    assert_eq!((actions.byte(), actions.integer(), actions.text().as_str()), (4, ticket, "id-1"));
    let (_, actions) = output(&mut host, &together(&[ticket], &[]));
    let mut asked = Reader::new(&actions);
    assert_eq!(asked.byte(), 0);
    let (made, _) = output(&mut host, &change(asked.integer(), Some(&stored)));
    assert_eq!(made, [2], "it is deleted");
}

#[test]
fn a_call_that_is_cut_short_or_unknown_is_refused_and_changes_nothing() {
    let rows = told(1, |input| {
        input.integer(0);
        input.optional(Some("tab"), Writer::text);
    });
    for call in [request("id-1"), together(&[7], &["id-1", "id-2"]), answered(1, ""), rows, number(10, 1)] {
        let mut host = ready();
        for length in 0..call.len() {
            assert_eq!(host.call(&call[..length]), None, "{length} of {call:?}");
        }
        assert_eq!(host.call(&call), ready().call(&call));
    }
    for length in 0..open().len() {
        assert_eq!(Host::new().call(&open()[..length]), None);
    }
    assert_eq!(ready().call(&change(77, None)), None, "a change that nobody asked for");
    assert_eq!(ready().call(&number(99, 0)), None, "a call that there is not");
}

proptest! {
    #[test]
    fn after_any_bytes_the_session_module_still_answers(calls in vec(vec(any::<u8>(), 0..80), 0..20)) {
        let mut host = ready();
        for call in calls {
            let _ = host.call(&call);
        }
        assert!(host.call(&number(DOUBT_CLOCK, 0)).is_some());
    }
}

#[test]
fn a_session_does_not_open_if_a_stored_row_cannot_be_read() {
    let mut host = Host::new();
    assert_eq!(host.call(&open_with(Some(&[9]))), None);
    assert_eq!(host.call(&number(13, 0)), None, "nothing is sent");
    let readable = row::encode(&row::Entry::default());
    assert!(host.call(&open_with(Some(&readable))).is_some());
}

#[test]
fn a_stored_request_without_an_answer_is_listed() {
    let mut host = ready();
    let (_, actions) = output(&mut host, &request("id-1"));
    let mut asked = Reader::new(&actions);
    let (_, change_number) = (asked.byte(), asked.integer());
    let (made, _) = output(&mut host, &change(change_number, None));
    let mut made = Reader::new(&made);
    made.byte();
    let (lines, _) = output(
        &mut host,
        &told(6, |input| {
            input.integer(1);
            input.text("id-1");
            input.bytes(made.bytes());
        }),
    );
    assert_eq!(Reader::new(&lines).text(), "id-1\tPOST\t/deposit\tsending\t0");
}

#[test]
fn rows_without_a_store_are_changed_inside_the_module_and_listed() {
    let mut host = ready_as(true);
    let (_, actions) = output(&mut host, &request("id-1"));
    let (attempt, target, _) = sent(&actions);
    assert_eq!(target, "/deposit");
    let list = told(6, |input| input.integer(0));
    assert_eq!(Reader::new(&output(&mut host, &list).0).text(), "id-1\tPOST\t/deposit\tsending\t1");
    let (_, actions) = output(&mut host, &answered(attempt, ""));
    assert_eq!(Reader::new(&actions).byte(), 4);
    // No call has reported that the caller has its answer: the host hands it over before anything else.
    assert_eq!(Reader::new(&output(&mut host, &list).0).text(), "");
}

#[test]
fn requests_of_one_call_leave_in_one_batch_and_have_consecutive_tickets() {
    let mut host = ready_as(true);
    let (last, actions) = output(&mut host, &together(&[], &["id-1", "id-2", "id-3"]));
    let (attempt, target, _) = sent(&actions);
    assert_eq!(target, "/semel/v1/keys/k/batch");
    assert_eq!((Reader::new(&last).integer(), attempt), (3, 2));
}

#[test]
fn nothing_is_sent_offline_and_the_take_over_is_sent_when_online() {
    let mut host = Host::new();
    output(&mut host, &open());
    output(&mut host, &number(16, 0));
    assert!(output(&mut host, &number(13, 0)).1.is_empty());
    sent(&output(&mut host, &number(17, 0)).1);
}
