//! Two holders of a session at once: what becomes of the requests of the fenced one.

use super::*;

#[test]
fn a_fenced_holder_stops_and_its_requests_that_never_ran_fail_as_fenced_not_run() {
    let (mut server, mut rows) = (Server::default(), Rows::new());
    let mut zombie = Tab::open("a", &mut server, &mut rows, &[]);
    zombie.call(&mut rows, "x");
    zombie.call(&mut rows, "unsent");
    let mut holder = Tab::open("b", &mut server, &mut rows, &["a"]);
    zombie.arrives_all(&mut server, &mut rows);
    assert_eq!((zombie.failure("x"), zombie.failure("unsent")), (("fenced", Executed::No), ("fenced", Executed::No)));
    zombie.call(&mut rows, "later");
    assert_eq!(zombie.failure("later"), ("fenced", Executed::No));
    assert_eq!((rows.len(), zombie.sent.len(), zombie.session.wakes_at()), (0, 0, None));
    holder.call(&mut rows, "y");
    holder.arrives_all(&mut server, &mut rows);
    assert_eq!(server.effects, ["y"]);
}

#[test]
fn a_fenced_holder_gets_the_outcome_of_what_ran_and_sends_again_what_may_have_run() {
    let (mut server, mut rows) = (Server::default(), Rows::new());
    let mut zombie = Tab::open("a", &mut server, &mut rows, &[]);
    zombie.call(&mut rows, "first");
    zombie.call(&mut rows, "ran");
    zombie.call(&mut rows, "busy");
    zombie.arrives(&mut server, &mut rows);
    let lost = zombie.lose(&mut rows);
    server.serve(&lost);
    zombie.call(&mut rows, "x");
    Tab::open("b", &mut server, &mut rows, &["a"]);
    server.says.insert("busy".into(), vec![(503, "unavailable", "unknown", "same-id")]);
    zombie.pass(&mut rows, INTERVAL_MS);
    zombie.arrives_all(&mut server, &mut rows);
    assert_eq!((zombie.body("ran"), zombie.failure("x")), ("ran ran".to_owned(), ("fenced", Executed::No)));
    assert!(!zombie.answers.contains_key("busy"));
    zombie.pass(&mut rows, INTERVAL_MS);
    zombie.arrives_all(&mut server, &mut rows);
    assert_eq!((zombie.body("busy"), server.effects.len(), rows.len()), ("ran busy".to_owned(), 3, 0));
}

#[test]
fn a_fenced_holder_with_its_own_store_reports_requests_that_nobody_waits_for_as_not_run() {
    let (mut server, mut rows) = (Server::default(), Rows::new());
    let mut zombie = Tab::with("a", |settings| settings.is_shared = false);
    zombie.session.give_up_after(Some(1));
    zombie.session.wake(0);
    zombie.drive(&mut rows);
    zombie.arrives(&mut server, &mut rows);
    zombie.call(&mut rows, "sent");
    zombie.call(&mut rows, "unsent");
    zombie.pass(&mut rows, 1);
    assert_eq!(zombie.failure("sent"), ("gave-up", Executed::Unknown));
    zombie.answers.clear();
    Tab::open("b", &mut server, &mut Rows::new(), &[]);
    zombie.arrives_all(&mut server, &mut rows);
    for id in ["sent", "unsent"] {
        assert_eq!((zombie.failure(id), zombie.recovered.contains_key(id)), (("fenced", Executed::No), true));
    }
    assert_eq!((rows.len(), zombie.session.wakes_at(), zombie.session.counts()), (0, None, (0, 0)));
}

#[test]
fn a_fenced_holder_leaves_requests_that_nobody_waits_for_to_the_next_one_by_one_in_order() {
    let (mut server, mut rows) = (Server::default(), Rows::new());
    let mut tab = Tab::open("a", &mut server, &mut rows, &[]);
    tab.session.give_up_after(Some(INTERVAL_MS));
    for id in ["1", "2", "3"] {
        tab.call(&mut rows, id);
    }
    let late = tab.sent.remove(0);
    tab.pass(&mut rows, INTERVAL_MS);
    assert_eq!(tab.answers.len(), 3);
    tab.answers.clear();
    let mut next = Tab::open("b", &mut server, &mut rows, &["a"]);
    tab.slow = Some(Vec::new());
    let answer = server.serve(&late);
    tab.answer(&mut rows, &late, answer);
    tab.arrives_all(&mut server, &mut rows);
    for (count, id) in ["1", "2", "3"].into_iter().enumerate() {
        next.look(&mut rows, &["a"]);
        next.arrives_all(&mut server, &mut rows);
        assert_eq!(server.effects.len(), count);
        assert_eq!(tab.slow.iter().flatten().map(|(_, id, _)| id.as_str()).collect::<Vec<_>>(), [id]);
        tab.store_next(&mut rows);
    }
    next.look(&mut rows, &["a"]);
    next.arrives_all(&mut server, &mut rows);
    assert_eq!((server.effects, tab.session.counts().0, rows.len()), (vec!["1".into(), "2".into(), "3".into()], 0, 0));
}

#[test]
fn a_fenced_holder_leaves_no_request_while_an_earlier_one_whose_caller_waits_has_no_answer() {
    let (mut server, mut rows) = (Server::default(), Rows::new());
    let mut tab = Tab::open("a", &mut server, &mut rows, &[]);
    tab.session.give_up_after(Some(2 * INTERVAL_MS));
    tab.call(&mut rows, "1");
    tab.lose(&mut rows);
    tab.session.give_up_after(Some(1));
    tab.call(&mut rows, "2");
    tab.pass(&mut rows, INTERVAL_MS);
    let mut next = Tab::open("b", &mut server, &mut rows, &["a"]);
    server.says.insert("1".into(), vec![(503, "unavailable", "unknown", "same-id")]);
    tab.arrives_all(&mut server, &mut rows);
    assert_eq!(tab.ended.as_ref().map(|failure| failure.code.as_str()), Some("fenced"));
    next.look(&mut rows, &["a"]);
    next.arrives_all(&mut server, &mut rows);
    assert!(server.effects.is_empty());
    tab.pass(&mut rows, INTERVAL_MS);
    assert_eq!(tab.answers.len(), 2);
    tab.arrives_all(&mut server, &mut rows);
    next.look(&mut rows, &["a"]);
    next.arrives_all(&mut server, &mut rows);
    assert_eq!((server.effects, tab.session.counts().0, rows.len()), (vec!["1".into(), "2".into()], 0, 0));
}

#[test]
fn a_fenced_holder_leaves_no_request_while_the_row_of_an_earlier_one_can_still_be_taken_over() {
    let (mut server, mut rows) = (Server::default(), Rows::new());
    let mut tab = Tab::open("a", &mut server, &mut rows, &[]);
    tab.call(&mut rows, "1");
    tab.lose(&mut rows);
    tab.session.give_up_after(Some(1));
    tab.call(&mut rows, "2");
    tab.pass(&mut rows, INTERVAL_MS);
    let mut next = Tab::open("b", &mut server, &mut rows, &["a"]);
    tab.slow = Some(Vec::new());
    tab.arrives(&mut server, &mut rows);
    // The store fails to take the row of the first back, and works again.
    tab.is_broken = true;
    tab.store_next(&mut rows);
    tab.is_broken = false;
    while tab.slow.iter().flatten().next().is_some() {
        tab.store_next(&mut rows);
    }
    next.look(&mut rows, &["a"]);
    next.arrives_all(&mut server, &mut rows);
    // The tab crashes.
    next.look(&mut rows, &[]);
    next.arrives_all(&mut server, &mut rows);
    assert_eq!((server.effects, rows.len()), (vec!["1".into(), "2".into()], 0));
}

#[test]
fn a_request_that_is_given_up_before_a_fenced_holder_has_left_it_does_not_run_or_delay_others() {
    let (mut server, mut rows) = (Server::default(), Rows::new());
    let mut tab = Tab::open("a", &mut server, &mut rows, &[]);
    tab.session.give_up_after(Some(INTERVAL_MS));
    let tickets = ["1", "2", "3"].map(|id| tab.call(&mut rows, id));
    let late = tab.sent.remove(0);
    tab.pass(&mut rows, INTERVAL_MS);
    let mut next = Tab::open("b", &mut server, &mut rows, &["a"]);
    tab.slow = Some(Vec::new());
    let answer = server.serve(&late);
    tab.answer(&mut rows, &late, answer);
    tab.arrives_all(&mut server, &mut rows);
    tab.session.give_up(tab.now_ms, tickets[1]);
    tab.drive(&mut rows);
    while tab.slow.as_ref().is_some_and(|slow| !slow.is_empty()) {
        tab.store_next(&mut rows);
    }
    next.look(&mut rows, &["a"]);
    next.arrives_all(&mut server, &mut rows);
    assert_eq!((server.effects, tab.session.counts().0, rows.len()), (vec!["1".into(), "3".into()], 0, 0));
}

#[test]
fn a_fenced_holder_is_told_so_though_no_caller_waits_and_leaves_a_request_it_took_over() {
    let (mut server, mut rows) = (Server::default(), Rows::new());
    let mut gone = Tab::open("a", &mut server, &mut rows, &[]);
    gone.call(&mut rows, "x");
    let mut zombie = Tab::open("b", &mut server, &mut rows, &[]);
    // This tab takes the session over from another store.
    Tab::open("c", &mut server, &mut Rows::new(), &[]);
    assert_eq!(zombie.ended, None);
    zombie.arrives_all(&mut server, &mut rows);
    assert_eq!(zombie.ended.map(|failure| failure.code), Some("fenced".to_owned()));
    assert!(zombie.answers.is_empty() && zombie.recovered.is_empty());
    let mut next = Tab::open("d", &mut server, &mut rows, &["b"]);
    next.arrives_all(&mut server, &mut rows);
    assert_eq!((next.body("x"), server.effects, rows.len()), ("ran x".into(), vec!["x".to_owned()], 0));
}

#[test]
fn a_session_that_its_key_has_lost_ends_and_sent_requests_are_unknown_and_unsent_ones_not_run() {
    let (mut server, mut rows) = (Server::default(), Rows::new());
    let mut tab = Tab::open("a", &mut server, &mut rows, &[]);
    tab.call(&mut rows, "x");
    tab.call(&mut rows, "unsent");
    server = Server::default();
    tab.arrives_all(&mut server, &mut rows);
    assert_eq!(tab.failure("x"), ("session-unknown", Executed::Unknown));
    assert_eq!(tab.failure("unsent"), ("session-unknown", Executed::No));
    assert_eq!((rows.len(), tab.session.wakes_at()), (0, None));
}

#[test]
fn requests_without_a_place_or_not_stored_yet_fail_as_fenced_too() {
    let (mut server, mut rows) = (Server::default(), Rows::new());
    let mut zombie = Tab::open("a", &mut server, &mut rows, &[]);
    let ids: Vec<_> = (0..70).map(|number| format!("{number:02}")).collect();
    for id in &ids {
        zombie.call(&mut rows, id);
    }
    // One more request is still being stored.
    zombie.slow = Some(Vec::new());
    zombie.call(&mut rows, "late");
    Tab::open("b", &mut server, &mut Rows::new(), &[]);
    zombie.arrives(&mut server, &mut rows);
    while zombie.slow.as_ref().is_some_and(|slow| !slow.is_empty()) {
        zombie.store_next(&mut rows);
    }
    for id in ids.iter().map(String::as_str).chain(["late"]) {
        assert_eq!(zombie.failure(id), ("fenced", Executed::No), "{id}");
    }
    assert_eq!((rows.len(), zombie.session.counts(), zombie.session.wakes_at()), (0, (0, 0), None));
}

#[test]
fn requests_that_nobody_waits_for_and_were_not_stored_yet_go_on_with_the_next_holder() {
    let (mut server, mut rows) = (Server::default(), Rows::new());
    let mut zombie = Tab::open("a", &mut server, &mut rows, &[]);
    zombie.session.give_up_after(Some(1));
    zombie.slow = Some(Vec::new());
    for id in ["x", "y", "z"] {
        zombie.call(&mut rows, id);
    }
    zombie.pass(&mut rows, 1);
    assert_eq!(zombie.failure("z"), ("gave-up", Executed::Unknown));
    zombie.store_next(&mut rows);
    let mut holder = Tab::open("b", &mut server, &mut rows, &["a"]);
    zombie.arrives(&mut server, &mut rows);
    while zombie.slow.iter().flatten().next().is_some() {
        zombie.store_next(&mut rows);
    }
    assert_eq!(zombie.recovered.len(), 0);
    holder.look(&mut rows, &["a"]);
    holder.arrives_all(&mut server, &mut rows);
    assert_eq!((server.effects, rows.len()), (["x", "y", "z"].map(str::to_owned).to_vec(), 0));
}
