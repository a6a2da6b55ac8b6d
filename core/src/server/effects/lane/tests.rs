use super::*;

fn lane(seq: i64, sure: Option<i64>) -> Lane {
    let target = Target::Key(Key::new("b").expect("a key"));
    Lane { number: 1, target, seq, sure, previous: 1, epoch: 2, boundary: 4 }
}

fn answered(status: u16, semel: &str, body: &str) -> Heard {
    Heard::Answered { status, semel: semel.to_owned(), body: body.as_bytes().to_vec() }
}

#[test]
fn a_taken_number_is_sent_under_the_previous_epoch_and_a_later_one_needs_an_open_session() {
    let open = Known { is_open: true, ..Known::default() };
    assert_eq!(next(&lane(9, None), 4, false, Known::default()), Step::Send(1));
    assert_eq!(next(&lane(9, None), 5, false, Known::default()), Step::TakeOver(None));
    assert_eq!(next(&lane(9, None), 5, false, open), Step::Send(2));
    assert_eq!(next(&lane(9, None), 5, true, open), Step::Close(2));
}

#[test]
fn the_first_number_takes_over_from_the_epoch_under_which_it_may_have_been_sent() {
    let of = |sure, epoch| Lane { boundary: 0, epoch, ..lane(1, sure) };
    let none = Known::default();
    assert_eq!(next(&of(None, 2), 1, false, none), Step::TakeOver(Some(2)));
    assert_eq!(next(&of(None, 2), 1, false, Known { told: Some(7), ..none }), Step::TakeOver(Some(7)));
    assert_eq!(next(&of(Some(1), 2), 1, true, none), Step::TakeOver(Some(2)));
    // It was never sent; it was never sent since a session was known; or the earlier numbers show it.
    assert_eq!(next(&of(None, 2), 1, false, Known { is_first: true, ..none }), Step::TakeOver(None));
    assert_eq!(next(&of(Some(0), 2), 1, false, none), Step::TakeOver(None));
    assert_eq!(next(&of(None, 0), 1, false, none), Step::TakeOver(None));
    assert_eq!(next(&of(None, 2), 2, false, none), Step::TakeOver(None));
}

#[test]
fn a_take_over_refused_for_its_epoch_expects_the_current_one_or_learns_that_there_is_none() {
    let refused =
        |after, semel, body| judge(&lane(1, None), 1, Step::TakeOver(after), false, answered(409, semel, body));
    assert!(matches!(refused(Some(2), "fenced", r#"{"currentEpoch":7}"#), Verdict::Expect(7, _)));
    assert!(matches!(refused(Some(2), "body-invalid", r#"{"currentEpoch":1}"#), Verdict::Expect(1, _)));
    assert_eq!(refused(Some(2), "body-invalid", r#"{"currentEpoch":0}"#), Verdict::Forgotten);
    // The answer does not say, or was not asked.
    assert!(matches!(refused(Some(2), "body-invalid", "{}"), Verdict::Again(_)));
    assert!(matches!(refused(None, "body-invalid", r#"{"currentEpoch":0}"#), Verdict::Again(_)));
}

#[test]
fn a_take_over_with_an_impossible_answer_is_sent_again() {
    let taken = |body| judge(&lane(1, None), 1, Step::TakeOver(None), false, answered(200, "executed", body));
    assert_eq!(taken(r#"{"epoch":1,"lastSeq":0}"#), Verdict::Opened(1, 0));
    for body in [r#"{"epoch":0,"lastSeq":0}"#, r#"{"epoch":1,"lastSeq":-1}"#, r#"{"epoch":1}"#, "no"] {
        assert!(matches!(taken(body), Verdict::Again(_)), "{body}");
    }
}

#[test]
fn a_take_over_renumbers_effects_if_this_key_or_the_other_was_restored() {
    // The usual case: 7 was taken, 8 and 9 wait.
    let Opened { lane: on, kept, shift } = opened(&lane(9, None), 5, 7, Some(8));
    assert_eq!((on.seq, on.sure, on.previous, on.epoch, on.boundary, kept, shift), (9, None, 2, 5, 7, 7, 0));
    // This key was restored: it had given numbers up to 8 when it started, and the other key has 20.
    let back = opened(&lane(9, Some(8)), 5, 20, Some(9));
    assert_eq!((back.lane.seq, back.kept, back.shift), (21, 8, 12));
    // The other key was restored: it has 2, and 5 to 9 wait.
    let other = opened(&lane(9, None), 5, 2, Some(5));
    assert_eq!((other.lane.seq, other.kept, other.shift), (7, 2, -2));
    assert_eq!(opened(&lane(9, None), 5, 20, None).lane.seq, 20);
}

#[test]
fn an_answer_ends_an_effect_or_parks_it_or_closes_its_place_or_has_it_sent_again() {
    let sent = |heard, is_first| judge(&lane(9, None), 5, Step::Send(2), is_first, heard);
    assert_eq!(sent(answered(200, "replayed", ""), false), Verdict::Done);
    assert_eq!(
        sent(answered(409, "executed", "no"), true),
        Verdict::Park(Executed::Yes, "answered 409: no".to_owned())
    );
    let unknown = r#"{"executed":"unknown","detail":"d"}"#;
    let parked = Verdict::Park(Executed::Unknown, "410 session-unknown: d".to_owned());
    assert_eq!(sent(answered(410, "session-unknown", unknown), false), parked);
    assert!(matches!(sent(answered(410, "session-unknown", unknown), true), Verdict::TakeOver(_)));
    assert!(matches!(sent(answered(409, "fenced", ""), false), Verdict::TakeOver(_)));
    assert!(matches!(sent(answered(404, "not-found", ""), false), Verdict::Close(_)));
    assert!(matches!(sent(answered(422, "fingerprint-mismatch", ""), false), Verdict::Park(Executed::No, _)));
    for again in [
        answered(500, "rolled-back", ""),
        answered(200, "", ""),
        answered(404, "odd", ""),
        Heard::Nothing(String::new()),
    ] {
        assert!(matches!(sent(again, true), Verdict::Again(_)));
    }
    // A fence says nothing about a number that was taken.
    let taken = judge(&lane(9, None), 4, Step::Send(1), false, answered(409, "fenced", ""));
    assert!(matches!(taken, Verdict::Park(Executed::Unknown, _)));
}

#[test]
fn a_refusal_with_retry_same_id_is_sent_again_and_a_gap_or_fence_needs_a_take_over() {
    let mut again = 0;
    for code in Code::ALL.iter().filter(|code| matches!(code.retry(), Retry::SameId)) {
        let verdict = judge(&lane(9, None), 5, Step::Send(2), false, answered(code.status(), code.as_str(), ""));
        if matches!(code, Code::SequenceGap | Code::Fenced) {
            assert!(matches!(verdict, Verdict::TakeOver(_)), "{code:?}");
        } else {
            assert!(matches!(verdict, Verdict::Again(_)), "{code:?}");
            again += 1;
        }
    }
    assert!(again > 5, "{again} codes are of what may pass");
}

#[test]
fn a_call_that_the_runtime_cannot_send_is_parked_and_a_numbered_effect_has_its_place_closed() {
    let unsendable = || Heard::Unsendable("no such port".to_owned());
    let judged = |step| judge(&lane(9, None), 5, step, true, unsendable());
    assert_eq!(judged(Step::Call), Verdict::Park(Executed::No, "no such port".to_owned()));
    assert_eq!(judged(Step::Send(2)), Verdict::Close("no such port".to_owned()));
}

#[test]
fn the_closing_of_a_place_is_parked_or_taken_over_or_sent_again_by_the_code_of_its_answer() {
    let closed = |seq, code: Code, is_first| {
        let body = format!(r#"{{"executed":"{}"}}"#, code.executed().as_str());
        judge(&lane(9, None), seq, Step::Close(2), is_first, answered(code.status(), code.as_str(), &body))
    };
    for code in Code::ALL {
        let (verdict, is_taken) = (closed(5, *code, false), closed(4, *code, false));
        match code {
            Code::SequenceGap | Code::Fenced => assert!(matches!(verdict, Verdict::TakeOver(_)), "{code:?}"),
            Code::Poisoned => assert!(matches!(verdict, Verdict::Park(Executed::No, _))),
            Code::SessionUnknown | Code::Acknowledged | Code::OutcomeExpired => {
                assert!(matches!(verdict, Verdict::Park(Executed::Unknown, _)), "{code:?}");
            }
            _ => assert!(matches!(verdict, Verdict::Again(_)), "{code:?}"),
        }
        // A taken number is asked for under an epoch that may be over, or in a session that was restored to an earlier state.
        if matches!(code, Code::SequenceGap | Code::Fenced | Code::KeyInvalid) {
            assert!(matches!(is_taken, Verdict::Park(Executed::Unknown, _)), "{code:?}");
        } else {
            assert_eq!(is_taken, verdict);
        }
    }
    assert!(matches!(closed(5, Code::SessionUnknown, true), Verdict::TakeOver(_)), "it was never sent");
}

#[test]
fn a_call_is_done_or_parked_or_sent_again_by_its_status() {
    let called = |status| judge(&lane(9, None), 5, Step::Call, true, answered(status, "", "x"));
    assert_eq!(called(204), Verdict::Done);
    for status in [408, 409, 423, 424, 425, 429, 500, 503, 599] {
        assert!(matches!(called(status), Verdict::Again(_)), "{status}");
    }
    for status in [301, 400, 404] {
        assert!(matches!(called(status), Verdict::Park(Executed::Unknown, _)), "{status}");
    }
}

#[test]
fn a_target_is_read_back_from_its_text_and_a_url_without_a_plain_http_origin_has_none() {
    for url in ["https://A.example:8443/x?y", "http://127.0.0.1/"] {
        let target = Target::of_url(url).expect("an origin");
        assert_eq!(Target::of_text(&target.text()), Some(target));
    }
    assert_eq!(Target::of_url("https://A.example:8443?y"), Some(Target::Origin("https://a.example:8443".to_owned())));
    for bad in ["https://", "ftp://a", "https:///a", "https://a@b/"] {
        assert_eq!(Target::of_url(bad), None, "{bad}");
    }
}
