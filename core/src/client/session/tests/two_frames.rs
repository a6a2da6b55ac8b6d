//! One holder whose transport keeps the order of frames, and the frame that it sends beside the one under way.

use super::pipelining::world;
use super::server::bodies;
use super::*;

/// A tab whose transport keeps the order of frames, with `ids` called: the first is under way, and others may leave
/// beside it.
fn open_with_two_frames(server: &mut Server, rows: &mut Rows, ids: &[&str]) -> Tab {
    let mut tab = Tab::with("a", |settings| (settings.is_framed, settings.ahead) = (true, 2));
    tab.session.wake(0);
    tab.drive(rows);
    tab.arrives(server, rows);
    for id in ids {
        tab.call(rows, id);
    }
    tab
}

fn sent(tab: &Tab) -> Vec<Vec<String>> {
    tab.sent.iter().map(bodies).collect()
}

#[test]
fn a_full_frame_leaves_beside_the_one_under_way_and_no_third_does() {
    let (mut server, mut rows) = world();
    let mut tab = open_with_two_frames(&mut server, &mut rows, &["x", "y"]);
    assert_eq!(sent(&tab), [["x"]], "one alone waits");
    for id in ["z", "v", "w"] {
        tab.call(&mut rows, id);
    }
    assert_eq!(sent(&tab), [vec!["x"], vec!["y", "z"]]);
    tab.arrives(&mut server, &mut rows);
    assert_eq!(sent(&tab), [["y", "z"], ["v", "w"]]);
    tab.arrives_all(&mut server, &mut rows);
    assert_eq!((server.effects.join(""), rows.len()), ("xyzvw".to_owned(), 0));
}

#[test]
fn a_transport_that_does_not_keep_order_has_one_frame_under_way() {
    let (mut server, mut rows) = world();
    let mut tab = Tab::open("a", &mut server, &mut rows, &[]);
    for number in 0..70 {
        tab.call(&mut rows, &format!("{number:02}"));
    }
    assert_eq!(tab.sent.len(), 1);
}

#[test]
fn a_frame_that_overtakes_the_one_before_it_is_sent_again_after_that_without_a_pause() {
    let (mut server, mut rows) = world();
    let mut tab = open_with_two_frames(&mut server, &mut rows, &["x", "y", "z", "v", "w"]);
    for number in 0..2 * crate::client::session::VAIN_MAX {
        let second = tab.sent.remove(1);
        let answer = server.serve(&second);
        tab.answer(&mut rows, &second, answer);
        assert_eq!(sent(&tab), [["x"]], "nothing leaves beside it any more");
        tab.session.is_alone = false;
        tab.call(&mut rows, &format!("more {number}"));
    }
    assert!(server.effects.is_empty());
    tab.arrives(&mut server, &mut rows);
    assert_eq!(bodies(&tab.sent[0]), ["y", "z"]);
    tab.arrives_all(&mut server, &mut rows);
    assert_eq!((server.effects[..5].join(""), tab.paused.len()), ("xyzvw".to_owned(), 0));
}

#[test]
fn a_request_that_fails_in_a_frame_is_sent_again_before_those_of_the_frame_behind_it() {
    let (mut server, mut rows) = world();
    server.says.insert("x".into(), vec![(500, "rolled-back", "no", "same-id")]);
    let mut tab = open_with_two_frames(&mut server, &mut rows, &["x", "y", "z", "v"]);
    tab.arrives(&mut server, &mut rows);
    tab.call(&mut rows, "w");
    assert_eq!(sent(&tab), [["y", "z"]]);
    tab.arrives(&mut server, &mut rows);
    assert!(tab.sent.is_empty(), "not before the interval");
    tab.pass(&mut rows, INTERVAL_MS);
    assert_eq!(bodies(&tab.sent[0]), ["x"], "what failed is sent alone first");
    tab.arrives_all(&mut server, &mut rows);
    assert_eq!(server.effects.join(""), "xyzvw");
}

#[test]
fn a_frame_that_is_lost_is_sent_again_once_the_one_behind_it_is_answered() {
    let (mut server, mut rows) = world();
    let mut tab = open_with_two_frames(&mut server, &mut rows, &["x", "y", "z", "v", "w"]);
    let lost = tab.lose(&mut rows);
    server.serve(&lost);
    tab.pass(&mut rows, 2 * INTERVAL_MS);
    assert_eq!(sent(&tab), [["y", "z"]], "nothing overtakes it");
    tab.arrives(&mut server, &mut rows);
    assert_eq!(bodies(&tab.sent[0]), ["x", "v"]);
    tab.arrives_all(&mut server, &mut rows);
    assert_eq!((server.effects.join(""), tab.body("x")), ("xyzvw".to_owned(), "ran x".to_owned()));
}

#[test]
fn the_timeout_of_a_frame_starts_when_the_frame_before_it_is_answered() {
    let (mut server, mut rows) = world();
    let mut tab = open_with_two_frames(&mut server, &mut rows, &["x", "y", "z"]);
    tab.pass(&mut rows, TIMEOUT_MS - 1);
    tab.arrives(&mut server, &mut rows);
    tab.pass(&mut rows, TIMEOUT_MS - 1);
    assert_eq!(sent(&tab), [["y", "z"]]);
    tab.pass(&mut rows, 1);
    assert!(tab.sent.is_empty(), "it is given up");
}

#[test]
fn a_request_that_is_given_up_while_under_way_is_not_sent_in_the_second_frame() {
    let (mut server, mut rows) = world();
    let mut tab = open_with_two_frames(&mut server, &mut rows, &["x", "y", "z"]);
    let ticket = *tab.ids.iter().find(|(_, id)| *id == "x").expect("it is in hand").0;
    tab.session.give_up(tab.now_ms, ticket);
    tab.drive(&mut rows);
    for id in ["v", "w"] {
        tab.call(&mut rows, id);
    }
    assert_eq!(sent(&tab), [vec!["x"], vec!["y", "z"]]);
    tab.lose(&mut rows);
    tab.arrives(&mut server, &mut rows);
    tab.pass(&mut rows, INTERVAL_MS);
    tab.arrives_all(&mut server, &mut rows);
    assert_eq!((server.effects.join(""), tab.failure("x")), ("yzvw".to_owned(), ("cancelled", Executed::No)));
}
