//! Stores with very many rows: the time to open an outbox, and to look through the rows every five seconds, grows only
//! in proportion.

use super::super::*;
use super::*;
use std::collections::BTreeSet;
use std::time::Instant;

/// This is generous: a look takes a fifth of it. Comparing each row with all others would take ten times as long.
const LOOK_MS_MAX: u128 = 1_500;

fn id(n: usize) -> String {
    format!("019abcde-0000-7000-8000-{n:012}")
}

fn settled(n: usize) -> (String, Vec<u8>) {
    let settled = row::Settled {
        outbox: "outbox".into(),
        maker: "tab".into(),
        key: Some("a/b".into()),
        until_ms: 5,
        was_cancelled: false,
        kept: None,
        at_s: 0,
        is_acknowledged: false,
    };
    (id(n), codec::encode(&Row::Settled(settled)))
}

fn pending(n: usize, owners: usize) -> (String, Vec<u8>) {
    let (owner, place) = (id(n % owners), Some((n / owners) as i64));
    let entry = Entry { outbox: "outbox".into(), maker: owner.clone(), owner, place, ..Entry::default() };
    (id(n), codec::encode(&Row::Pending(entry)))
}

#[test]
fn each_of_50_000_settled_rows_is_acknowledged_once_and_reading_them_takes_bounded_time() {
    const ROWS: usize = 50_000;
    let mut bench = Bench::new();
    let mut rows: Vec<_> = (0..ROWS).map(settled).collect();
    let begun = Instant::now();
    // Once when the outbox is opened, and once at a later look.
    for _ in 0..2 {
        bench.client.stored(0, &rows, None).expect("readable");
        rows.push(settled(rows.len()));
    }
    let ms = begun.elapsed().as_millis();
    assert!(ms < LOOK_MS_MAX, "{ms} ms");
    bench.drive();
    let mut told = Vec::new();
    for at in 0..=ROWS {
        let Some(made) = bench.sent.get(at) else { break };
        told.extend(
            made.request.body.split(|byte| *byte == b'"').filter(|text| text.len() == id(0).len()).map(<[u8]>::to_vec),
        );
        bench.answer_to(made.attempt, from_object(status("executed"), bench.server_ms()));
    }
    assert_eq!((told.len(), told.into_iter().collect::<BTreeSet<_>>().len()), (ROWS + 1, ROWS + 1));
}

#[test]
fn looking_through_20_000_rows_of_other_tabs_takes_bounded_time() {
    const OWNERS: usize = 10;
    let mut bench = Bench::new();
    let rows: Vec<_> = (0..20_000).map(|n| pending(n, OWNERS)).collect();
    let living: Vec<_> = (0..OWNERS).map(id).collect();
    let begun = Instant::now();
    bench.client.stored(0, &rows, Some(&|owner| living.iter().any(|each| each == owner))).expect("readable");
    let ms = begun.elapsed().as_millis();
    assert_eq!(bench.client.counts(), (0, 0));
    assert!(ms < LOOK_MS_MAX, "{ms} ms");
}

#[test]
fn a_request_is_refused_as_outbox_full_while_too_many_acknowledgements_wait() {
    let mut bench = Bench::ready();
    let rows: Vec<_> = (0..ACKS_WAITING_MAX).map(settled).collect();
    bench.client.stored(bench.now_ms, &rows, None).expect("readable");
    bench.request("x");
    assert_eq!((bodies(&bench), bench.row("x")), (vec!["outbox-full".to_owned()], None));
}
