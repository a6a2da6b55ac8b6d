//! Requests that no batch takes, or that a batch has refused: each leaves by itself, in its turn, and not on a socket.

use super::pipelining::world;
use super::server::{bodies, problem};
use super::*;
use crate::message::Headers;

/// A tab whose session is on a socket and taken over.
fn framed(server: &mut Server, rows: &mut Rows) -> Tab {
    let mut tab = Tab::with("a", |settings| settings.is_framed = true);
    tab.session.wake(0);
    tab.drive(rows);
    tab.arrives(server, rows);
    tab
}

#[test]
fn a_single_request_on_a_socket_goes_as_a_batch_and_alone_if_that_is_refused_before_it_pauses() {
    for (status, code) in [(400, "body-invalid"), (413, "too-large")] {
        let (mut server, mut rows) = world();
        let mut tab = framed(&mut server, &mut rows);
        tab.call(&mut rows, "x");
        tab.call(&mut rows, "y");
        let batch = tab.sent.remove(0);
        assert!(batch.request.target.ends_with("/batch"));
        tab.answer(&mut rows, &batch, problem(status, code, "no", "after-fix"));
        let made = tab.sent.remove(0);
        assert_eq!((made.request.target.as_str(), bodies(&made)), ("/a/b", vec!["x".to_owned()]));
        tab.answer(&mut rows, &made, problem(status, code, "no", "after-fix"));
        assert_eq!((tab.paused.len(), tab.paused[0].1.code.as_str(), tab.sent.len()), (1, code, 0));
        tab.session.resume(tab.now_ms);
        tab.pass(&mut rows, INTERVAL_MS);
        assert_eq!(tab.sent[0].request.target, "/a/b");
        tab.arrives(&mut server, &mut rows);
        assert!(tab.sent[0].request.target.ends_with("/batch"), "only that one");
        tab.arrives_all(&mut server, &mut rows);
        assert_eq!((tab.paused.len(), server.effects), (1, vec!["x".to_owned(), "y".to_owned()]));
    }
}

#[test]
fn a_request_whose_answer_no_batch_can_hold_is_sent_alone_and_delays_no_other_answer() {
    let (mut server, mut rows) = world();
    let mut tab = Tab::open("a", &mut server, &mut rows, &[]);
    tab.call(&mut rows, "first");
    for id in ["x", "y", "z"] {
        tab.call(&mut rows, id);
    }
    tab.arrives(&mut server, &mut rows);
    assert_eq!(bodies(&tab.sent[0]), ["x", "y", "z"]);
    // `y` ran, but its answer can't be read in a batch.
    server.serve(&tab.sent[0]);
    server.says.insert("y".into(), vec![(400, "body-invalid", "no", "after-fix")]);
    tab.arrives(&mut server, &mut rows);
    assert_eq!((tab.body("x"), tab.body("z"), tab.paused.len()), ("ran x".to_owned(), "ran z".to_owned(), 0));
    assert_eq!((tab.sent[0].request.target.as_str(), bodies(&tab.sent[0])), ("/a/b", vec!["y".to_owned()]));
    tab.arrives(&mut server, &mut rows);
    assert_eq!(
        (tab.body("y"), &server.effects[..]),
        ("ran y".to_owned(), &["first", "x", "y", "z"].map(String::from)[..])
    );
}

#[test]
fn a_request_with_a_header_that_no_batch_takes_goes_alone_in_its_turn_and_can_be_cancelled() {
    let (mut server, mut rows) = world();
    let mut tab = framed(&mut server, &mut rows);
    let headers = Headers::from_iter([("cf-access-client-id", "1")]);
    tab.call(&mut rows, "first");
    tab.call(&mut rows, "a");
    let draft =
        Draft { method: "POST".into(), target: "/a/b".into(), headers, body: b"b".to_vec(), ..Draft::default() };
    let ticket = tab.session.request(tab.now_ms, "b".into(), draft.clone());
    tab.drive(&mut rows);
    tab.call(&mut rows, "c");
    let mut sent = Vec::new();
    while let Some(made) = tab.sent.first() {
        sent.push((made.request.target.ends_with("/batch"), bodies(made).concat()));
        tab.arrives(&mut server, &mut rows);
    }
    let expected = [(true, "first"), (true, "a"), (false, "b"), (true, "c")];
    assert_eq!(sent, expected.map(|(is_batch, body)| (is_batch, body.to_owned())));
    assert!(tab.session.describe(ticket).is_none());
    let ticket = tab.session.request(tab.now_ms, "d".into(), draft);
    tab.drive(&mut rows);
    tab.lose(&mut rows);
    tab.session.give_up(tab.now_ms, ticket);
    tab.drive(&mut rows);
    tab.pass(&mut rows, INTERVAL_MS);
    tab.arrives_all(&mut server, &mut rows);
    assert_eq!((tab.failure("d"), server.effects.len()), (("cancelled", Executed::No), 4));
}

#[test]
fn a_request_too_large_for_a_frame_goes_alone_in_its_turn_on_a_socket_too() {
    let (mut server, mut rows) = world();
    let mut tab = framed(&mut server, &mut rows);
    let large = "x".repeat(super::super::FRAME_BYTES_MAX);
    for id in ["first", "small", &large, "last"] {
        tab.call(&mut rows, id);
    }
    tab.arrives(&mut server, &mut rows);
    assert_eq!(
        (bodies(&tab.sent[0]), tab.sent[0].request.target.ends_with("/batch")),
        (vec!["small".to_owned()], true)
    );
    tab.arrives(&mut server, &mut rows);
    assert_eq!((tab.sent[0].request.target.as_str(), bodies(&tab.sent[0]).len()), ("/a/b", 1));
    tab.arrives(&mut server, &mut rows);
    assert_eq!((bodies(&tab.sent[0]), tab.sent[0].request.target.ends_with("/batch")), (vec!["last".to_owned()], true));
    tab.arrives(&mut server, &mut rows);
    assert_eq!(server.effects, ["first", "small", &large, "last"]);
}
