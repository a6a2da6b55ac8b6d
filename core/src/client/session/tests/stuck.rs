//! Requests that would hold up all later ones, how the application is told of them, and how it goes on.

use super::server::{bodies, problem};
use super::*;
use crate::client::session::{VAIN_MAX, WINDOW};

/// Refusals for the next attempts of a request.
fn refused(times: usize, status: u16, code: &'static str) -> Vec<(u16, &'static str, &'static str, &'static str)> {
    vec![(status, code, "no", "same-id"); times]
}

/// Lets up to `times` attempts be made.
fn tries(tab: &mut Tab, server: &mut Server, rows: &mut Rows, times: u32) {
    for _ in 0..times {
        if !tab.sent.is_empty() {
            tab.arrives(server, rows);
        }
        tab.pass(rows, INTERVAL_MS);
    }
}

fn told(tab: &Tab) -> Vec<(&str, Executed)> {
    tab.paused.iter().map(|(_, failure)| (failure.code.as_str(), failure.executed)).collect()
}

fn gives_up(tab: &mut Tab, rows: &mut Rows, ticket: Ticket) {
    tab.session.give_up(tab.now_ms, ticket);
    tab.drive(rows);
}

#[test]
fn a_request_that_the_handler_rolls_back_each_time_pauses_once_and_is_still_sent() {
    let (mut server, mut rows) = (Server::default(), Rows::new());
    let mut tab = Tab::open("a", &mut server, &mut rows, &[]);
    server.says.insert("x".into(), refused(VAIN_MAX as usize + 5, 500, "rolled-back"));
    tab.call(&mut rows, "x");
    tab.call(&mut rows, "y");
    tries(&mut tab, &mut server, &mut rows, VAIN_MAX - 1);
    assert_eq!((told(&tab), tab.session.counts()), (vec![], (2, 0)));
    tries(&mut tab, &mut server, &mut rows, 1);
    assert_eq!((told(&tab), tab.session.counts()), (vec![("rolled-back", Executed::Unknown)], (2, 1)));
    tries(&mut tab, &mut server, &mut rows, 6);
    tab.arrives_all(&mut server, &mut rows);
    assert_eq!(
        (told(&tab).len(), tab.session.counts(), &server.effects[..]),
        (1, (0, 0), &["x".into(), "y".into()][..])
    );
}

#[test]
fn refusals_of_a_request_that_may_have_run_do_not_pause() {
    let (mut server, mut rows) = (Server::default(), Rows::new());
    let mut tab = Tab::open("a", &mut server, &mut rows, &[]);
    let unavailable = (503, "unavailable", "unknown", "same-id");
    server.says.insert("x".into(), vec![unavailable; 19]);
    tab.call(&mut rows, "x");
    tries(&mut tab, &mut server, &mut rows, 19);
    assert_eq!(told(&tab), []);
    for _ in 0..VAIN_MAX + 1 {
        tab.lose(&mut rows);
        tab.pass(&mut rows, INTERVAL_MS);
    }
    assert_eq!(told(&tab), []);
    tab.arrives_all(&mut server, &mut rows);
    assert_eq!(tab.body("x"), "ran x");
}

#[test]
fn a_frame_that_is_refused_as_a_whole_each_time_pauses_and_is_still_sent() {
    let (mut server, mut rows) = (Server::default(), Rows::new());
    let mut tab = Tab::with("a", |settings| settings.is_framed = true);
    tab.session.wake(0);
    tab.drive(&mut rows);
    tab.arrives(&mut server, &mut rows);
    tab.call(&mut rows, "x");
    for _ in 0..VAIN_MAX {
        assert!(told(&tab).is_empty());
        let made = tab.sent.remove(0);
        tab.answer(&mut rows, &made, problem(502, "upstream-unreachable", "no", "same-id"));
        tab.pass(&mut rows, INTERVAL_MS);
    }
    assert_eq!(told(&tab), [("upstream-unreachable", Executed::Unknown)]);
    tab.arrives_all(&mut server, &mut rows);
    assert_eq!(tab.body("x"), "ran x");
}

#[test]
fn a_taken_over_request_that_is_refused_each_time_pauses_and_can_be_given_up() {
    let (mut server, mut rows) = (Server::default(), Rows::new());
    let mut gone = Tab::open("a", &mut server, &mut rows, &[]);
    gone.call(&mut rows, "x");
    server.says.insert("x".into(), refused(50, 500, "rolled-back"));
    let mut tab = Tab::open("b", &mut server, &mut rows, &[]);
    tab.call(&mut rows, "y");
    tries(&mut tab, &mut server, &mut rows, VAIN_MAX + 1);
    assert_eq!(told(&tab), [("rolled-back", Executed::Unknown)]);
    let ticket = tab.paused[0].0;
    gives_up(&mut tab, &mut rows, ticket);
    tries(&mut tab, &mut server, &mut rows, 3);
    assert_eq!((tab.failure("x"), tab.body("y")), (("cancelled", Executed::No), "ran y".to_owned()));
    assert_eq!((server.effects, rows.len()), (vec!["y".to_owned()], 0));
}

#[test]
fn a_sequence_gap_after_a_restore_pauses_and_giving_up_ends_the_session() {
    let (mut server, mut rows) = (Server::default(), Rows::new());
    let mut tab = Tab::open("a", &mut server, &mut rows, &[]);
    tab.call(&mut rows, "x");
    tab.arrives_all(&mut server, &mut rows);
    server.restore_to(0);
    let ticket = tab.call(&mut rows, "y");
    tab.call(&mut rows, "unsent");
    tries(&mut tab, &mut server, &mut rows, VAIN_MAX);
    assert_eq!(told(&tab), [("sequence-gap", Executed::Unknown)]);
    // The place can't be closed either. So nothing more can run in this epoch.
    gives_up(&mut tab, &mut rows, ticket);
    tries(&mut tab, &mut server, &mut rows, VAIN_MAX + 1);
    assert_eq!(tab.failure("y"), ("sequence-gap", Executed::Unknown));
    assert_eq!(tab.failure("unsent"), ("sequence-gap", Executed::No));
    assert_eq!((rows.len(), tab.session.wakes_at()), (0, None));
    let mut next = Tab::open("b", &mut server, &mut rows, &[]);
    next.call(&mut rows, "z");
    next.arrives_all(&mut server, &mut rows);
    assert_eq!(next.body("z"), "ran z");
}

#[test]
fn a_cancellation_that_is_refused_for_good_ends_the_session_and_leaves_its_request_unknown() {
    let (mut server, mut rows) = (Server::default(), Rows::new());
    let mut tab = Tab::open("a", &mut server, &mut rows, &[]);
    let ticket = tab.call(&mut rows, "x");
    tab.lose(&mut rows);
    gives_up(&mut tab, &mut rows, ticket);
    tab.pass(&mut rows, INTERVAL_MS);
    tab.call(&mut rows, "unsent");
    let cancellation = tab.sent.remove(0);
    assert_eq!(cancellation.headers.get("idempotency-key"), Some("\"cancel-x;epoch=1;seq=1\""));
    tab.answer(&mut rows, &cancellation, problem(400, "body-invalid", "no", "after-fix"));
    assert_eq!(
        (tab.failure("x"), tab.failure("unsent")),
        (("body-invalid", Executed::Unknown), ("body-invalid", Executed::No))
    );
    assert_eq!((told(&tab).len(), rows.len(), tab.session.wakes_at()), (0, 0, None));
}

/// After a restore of the key, or in a copy of a running process, another request may have the place.
#[test]
fn a_request_whose_place_another_request_has_can_be_given_up_and_ends_the_session() {
    let (mut server, mut rows) = (Server::default(), Rows::new());
    let mut tab = Tab::open("a", &mut server, &mut rows, &[]);
    let ticket = tab.call(&mut rows, "x");
    let mut copy = tab.sent[0].clone();
    copy.request = Draft { body: "other".into(), ..(*copy.request).clone() }.into();
    server.serve(&copy);
    tab.call(&mut rows, "unsent");
    tab.arrives(&mut server, &mut rows);
    assert_eq!(told(&tab), [("fingerprint-mismatch", Executed::Unknown)]);
    // Its place can't be closed, since something ran there, and what ran is not this request.
    gives_up(&mut tab, &mut rows, ticket);
    tries(&mut tab, &mut server, &mut rows, 3);
    assert_eq!(tab.failure("x"), ("fingerprint-mismatch", Executed::Unknown));
    assert_eq!(tab.failure("unsent"), ("fingerprint-mismatch", Executed::No));
    assert_eq!((told(&tab).len(), rows.len(), tab.session.wakes_at()), (1, 0, None));
    let mut next = Tab::open("b", &mut server, &mut rows, &[]);
    next.call(&mut rows, "y");
    next.arrives_all(&mut server, &mut rows);
    assert_eq!((next.body("y"), server.effects), ("ran y".into(), vec!["other".to_owned(), "y".into()]));
}

#[test]
fn a_request_that_ran_and_was_given_up_waits_for_credentials_to_get_its_outcome() {
    let (mut server, mut rows) = (Server::default(), Rows::new());
    let mut tab = Tab::open("a", &mut server, &mut rows, &[]);
    let ticket = tab.call(&mut rows, "x");
    let lost = tab.lose(&mut rows);
    server.serve(&lost);
    gives_up(&mut tab, &mut rows, ticket);
    server.says.insert("x".into(), vec![(401, "unauthorized", "no", "after-fix")]);
    tries(&mut tab, &mut server, &mut rows, 3);
    assert_eq!(told(&tab), [("unauthorized", Executed::Unknown)]);
    tab.session.resume(tab.now_ms);
    tab.drive(&mut rows);
    tab.arrives_all(&mut server, &mut rows);
    assert_eq!(tab.body("x"), "ran x");
}

#[test]
fn a_cancellation_that_is_unauthorized_pauses_and_is_sent_again_after_resume() {
    let (mut server, mut rows) = (Server::default(), Rows::new());
    let mut tab = Tab::open("a", &mut server, &mut rows, &[]);
    let ticket = tab.call(&mut rows, "x");
    tab.lose(&mut rows);
    gives_up(&mut tab, &mut rows, ticket);
    tab.pass(&mut rows, INTERVAL_MS);
    let cancellation = tab.sent.remove(0);
    tab.answer(&mut rows, &cancellation, problem(401, "unauthorized", "no", "after-fix"));
    assert_eq!(told(&tab), [("unauthorized", Executed::Unknown)]);
    tab.session.resume(tab.now_ms);
    tab.pass(&mut rows, INTERVAL_MS);
    tab.arrives_all(&mut server, &mut rows);
    assert_eq!(tab.failure("x"), ("cancelled", Executed::No));
}

#[test]
fn new_holders_acknowledge_only_what_a_place_needs_and_do_not_pause() {
    let (mut server, mut rows) = (Server::default(), Rows::new());
    for holder in 0..80 {
        let id = format!("{holder:02}");
        let mut tab = Tab::open(&id, &mut server, &mut rows, &[]);
        tab.call(&mut rows, &id);
        tries(&mut tab, &mut server, &mut rows, 3);
        assert_eq!(tab.body(&id), format!("ran {id}"));
        assert!(told(&tab).is_empty());
    }
    // Only as much was acknowledged as one place needed. The holders after that again acknowledged nothing.
    assert_eq!((server.effects.len(), server.ack), (80, WINDOW));
}

#[test]
fn a_cancellation_past_the_window_sends_the_acknowledgement_along() {
    let (mut server, mut rows) = (Server::default(), Rows::new());
    let mut tab = Tab::open("a", &mut server, &mut rows, &[]);
    let tickets: Vec<_> = (0..70).map(|number| tab.call(&mut rows, &format!("{number:02}"))).collect();
    tab.lose(&mut rows);
    for ticket in tickets.iter().take(69) {
        gives_up(&mut tab, &mut rows, *ticket);
    }
    tries(&mut tab, &mut server, &mut rows, 5);
    assert_eq!((&server.effects[..], rows.len(), told(&tab).len()), (&["69".to_owned()][..], 0, 0));
    // Each frame has one cancellation, with an acknowledgement in front of it.
    for _ in 0..WINDOW {
        let ticket = tab.call(&mut rows, "x");
        tab.lose(&mut rows);
        gives_up(&mut tab, &mut rows, ticket);
        tries(&mut tab, &mut server, &mut rows, 3);
        assert_eq!(tab.answers.remove("x").is_some(), rows.is_empty());
    }
    assert_eq!((server.effects.len(), server.ack), (1, 2 * WINDOW));
}

#[test]
fn a_new_holder_acknowledges_nothing_of_those_before_it_while_there_is_room() {
    let (mut server, mut rows) = (Server::default(), Rows::new());
    let mut elsewhere = Tab::open("a", &mut server, &mut Rows::new(), &[]);
    elsewhere.call(&mut Rows::new(), "x");
    server.serve(&elsewhere.sent[0]);
    let mut tab = Tab::open("b", &mut server, &mut rows, &[]);
    for number in 1..WINDOW {
        tab.call(&mut rows, &format!("{number:02}"));
        tab.arrives_all(&mut server, &mut rows);
    }
    assert_eq!(server.ack, 0);
    elsewhere.arrives(&mut server, &mut Rows::new());
    assert_eq!(elsewhere.body("x"), "ran x");
    tab.call(&mut rows, "more");
    tab.arrives_all(&mut server, &mut rows);
    assert_eq!((tab.body("more"), server.ack), ("ran more".to_owned(), WINDOW));
}

#[test]
fn a_frame_that_times_out_is_halved_until_it_gets_through() {
    let (mut server, mut rows) = (Server::default(), Rows::new());
    let mut tab = Tab::open("a", &mut server, &mut rows, &[]);
    for number in 0..9 {
        tab.call(&mut rows, &number.to_string());
    }
    tab.arrives(&mut server, &mut rows);
    let mut counts = Vec::new();
    while let Some(made) = tab.sent.first() {
        let count = bodies(made).len();
        counts.push(count);
        // Frames of more than two requests do not come through.
        if count > 2 {
            tab.pass(&mut rows, TIMEOUT_MS);
            tab.pass(&mut rows, INTERVAL_MS);
        } else {
            tab.arrives(&mut server, &mut rows);
        }
    }
    assert_eq!(counts, [8, 4, 2, 4, 2, 4, 2, 2]);
    assert_eq!(server.effects.len(), 9);
}

/// Something between may refuse what is larger than it likes, by an answer that is not the key's.
#[test]
fn a_frame_that_is_lost_is_halved_until_it_gets_through() {
    for ahead in [0, 8] {
        let (mut server, mut rows) = (Server::default(), Rows::new());
        let mut tab = Tab::with("a", |settings| (settings.is_framed, settings.ahead) = (ahead > 0, ahead));
        tab.session.wake(0);
        tab.drive(&mut rows);
        tab.arrives(&mut server, &mut rows);
        for number in 0..9 {
            tab.call(&mut rows, &number.to_string());
        }
        tab.arrives(&mut server, &mut rows);
        let mut counts = Vec::new();
        while let Some(made) = tab.sent.first() {
            let count = bodies(made).len();
            counts.push(count);
            if count > 2 {
                tab.lose(&mut rows);
                tab.pass(&mut rows, INTERVAL_MS);
            } else {
                tab.arrives(&mut server, &mut rows);
            }
            assert!(counts.len() < 20, "it goes on and on: {counts:?}");
        }
        assert_eq!((counts, server.effects.len()), (vec![8, 4, 2, 4, 2, 4, 2, 2], 9), "{ahead}");
    }
}

#[test]
fn the_timeout_of_a_request_doubles_with_each_attempt_up_to_100_s_and_the_next_starts_anew() {
    let (mut server, mut rows) = (Server::default(), Rows::new());
    let mut tab = Tab::open("a", &mut server, &mut rows, &[]);
    tab.call(&mut rows, "x");
    for seconds in [10, 20, 40, 80, 100, 100] {
        assert_eq!(tab.sent.len(), 1);
        tab.pass(&mut rows, seconds * 1_000 - 1);
        assert_eq!(tab.sent.len(), 1, "{seconds} s");
        tab.pass(&mut rows, 1);
        assert_eq!(tab.sent.len(), 0, "{seconds} s");
        tab.pass(&mut rows, INTERVAL_MS);
    }
    tab.arrives(&mut server, &mut rows);
    tab.call(&mut rows, "y");
    tab.pass(&mut rows, TIMEOUT_MS);
    assert!(tab.sent.is_empty(), "the next one has no longer than any");
}

#[test]
fn refusals_are_counted_for_each_request_and_anew_after_resume() {
    let (mut server, mut rows) = (Server::default(), Rows::new());
    let mut tab = Tab::open("a", &mut server, &mut rows, &[]);
    for id in ["x", "y"] {
        server.says.insert(id.into(), refused(VAIN_MAX as usize - 1, 500, "rolled-back"));
        tab.call(&mut rows, id);
        tries(&mut tab, &mut server, &mut rows, VAIN_MAX);
        assert_eq!((tab.body(id), told(&tab)), (format!("ran {id}"), vec![]));
    }
    server.says.insert("z".into(), refused(2 * VAIN_MAX as usize - 1, 500, "rolled-back"));
    tab.call(&mut rows, "z");
    tries(&mut tab, &mut server, &mut rows, VAIN_MAX);
    assert_eq!(told(&tab).len(), 1);
    tab.session.resume(tab.now_ms);
    tries(&mut tab, &mut server, &mut rows, VAIN_MAX);
    assert_eq!((tab.body("z"), told(&tab).len()), ("ran z".to_owned(), 1));
}

#[test]
fn a_cancellation_with_a_useless_answer_is_sent_again_only_at_the_interval() {
    for (is_outcome, pauses) in [(true, 0), (false, 1)] {
        let (mut server, mut rows) = (Server::default(), Rows::new());
        let mut tab = Tab::with("a", |settings| settings.is_framed = !is_outcome);
        tab.session.wake(0);
        tab.drive(&mut rows);
        tab.arrives(&mut server, &mut rows);
        let ticket = tab.call(&mut rows, "x");
        tab.lose(&mut rows);
        gives_up(&mut tab, &mut rows, ticket);
        tab.pass(&mut rows, INTERVAL_MS);
        let cancellation = tab.sent.remove(0);
        let answer = if is_outcome { server::outcome("", &[]) } else { problem(413, "too-large", "no", "after-fix") };
        tab.answer(&mut rows, &cancellation, answer);
        assert_eq!((tab.sent.len(), told(&tab).len()), (0, pauses));
        tab.session.resume(tab.now_ms);
        tab.drive(&mut rows);
        assert!(tab.sent.is_empty(), "whoever goes on at once does so at the interval");
        tab.pass(&mut rows, INTERVAL_MS);
        tab.arrives_all(&mut server, &mut rows);
        assert_eq!(tab.failure("x"), ("cancelled", Executed::No));
    }
}
