//! Two holders of a session at once, or tabs that can't tell who lives: what becomes of requests that one takes over from
//! another.

use super::*;

#[test]
fn a_fenced_holder_does_not_say_no_of_a_request_that_another_tab_took_over() {
    let (mut server, mut rows) = (Server::default(), Rows::new());
    let mut zombie = Tab::open("a", &mut server, &mut rows, &[]);
    zombie.call(&mut rows, "x");
    // The second tab can't tell who lives, so it takes all rows.
    let mut holder = Tab::open("b", &mut server, &mut rows, &[]);
    zombie.arrives_all(&mut server, &mut rows);
    assert_eq!(zombie.failure("x"), ("fenced", Executed::Unknown));
    holder.arrives_all(&mut server, &mut rows);
    assert_eq!((server.effects, holder.body("x")), (vec!["x".to_owned()], "ran x".to_owned()));
}

#[test]
fn a_request_that_is_given_up_while_another_tab_takes_it_over_is_unknown_and_its_row_stays() {
    let (mut server, mut rows) = (Server::default(), Rows::new());
    let mut tab = Tab::open("a", &mut server, &mut rows, &[]);
    let tickets: Vec<_> = (0..65).map(|number| tab.call(&mut rows, &format!("{number:02}"))).collect();
    apply(&mut rows, "64", &Change::Adopt { by: "b".into(), from: "a".into(), epoch: 2 });
    tab.session.give_up(tab.now_ms, tickets[64]);
    tab.drive(&mut rows);
    assert_eq!(tab.failure("64").1, Executed::Unknown);
    assert!(rows.contains_key("64"));
}

#[test]
fn a_place_whose_row_another_tab_took_over_goes_to_the_next_row() {
    let (mut server, mut rows) = (Server::default(), Rows::new());
    let mut tab = Tab::open("a", &mut server, &mut rows, &[]);
    for number in 0..66 {
        tab.call(&mut rows, &format!("{number:02}"));
    }
    apply(&mut rows, "64", &Change::Adopt { by: "b".into(), from: "a".into(), epoch: 2 });
    tab.arrives_all(&mut server, &mut rows);
    assert_eq!((tab.failure("64"), tab.body("65")), (("outcome-lost", Executed::Unknown), "ran 65".to_owned()));
    assert_eq!(server.effects.len(), 65);
}

#[test]
fn a_request_that_a_fenced_holder_took_over_and_did_not_run_goes_on_with_the_current_holder() {
    let (mut server, mut rows) = (Server::default(), Rows::new());
    let mut gone = Tab::open("a", &mut server, &mut rows, &[]);
    gone.call(&mut rows, "ran");
    server.serve(&gone.sent[0]);
    gone.call(&mut rows, "x");
    let mut zombie = Tab::open("b", &mut server, &mut rows, &["a"]);
    let mut holder = Tab::open("c", &mut server, &mut rows, &["a", "b"]);
    // The tab does not know yet that it no longer holds the session.
    zombie.look(&mut rows, &["c"]);
    zombie.arrives_all(&mut server, &mut rows);
    assert_eq!((zombie.body("ran"), zombie.recovered.len(), rows.len()), ("ran ran".to_owned(), 1, 1));
    assert_eq!(zombie.session.wakes_at(), None);
    holder.look(&mut rows, &["b"]);
    holder.arrives_all(&mut server, &mut rows);
    assert_eq!((holder.body("x"), rows.len()), ("ran x".to_owned(), 0));
    assert_eq!(server.effects, ["ran", "x"]);
}

#[test]
fn a_request_that_a_living_fenced_holder_took_over_runs_before_the_calls_of_the_next_holder() {
    let (mut server, mut rows) = (Server::default(), Rows::new());
    let mut reloaded = Tab::open("a", &mut server, &mut rows, &[]);
    reloaded.call(&mut rows, "ran");
    reloaded.call(&mut rows, "x");
    server.serve(&reloaded.lose(&mut rows));
    let mut zombie = Tab::open("b", &mut server, &mut rows, &[]);
    zombie.shares = true;
    let mut again = Tab::open("a again", &mut server, &mut rows, &["b"]);
    again.call(&mut rows, "y");
    again.arrives_all(&mut server, &mut rows);
    assert_eq!(
        (server.effects.clone(), again.body("ran"), again.body("x")),
        (vec!["ran".into(), "x".into(), "y".into()], "ran ran".into(), "ran x".into())
    );
    zombie.arrives_all(&mut server, &mut rows);
    assert_eq!(
        (zombie.recovered.len(), zombie.session.counts(), zombie.session.wakes_at(), rows.len()),
        (0, (0, 0), None, 0)
    );
}

#[test]
fn a_fenced_holder_takes_no_rows_over_and_the_next_holder_does() {
    let (mut server, mut rows) = (Server::default(), Rows::new());
    let mut gone = Tab::open("a", &mut server, &mut rows, &[]);
    gone.call(&mut rows, "ran");
    server.serve(&gone.sent[0]);
    let mut zombie = Tab::open("b", &mut server, &mut rows, &["a"]);
    let mut next = Tab::open("c", &mut server, &mut rows, &["a", "b"]);
    zombie.call(&mut rows, "x");
    zombie.arrives(&mut server, &mut rows);
    assert_eq!(zombie.failure("x"), ("fenced", Executed::No));
    gone.call(&mut rows, "new");
    zombie.look(&mut rows, &["c"]);
    assert_eq!((zombie.session.wakes_at(), rows.len()), (None, 2));
    next.look(&mut rows, &["b"]);
    next.arrives_all(&mut server, &mut rows);
    assert_eq!((next.body("ran"), next.body("new"), rows.len()), ("ran ran".to_owned(), "ran new".to_owned(), 0));
}

#[test]
fn a_taken_over_request_that_is_fenced_and_may_have_run_gets_no_new_place() {
    let (mut server, mut rows) = (Server::default(), Rows::new());
    let mut gone = Tab::open("a", &mut server, &mut rows, &[]);
    gone.call(&mut rows, "x");
    server.says.insert("x".into(), vec![(409, "fenced", "unknown", "never")]);
    let mut next = Tab::open("b", &mut server, &mut rows, &[]);
    next.arrives_all(&mut server, &mut rows);
    assert_eq!((next.failure("x"), rows.len()), (("fenced", Executed::Unknown), 0));
    assert!(server.effects.is_empty());
    // The new holder still has the session.
    next.call(&mut rows, "y");
    next.arrives_all(&mut server, &mut rows);
    assert_eq!((next.body("y"), next.ended), ("ran y".to_owned(), None));
}

#[test]
fn a_fenced_holder_gets_the_outcome_of_a_taken_over_request_that_ran_and_leaves_an_unrun_one() {
    for ran in [true, false] {
        let (mut server, mut rows) = (Server::default(), Rows::new());
        let mut gone = Tab::open("a", &mut server, &mut rows, &[]);
        let ticket = gone.call(&mut rows, "x");
        if ran {
            server.serve(&gone.sent[0]);
            gone.session.give_up(gone.now_ms, ticket);
            gone.drive(&mut rows);
        }
        let mut zombie = Tab::open("b", &mut server, &mut rows, &["a"]);
        zombie.call(&mut rows, "y");
        zombie.look(&mut rows, &[]);
        Tab::open("c", &mut server, &mut Rows::new(), &[]);
        zombie.arrives_all(&mut server, &mut rows);
        assert_eq!(zombie.failure("y"), ("fenced", Executed::No));
        if ran {
            assert_eq!(zombie.body("x"), "ran x");
        }
        assert_eq!((rows.len(), zombie.session.counts(), zombie.session.wakes_at()), (usize::from(!ran), (0, 0), None));
    }
}

#[test]
fn a_taken_over_request_whose_new_place_was_not_stored_goes_on_with_the_next_holder() {
    let (mut server, mut rows) = (Server::default(), Rows::new());
    let mut gone = Tab::open("a", &mut server, &mut rows, &[]);
    gone.call(&mut rows, "x");
    let mut zombie = Tab::open("b", &mut server, &mut rows, &["a"]);
    server.says.insert("y".into(), vec![(503, "unavailable", "unknown", "same-id")]);
    zombie.call(&mut rows, "y");
    zombie.arrives(&mut server, &mut rows);
    zombie.look(&mut rows, &[]);
    zombie.pass(&mut rows, INTERVAL_MS);
    zombie.is_broken = true;
    zombie.arrives(&mut server, &mut rows);
    // The new holder has not looked at the rows yet.
    let mut holder = Tab::new("c");
    holder.session.wake(0);
    holder.drive(&mut rows);
    holder.arrives(&mut server, &mut rows);
    zombie.arrives(&mut server, &mut rows);
    zombie.is_broken = false;
    zombie.pass(&mut rows, 10 * INTERVAL_MS);
    assert_eq!((zombie.failure("y"), zombie.recovered.len()), (("fenced", Executed::No), 0));
    holder.look(&mut rows, &["b"]);
    holder.arrives_all(&mut server, &mut rows);
    assert_eq!((holder.body("x"), server.effects, rows.len()), ("ran x".to_owned(), vec!["x".to_owned()], 0));
}

/// A store that can't tell whether it has made a change makes it again.
#[test]
fn a_place_stored_without_a_report_stays_that_of_its_row_though_another_tab_took_it_over() {
    // Without requests before it, `x` gets its place while it is stored. With 64 before it, it gets its place only once
    // there is one.
    for before in [0, 64] {
        let (mut server, mut rows) = (Server::default(), Rows::new());
        let mut tab = Tab::open("a", &mut server, &mut rows, &[]);
        tab.shares = true;
        for number in 0..before {
            tab.call(&mut rows, &format!("{number:02}"));
        }
        if before == 0 {
            tab.slow = Some(Vec::new());
        }
        tab.call(&mut rows, "x");
        tab.slow.get_or_insert_default();
        let next = |tab: &Tab| tab.slow.iter().flatten().next().cloned();
        let change = loop {
            match next(&tab) {
                Some((_, id, change)) if id == "x" => break change,
                Some(_) => tab.store_next(&mut rows),
                None => tab.arrives(&mut server, &mut rows),
            }
        };
        apply(&mut rows, "x", &change);
        // A tab that can't tell who lives takes all rows when it is opened.
        apply(&mut rows, "x", &Change::Adopt { by: "b".into(), from: "a".into(), epoch: 1 });
        while next(&tab).is_some() {
            tab.store_next(&mut rows);
        }
        tab.slow = None;
        tab.call(&mut rows, "next");
        tab.arrives_all(&mut server, &mut rows);
        assert_eq!((tab.body("x"), tab.body("next")), ("ran x".to_owned(), "ran next".to_owned()));
        assert!(server.effects.ends_with(&["x".to_owned(), "next".to_owned()]), "{:?}", server.effects);
        assert!(rows.is_empty());
    }
}

/// A tab that can't tell who lives, and does not know that it is fenced, takes a row over, has the request run under
/// its place, and is done with it.
#[test]
fn a_place_whose_storing_seemed_to_fail_is_closed_if_another_tab_has_used_it() {
    // `x` gets its place while it is stored, or once its earlier place can run nothing any more.
    for is_new in [true, false] {
        let (mut server, mut rows) = (Server::default(), Rows::new());
        let mut zombie = Tab::open("a", &mut server, &mut rows, &[]);
        let epoch = if is_new {
            1
        } else {
            Tab::open("gone", &mut server, &mut rows, &["a"]).call(&mut rows, "x");
            2
        };
        let mut tab = Tab::new("b");
        (tab.shares, zombie.shares) = (true, true);
        tab.session.wake(0);
        tab.drive(&mut rows);
        tab.arrives(&mut server, &mut rows);
        tab.look_blindly(&mut rows);
        (tab.is_broken, tab.is_unsure, tab.slow) = (true, true, Some(Vec::new()));
        if is_new {
            tab.call(&mut rows, "x");
        } else {
            tab.arrives(&mut server, &mut rows);
        }
        tab.store_next(&mut rows);
        assert_eq!(places(&rows), [("x", Some((epoch + 1, 1)))]);
        zombie.look_blindly(&mut rows);
        zombie.arrives_all(&mut server, &mut rows);
        assert_eq!((zombie.body("x"), rows.len()), ("ran x".to_owned(), 0));
        (tab.is_broken, tab.is_unsure) = (false, false);
        for next in ["y", "z"] {
            tab.call(&mut rows, next);
            tab.pass(&mut rows, INTERVAL_MS);
            while tab.slow.iter().flatten().next().is_some() {
                tab.store_next(&mut rows);
            }
            tab.arrives_all(&mut server, &mut rows);
        }
        while tab.slow.iter().flatten().next().is_some() {
            tab.store_next(&mut rows);
        }
        assert_eq!((tab.body("y"), tab.body("z")), ("ran y".to_owned(), "ran z".to_owned()), "{is_new}");
        assert_eq!(server.effects, ["x", "y", "z"]);
        assert_eq!((tab.recovered.len(), rows.len(), tab.session.counts()), (0, 0, (0, 0)));
    }
}
