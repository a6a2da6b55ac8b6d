//! Requests that the application gives up, and callers that need not wait.

use super::*;

fn opened() -> (Server, Rows, Tab) {
    let (mut server, mut rows) = Default::default();
    let tab = Tab::open("a", &mut server, &mut rows, &[]);
    (server, rows, tab)
}

fn gives_up(tab: &mut Tab, rows: &mut Rows, ticket: Ticket) {
    tab.session.give_up(tab.now_ms, ticket);
    tab.drive(rows);
}

#[test]
fn a_request_that_was_given_up_is_cancelled_by_the_next_holder() {
    let (mut server, mut rows, mut tab) = opened();
    let ticket = tab.call(&mut rows, "x");
    gives_up(&mut tab, &mut rows, ticket);
    let mut next = Tab::open("b", &mut server, &mut rows, &[]);
    next.arrives_all(&mut server, &mut rows);
    assert_eq!((next.failure("x"), rows.len()), (("cancelled", Executed::No), 0));
    assert!(server.effects.is_empty());
}

#[test]
fn a_request_that_ran_before_it_was_given_up_is_recovered_by_the_next_holder_with_its_outcome() {
    let (mut server, mut rows, mut tab) = opened();
    let ticket = tab.call(&mut rows, "x");
    server.serve(&tab.sent[0]);
    gives_up(&mut tab, &mut rows, ticket);
    let mut next = Tab::open("b", &mut server, &mut rows, &[]);
    next.arrives_all(&mut server, &mut rows);
    assert_eq!((next.body("x"), rows.len(), server.effects.len()), ("ran x".to_owned(), 0, 1));
}

#[test]
fn a_session_does_not_pause_at_a_refusal_of_a_request_that_was_given_up_meanwhile() {
    let (mut server, mut rows, mut tab) = opened();
    server.says.insert("x".into(), vec![(404, "not-found", "no", "after-fix")]);
    let ticket = tab.call(&mut rows, "x");
    gives_up(&mut tab, &mut rows, ticket);
    tab.arrives(&mut server, &mut rows);
    assert_eq!((tab.paused.len(), tab.session.counts()), (0, (1, 0)));
    tab.pass(&mut rows, INTERVAL_MS);
    tab.arrives_all(&mut server, &mut rows);
    assert_eq!(tab.failure("x"), ("cancelled", Executed::No));
}

#[test]
fn an_answer_that_arrives_while_the_giving_up_is_stored_is_delivered_once_that_is_stored() {
    let (mut server, mut rows, mut tab) = opened();
    let ticket = tab.call(&mut rows, "x");
    tab.slow = Some(Vec::new());
    gives_up(&mut tab, &mut rows, ticket);
    tab.arrives(&mut server, &mut rows);
    assert_eq!((tab.answers.len(), rows.len()), (0, 1));
    tab.store_next(&mut rows);
    assert_eq!(tab.body("x"), "ran x");
    tab.store_next(&mut rows);
    assert_eq!((rows.len(), tab.session.wakes_at()), (0, None));
}

#[test]
fn an_answer_that_arrives_while_the_giving_up_is_stored_is_delivered_if_the_store_fails() {
    let (mut server, mut rows, mut tab) = opened();
    let ticket = tab.call(&mut rows, "x");
    tab.slow = Some(Vec::new());
    gives_up(&mut tab, &mut rows, ticket);
    tab.arrives(&mut server, &mut rows);
    tab.is_broken = true;
    tab.store_next(&mut rows);
    assert_eq!(tab.body("x"), "ran x");
}

#[test]
fn while_the_store_fails_to_store_a_giving_up_no_later_request_overtakes_it() {
    let (mut server, mut rows, mut tab) = opened();
    let ticket = tab.call(&mut rows, "x");
    tab.call(&mut rows, "y");
    tab.lose(&mut rows);
    tab.is_broken = true;
    gives_up(&mut tab, &mut rows, ticket);
    tab.pass(&mut rows, INTERVAL_MS / 2);
    assert!(tab.sent.is_empty());
    tab.is_broken = false;
    tab.pass(&mut rows, INTERVAL_MS);
    tab.arrives_all(&mut server, &mut rows);
    assert_eq!((tab.failure("x"), tab.body("y")), (("cancelled", Executed::No), "ran y".to_owned()));
}

#[test]
fn a_caller_gets_gave_up_after_the_limit_and_its_request_goes_on() {
    let (mut server, mut rows, mut tab) = opened();
    tab.session.give_up_after(Some(5_000));
    tab.call(&mut rows, "x");
    tab.pass(&mut rows, 4_999);
    assert!(tab.answers.is_empty());
    tab.pass(&mut rows, 1);
    assert_eq!((tab.failure("x"), tab.session.counts()), (("gave-up", Executed::Unknown), (1, 0)));
    tab.pass(&mut rows, 1_000);
    tab.arrives_all(&mut server, &mut rows);
    assert!(matches!(&tab.recovered["x"], Answered::Outcome(_)), "{:?}", tab.recovered);
    assert_eq!((rows.len(), tab.session.wakes_at()), (0, None));
}

#[test]
fn an_answer_that_nobody_has_taken_does_not_count_against_the_limit_of_requests() {
    let (mut server, mut rows, mut tab) = opened();
    tab.session.settings.requests_max = 1;
    tab.session.give_up_after(Some(1));
    tab.takes_recovered = false;
    tab.call(&mut rows, "x");
    tab.pass(&mut rows, 1);
    tab.arrives_all(&mut server, &mut rows);
    assert_eq!((tab.session.counts(), rows.len()), ((0, 0), 1));
    tab.call(&mut rows, "y");
    tab.arrives_all(&mut server, &mut rows);
    assert_eq!(tab.body("y"), "ran y");
}

#[test]
fn nothing_is_sent_offline_and_going_online_sends_at_once_but_not_before_retry_after() {
    let (mut server, mut rows, mut tab) = opened();
    tab.session.set_offline(tab.now_ms, true);
    tab.call(&mut rows, "x");
    tab.pass(&mut rows, 100 * INTERVAL_MS);
    assert_eq!((tab.sent.len(), tab.session.wakes_at()), (0, None));
    tab.session.set_offline(tab.now_ms, false);
    tab.drive(&mut rows);
    tab.lose(&mut rows);
    tab.session.set_offline(tab.now_ms, false);
    tab.drive(&mut rows);
    let made = tab.sent.remove(0);
    let mut answer = server::problem(503, "unavailable", "unknown", "same-id");
    answer.headers.append("retry-after", "7".to_owned());
    tab.answer(&mut rows, &made, answer);
    tab.session.set_offline(tab.now_ms, false);
    tab.drive(&mut rows);
    tab.pass(&mut rows, 6_999);
    assert!(tab.sent.is_empty());
    tab.pass(&mut rows, 1);
    tab.arrives_all(&mut server, &mut rows);
    assert_eq!(tab.body("x"), "ran x");
}

#[test]
fn the_overview_lists_all_requests_of_the_session_without_an_answer_and_no_other_session() {
    let (mut server, mut rows, mut tab) = opened();
    tab.call(&mut rows, "x");
    let mut other = Tab::with("b", |settings| settings.name = "other".into());
    other.session.wake(0);
    other.drive(&mut rows);
    other.arrives(&mut server, &mut rows);
    other.call(&mut rows, "theirs");
    let holder = Tab::open("c", &mut server, &mut rows, &["a"]);
    let all: Vec<_> = rows.clone().into_iter().collect();
    let states = |tab: &Tab| {
        let overview = tab.session.overview(&all).expect("readable");
        overview.into_iter().map(|each| (each.id, each.attempts, each.state)).collect::<Vec<_>>()
    };
    assert_eq!(states(&tab), [("x".to_owned(), 1, "sending")]);
    assert_eq!(states(&holder), [("x".to_owned(), 0, "elsewhere")]);
}

#[test]
fn a_request_that_is_given_up_and_taken_over_by_another_tab_is_unknown_and_not_kept_in_hand() {
    let (mut server, mut rows) = (Server::default(), Rows::new());
    let mut tab = Tab::open("a", &mut server, &mut rows, &[]);
    tab.shares = true;
    tab.call(&mut rows, "x");
    let ticket = tab.call(&mut rows, "y");
    tab.is_broken = true;
    tab.session.give_up(tab.now_ms, ticket);
    tab.drive(&mut rows);
    // The second tab can't tell who lives, so it takes all rows.
    Tab::open("b", &mut server, &mut rows, &[]);
    tab.arrives_all(&mut server, &mut rows);
    tab.is_broken = false;
    tab.pass(&mut rows, INTERVAL_MS);
    assert_eq!((tab.failure("y").1, tab.session.counts().0), (Executed::Unknown, 0));
}

/// Where nobody can tell who lives, several holders may have given a request a place, and none was told of it by its store.
#[test]
fn two_holders_that_close_places_of_one_request_do_not_clash_and_the_former_is_fenced() {
    let (mut server, mut rows) = (Server::default(), Rows::new());
    let mut zombie = Tab::open("a", &mut server, &mut rows, &[]);
    zombie.shares = true;
    Tab::open("gone", &mut server, &mut rows, &["a"]).call(&mut rows, "x");
    let mut holders = ["b", "c"].map(|owner| {
        let mut tab = Tab::new(owner);
        tab.shares = true;
        tab.session.wake(0);
        tab.drive(&mut rows);
        tab.arrives(&mut server, &mut rows);
        tab.look_blindly(&mut rows);
        (tab.is_broken, tab.is_unsure, tab.slow) = (true, true, Some(Vec::new()));
        tab.arrives(&mut server, &mut rows);
        tab.store_next(&mut rows);
        tab
    });
    assert_eq!(places(&rows), [("x", Some((4, 1)))]);
    zombie.look_blindly(&mut rows);
    zombie.arrives_all(&mut server, &mut rows);
    assert_eq!((zombie.body("x"), rows.len()), ("ran x".to_owned(), 0));
    // The current holder closes its place first.
    for tab in holders.iter_mut().rev() {
        (tab.is_broken, tab.is_unsure) = (false, false);
        tab.call(&mut rows, "next");
        tab.pass(&mut rows, INTERVAL_MS);
        while tab.slow.iter().flatten().next().is_some() {
            tab.store_next(&mut rows);
        }
        tab.arrives_all(&mut server, &mut rows);
    }
    let [former, current] = &holders;
    assert_eq!(current.ended, None);
    assert_eq!(former.ended.as_ref().map(|failure| failure.code.as_str()), Some("fenced"));
}
