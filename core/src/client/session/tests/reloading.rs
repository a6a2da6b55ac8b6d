//! The requests that one holder leaves, and the next one finds.

use super::super::{VAIN_MAX, WINDOW};
use super::server::bodies;
use super::*;

/// A holder that is gone: `x` ran, but its answer was not heard, `y` never arrived, and `z` had no place yet.
fn left() -> (Server, Rows) {
    let (mut server, mut rows) = Default::default();
    let mut tab = Tab::open("a", &mut server, &mut rows, &[]);
    tab.call(&mut rows, "x");
    server.serve(&tab.sent[0]);
    tab.call(&mut rows, "y");
    let z = Entry { place: None, turn: 9, ..row::decode(&rows["y"]).unwrap() };
    rows.insert(
        "z".into(),
        row::encode(&Entry { draft: Draft { body: "z".into(), ..(*z.draft).clone() }.into(), ..z }),
    );
    (server, rows)
}

#[test]
fn requests_left_behind_are_sent_under_their_old_places_and_only_unrun_ones_get_new_places() {
    let (mut server, mut rows) = left();
    let mut tab = Tab::open("b", &mut server, &mut rows, &[]);
    tab.call(&mut rows, "new");
    assert_eq!(places(&rows), [("new", None), ("x", Some((1, 1))), ("y", Some((1, 2))), ("z", None)]);
    for id in ["x", "y"] {
        assert_eq!(bodies(&tab.sent[0]), [id]);
        tab.arrives(&mut server, &mut rows);
    }
    assert_eq!(tab.body("x"), "ran x");
    assert_eq!(places(&rows), [("new", Some((2, 4))), ("y", Some((2, 2))), ("z", Some((2, 3)))]);
    tab.arrives_all(&mut server, &mut rows);
    assert_eq!((server.effects, rows.len()), (["x", "y", "z", "new"].map(String::from).to_vec(), 0));
    assert_eq!((tab.body("y"), tab.answers.len()), ("ran y".to_owned(), 1), "the calls of another page are recovered");
}

#[test]
fn requests_that_two_holders_leave_one_after_the_other_run_once() {
    let (mut server, mut rows) = left();
    let mut second = Tab::open("b", &mut server, &mut rows, &[]);
    second.arrives(&mut server, &mut rows);
    second.arrives(&mut server, &mut rows);
    server.serve(&second.sent[0]);
    let mut third = Tab::open("c", &mut server, &mut rows, &[]);
    third.arrives_all(&mut server, &mut rows);
    assert_eq!((server.effects, rows.len()), (["x", "y", "z"].map(String::from).to_vec(), 0));
    assert_eq!([third.body("y"), third.body("z")], ["ran y", "ran z"]);
}

#[test]
fn a_request_that_was_left_behind_and_arrives_late_changes_nothing() {
    let (mut server, mut rows) = (Server::default(), Rows::new());
    let mut tab = Tab::open("a", &mut server, &mut rows, &[]);
    tab.call(&mut rows, "x");
    let late = tab.sent.remove(0);
    let mut next = Tab::open("b", &mut server, &mut rows, &[]);
    next.arrives_all(&mut server, &mut rows);
    server.serve(&late);
    assert_eq!(server.effects, ["x"]);
}

#[test]
fn the_requests_of_a_living_tab_are_left_to_it() {
    let (mut server, mut rows) = left();
    let tab = Tab::open("b", &mut server, &mut rows, &["a"]);
    assert!(tab.sent.is_empty());
    assert_eq!(rows.len(), 3);
}

#[test]
fn a_request_whose_answer_a_living_tab_has_not_heard_is_not_acknowledged_while_there_is_room() {
    let (mut server, mut rows) = left();
    let mut tab = Tab::open("b", &mut server, &mut rows, &["a"]);
    tab.call(&mut rows, "new");
    assert_eq!(tab.sent[0].headers.get("semel-session"), Some("\"s\";epoch=2;seq=2"));
    tab.arrives(&mut server, &mut rows);
    for number in 2..WINDOW {
        tab.call(&mut rows, &format!("{number:02}"));
        tab.arrives_all(&mut server, &mut rows);
    }
    assert_eq!((server.effects.len(), server.ack), (WINDOW as usize, 0));
}

/// Two holders: the first has not heard the answer to its first request; the second has made as many requests as there
/// is room for.
fn without_room() -> (Server, Rows, Tab, Tab) {
    let (mut server, mut rows) = (Server::default(), Rows::new());
    let mut unheard = Tab::open("a", &mut server, &mut rows, &[]);
    unheard.call(&mut rows, "x");
    server.serve(&unheard.sent[0]);
    let mut tab = Tab::open("b", &mut server, &mut rows, &["a"]);
    for number in 1..WINDOW {
        tab.call(&mut rows, &format!("{number:02}"));
        tab.arrives_all(&mut server, &mut rows);
    }
    tab.call(&mut rows, "more");
    tab.arrives_all(&mut server, &mut rows);
    assert_eq!((server.effects.len(), server.ack), (WINDOW as usize, 0), "there is no room for more");
    (server, rows, unheard, tab)
}

#[test]
fn a_holder_without_room_waits_for_a_living_tab_to_hear_its_answer() {
    let (mut server, mut rows, mut unheard, mut tab) = without_room();
    for _ in 0..3 {
        tab.pass(&mut rows, INTERVAL_MS);
        tab.arrives_all(&mut server, &mut rows);
    }
    assert!(!tab.answers.contains_key("more"));
    unheard.arrives(&mut server, &mut rows);
    assert_eq!(unheard.body("x"), "ran x");
    tab.look(&mut rows, &["a"]);
    tab.pass(&mut rows, INTERVAL_MS);
    tab.arrives_all(&mut server, &mut rows);
    assert_eq!((tab.body("more"), server.ack, tab.paused.len()), ("ran more".to_owned(), WINDOW, 0));
}

#[test]
fn a_holder_without_room_waits_for_a_frozen_tab_only_for_a_bounded_time() {
    let (mut server, mut rows, _unheard, mut tab) = without_room();
    for _ in 0..VAIN_MAX {
        tab.look(&mut rows, &["a"]);
        tab.pass(&mut rows, INTERVAL_MS);
        tab.arrives_all(&mut server, &mut rows);
    }
    assert_eq!((tab.body("more"), server.ack, tab.paused.len()), ("ran more".to_owned(), WINDOW, 0));
}

#[test]
fn a_holder_waits_for_a_frozen_tab_only_once_however_many_answers_it_has_not_heard() {
    let (mut server, mut rows) = (Server::default(), Rows::new());
    let mut frozen = Tab::open("a", &mut server, &mut rows, &[]);
    for id in ["u", "v", "w"] {
        frozen.call(&mut rows, id);
    }
    frozen.lose(&mut rows);
    frozen.pass(&mut rows, INTERVAL_MS);
    server.serve(&frozen.sent[0]);
    assert_eq!(server.effects, ["u", "v", "w"]);
    let mut tab = Tab::open("b", &mut server, &mut rows, &["a"]);
    for number in 0..WINDOW {
        tab.call(&mut rows, &format!("{number:02}"));
        tab.arrives_all(&mut server, &mut rows);
    }
    for _ in 0..VAIN_MAX {
        tab.look(&mut rows, &["a"]);
        tab.pass(&mut rows, INTERVAL_MS);
        tab.arrives_all(&mut server, &mut rows);
    }
    tab.look(&mut rows, &["a"]);
    assert_eq!((server.effects.len(), tab.answers.len()), (WINDOW as usize + 3, WINDOW as usize));
}

#[test]
fn a_holder_does_not_wait_for_a_request_that_a_living_tab_had_not_sent_before_it_was_fenced() {
    let (mut server, mut rows) = (Server::default(), Rows::new());
    let mut frozen = Tab::open("a", &mut server, &mut rows, &[]);
    frozen.call(&mut rows, "x");
    let mut tab = Tab::open("b", &mut server, &mut rows, &["a"]);
    for number in 0..=WINDOW {
        tab.call(&mut rows, &format!("{number:02}"));
        tab.arrives_all(&mut server, &mut rows);
    }
    assert_eq!(tab.answers.len(), WINDOW as usize + 1);
    frozen.arrives_all(&mut server, &mut rows);
    assert_eq!(frozen.failure("x"), ("fenced", Executed::No));
}

#[test]
fn a_holder_without_room_sends_the_request_of_a_closed_tab_and_then_its_own() {
    let (mut server, mut rows, _gone, mut tab) = without_room();
    tab.look(&mut rows, &[]);
    for _ in 0..3 {
        tab.pass(&mut rows, INTERVAL_MS);
        tab.arrives_all(&mut server, &mut rows);
    }
    assert_eq!((tab.body("x"), tab.body("more")), ("ran x".to_owned(), "ran more".to_owned()));
    assert_eq!((server.ack, tab.paused.len(), rows.len()), (WINDOW, 0, 0));
}

#[test]
fn an_answer_that_nobody_takes_is_kept_for_the_next_holder_and_delays_nothing() {
    let (mut server, mut rows) = left();
    let mut tab = Tab::new("b");
    tab.takes_recovered = false;
    tab.session.wake(0);
    tab.drive(&mut rows);
    tab.arrives(&mut server, &mut rows);
    tab.look(&mut rows, &[]);
    tab.arrives_all(&mut server, &mut rows);
    assert_eq!((tab.recovered.len(), rows.len()), (3, 3));
    for number in 0..70 {
        tab.call(&mut rows, &format!("{number:02}"));
        tab.arrives_all(&mut server, &mut rows);
    }
    assert_eq!(server.effects.len(), 73);
    let mut next = Tab::open("c", &mut server, &mut rows, &[]);
    assert_eq!((next.body("x"), next.body("z"), rows.len()), ("ran x".into(), "ran z".into(), 0));
    assert!(next.sent.is_empty(), "it is answered from the store");
    next.pass(&mut rows, INTERVAL_MS);
}

#[test]
fn rows_of_another_session_key_or_outbox_are_left_alone() {
    let (mut server, mut rows) = left();
    for (owner, set) in [
        ("b", (|settings| settings.name = "other".into()) as fn(&mut Settings)),
        ("c", |settings| settings.key = "other".into()),
        ("d", |settings| settings.outbox = "other".into()),
    ] {
        let mut tab = Tab::with(owner, set);
        tab.session.wake(0);
        tab.drive(&mut rows);
        tab.arrives(&mut server, &mut rows);
        tab.look(&mut rows, &[]);
        assert!(tab.sent.is_empty());
    }
    assert_eq!(rows.len(), 3);
}

#[test]
fn a_session_does_nothing_if_a_row_cannot_be_read() {
    let (_, mut rows) = left();
    rows.insert("damaged".into(), vec![9]);
    let rows: Vec<_> = rows.into_iter().collect();
    let mut tab = Tab::new("b");
    assert!(tab.session.stored(0, &rows, Some(&|_| false)).is_err());
    assert_eq!(tab.session.poll(), None);
}

#[test]
fn a_holder_takes_rows_over_later_if_the_store_failed() {
    let (mut server, mut rows) = left();
    let mut tab = Tab::new("b");
    tab.session.wake(0);
    tab.drive(&mut rows);
    tab.arrives(&mut server, &mut rows);
    tab.is_broken = true;
    tab.look(&mut rows, &[]);
    assert!(tab.sent.is_empty());
    tab.is_broken = false;
    tab.pass(&mut rows, INTERVAL_MS);
    tab.arrives_all(&mut server, &mut rows);
    assert_eq!(server.effects, ["x", "y", "z"]);
}

#[test]
fn calls_after_a_take_over_run_after_the_requests_left_behind_though_the_holder_changes_again() {
    let (mut server, mut rows) = left();
    let mut tab = Tab::open("b", &mut server, &mut rows, &[]);
    tab.call(&mut rows, "new");
    let mut next = Tab::open("c", &mut server, &mut rows, &[]);
    next.arrives_all(&mut server, &mut rows);
    assert_eq!(server.effects, ["x", "y", "z", "new"]);
}

/// The next holder takes the row from one that lives, for instance because it can't tell who lives.
#[test]
fn a_call_taken_over_while_it_was_being_stored_fails_as_fenced_with_executed_unknown() {
    let (mut server, mut rows) = Default::default();
    let mut tab = Tab::open("a", &mut server, &mut rows, &[]);
    tab.slow = Some(Vec::new());
    tab.call(&mut rows, "x");
    let (_, id, change) = tab.slow.iter().flatten().next().cloned().expect("its row is asked for");
    apply(&mut rows, &id, &change);
    let mut next = Tab::open("b", &mut server, &mut rows, &[]);
    // The row has the place that it was given, and the next holder sends the request under that.
    tab.store_next(&mut rows);
    tab.slow = None;
    tab.arrives_all(&mut server, &mut rows);
    assert_eq!(tab.failure("x"), ("fenced", Executed::Unknown));
    next.arrives_all(&mut server, &mut rows);
    assert_eq!((server.effects, rows.len()), (vec!["x".to_owned()], 0));
}
