//! Rows of a key's table: the engine reads back what it writes, and executes nothing because of a damaged row.
//!
//! Invariant: a damaged row is compared with what `rows::find` reads of it, and that with the columns themselves.

use crate::engine::{KeyUnderTest, arrival_at};
use crate::memory::Memory;
use crate::source::Source;
use semel_core::fingerprint::Fingerprint;
use semel_core::id::{Principal, RequestId};
use semel_core::message::Headers;
use semel_core::problem::Executed;
use semel_core::server::storage::desk::{Desk, Kept};
use semel_core::server::storage::packed::Bundle;
use semel_core::server::storage::record::{Finds, LatestDeadline, Outcome, Record, State, TombstoneKind};
use semel_core::server::storage::sessions::state::{Epochs, Taken, TakenState};
use semel_core::server::storage::sql::{Row, Sql};
use semel_core::server::{Value, storage::rows, storage::schema, storage::sessions, storage::totals};
use semel_core::session::SessionName;
use semel_support::call::{acknowledge, cancel, get, look_up, post};

/// The id whose row is damaged.
const ID: &str = "damaged";
/// The columns that are damaged.
const COLUMNS: &[&str] = &[
    "state",
    "principal",
    "first_sent_s",
    "at_ms",
    "deadline_ms",
    "lapses_ms",
    "crashes",
    "is_started",
    "executed",
    "carried",
    "fingerprint",
    "status",
    "headers",
    "body",
];

/// Checks what the bytes stand for.
pub fn check(bytes: &[u8]) {
    let mut source = Source::new(bytes);
    if source.flag() { check_round_trip(&mut source) } else { check_damaged(&mut source) }
}

fn number(source: &mut Source<'_>) -> i64 {
    source.integer().clamp(-(1 << 53) + 1, (1 << 53) - 1)
}

fn record(source: &mut Source<'_>) -> Record {
    let state = match source.below(6) {
        0 => executed(source),
        kind => other_state(source, kind),
    };
    Record {
        principal: Principal::new(source.pick(&["", "alice", "a \"b\""])).expect("a principal"),
        first_sent_s: source.optional(number),
        at_ms: number(source),
        deadline: source.optional(number).map_or(LatestDeadline::None, LatestDeadline::At),
        state,
        carried: carried(source),
    }
}

fn fingerprint(source: &mut Source<'_>) -> Fingerprint {
    Fingerprint::from_bytes(&[source.byte(); 32]).expect("32 bytes")
}

fn executed(source: &mut Source<'_>) -> State {
    let fingerprint = fingerprint(source);
    let count = source.below(3);
    let headers: Headers = (0..count).map(|_| (source.pick(&["x-a", "x"]), source.header_text())).collect();
    let status = source.pick(&[200, 204, 299, 400, 499]);
    State::Executed(fingerprint, Outcome { status, headers, body: source.bytes().to_vec() }.into())
}

fn other_state(source: &mut Source<'_>, kind: usize) -> State {
    let fingerprint = fingerprint(source);
    match kind {
        1 => State::Poisoned(fingerprint),
        2 => State::Cancelled { lapses_ms: source.optional(number) },
        3 => State::Suspect { crashes: i64::from(source.byte()), is_started: source.flag() },
        4 => {
            let times = 1 + i64::from(source.byte());
            State::Dispatched {
                fingerprint,
                times,
                first_ms: number(source),
                finds: match source.flag() {
                    true => Finds::Until(number(source).max(0)),
                    false => Finds::Asked(number(source).max(1)),
                },
                whither: source.optional(number),
            }
        }
        _ => State::Tombstone {
            kind: source.pick(&[TombstoneKind::Acknowledged, TombstoneKind::Expired]),
            executed: source.pick(&[Executed::Yes, Executed::No, Executed::Unknown]),
            lapses_ms: number(source),
        },
    }
}

/// Tombstones that a record carries. Their ids are UUIDs, nearly UUIDs, or neither.
fn carried(source: &mut Source<'_>) -> Bundle {
    let count = source.below(3);
    let packed: Vec<_> = (0..count)
        .filter_map(|n| {
            let uuid = format!("8e03978e-40d5-43dd-bc93-6894a57f932{n}");
            let ids = [uuid.clone(), uuid.to_uppercase(), uuid.replace('-', ""), "x".repeat(255), "-".into()];
            let id = ids[source.below(5)].clone();
            let lapses_ms = number(source);
            let state = State::Tombstone { kind: TombstoneKind::Acknowledged, executed: Executed::Yes, lapses_ms };
            let deadline = LatestDeadline::At(0);
            let principal = Principal::default();
            let tombstone =
                Record { principal, first_sent_s: None, at_ms: 0, deadline, state, carried: Bundle::default() };
            let packed = tombstone.packed(&RequestId::new(id).expect("an id"), i64::MAX / 2)?;
            // Never earlier than it should, and less than ten seconds later.
            assert!((lapses_ms.max(0)..lapses_ms.max(0) + 10_000).contains(&packed.lapses_ms()));
            Some(packed)
        })
        .collect();
    packed.iter().collect()
}

fn check_round_trip(source: &mut Source<'_>) {
    let sql = Memory::new();
    schema::create(&sql, schema::Versions::default()).expect("tables");
    let mut written = Vec::new();
    for n in 0..1 + source.below(3) {
        let id = RequestId::new(format!("{n}")).expect("an id");
        let record = record(source);
        rows::put(&sql, &id, &record).expect("written");
        assert_eq!(rows::find(&sql, &id).as_ref(), Ok(&Some(record.clone())));
        written.push((id, record));
    }
    let page = rows::page(&sql, rows::ABOVE_ALL, 10).expect("a page");
    let (totals, last) = totals::page(&sql, "", 10).expect("totals").expect("rows");
    assert_eq!(totals::page(&sql, &last, 10), Ok(None));
    assert_eq!((page.len(), totals.count.records + totals.count.tombstones), (written.len(), written.len() as i64));
    assert_eq!(totals.clock_ms, written.iter().map(|(_, record)| record.at_ms).max().expect("one"));
    for ((id, record), (paged_id, paged)) in written.iter().rev().zip(&page) {
        assert_eq!(id, paged_id);
        assert_eq!(rows::find_bare(&sql, id).as_ref(), Ok(&Some(paged.clone())));
        assert_eq!((&record.principal, record.at_ms, record.deadline), (&paged.principal, paged.at_ms, paged.deadline));
        rows::delete(&sql, id).expect("deleted");
        assert_eq!(rows::find(&sql, id), Ok(None));
    }
}

/// The columns of the tables of requests, each to be read with the type of its values.
const WRITTEN: &[(&str, &str)] = &[
    (
        "id, state, at_ms, first_sent_s, deadline_ms, lapses_ms, crashes, is_started, executed, principal, carried, fingerprint, \
         status, headers, body",
        "semel_records",
    ),
    ("session, seq, epoch, at_ms, state, fingerprint, status, headers, body", "semel_places"),
];

fn written(sql: &Memory) -> Vec<Vec<Row>> {
    let text = |column: &str| match column {
        "principal" | "headers" => format!(
            "CASE typeof({column}) WHEN 'integer' THEN (SELECT text FROM semel_texts WHERE number = {column}) ELSE {column} END"
        ),
        _ => format!("{column}, typeof({column})"),
    };
    let all = WRITTEN.iter().map(|(columns, table)| {
        let columns: Vec<_> = columns.split(", ").map(text).collect();
        sql.exec(&format!("SELECT {} FROM {table} ORDER BY 1, 3", columns.join(", ")), &[]).expect("rows")
    });
    all.collect()
}

/// Ids of all lengths, with all characters that an id may have.
fn id_of(source: &mut Source<'_>, n: usize) -> RequestId {
    let name = match source.below(5) {
        0 => format!("{n}"),
        1 => format!("0192f0c1-2d3e-7a4b-8c5d-{n:012x}"),
        2 => format!("{}{n}", "\"\\ ';~".repeat(1 + source.below(40))),
        3 => format!("{n:0>255}"),
        _ => format!("  {n}  "),
    };
    RequestId::new(name).expect("an id")
}

/// Writes some records and places one by one, and the same at a desk: the tables must be the same, byte for byte.
pub fn check_at_a_desk(bytes: &[u8]) {
    let source = &mut Source::new(bytes);
    let (one, many) = (Memory::new(), Memory::new());
    for sql in [&one, &many] {
        schema::create(sql, schema::Versions::default()).expect("tables");
    }
    // The counts lie around those of the statements that write many rows. Times are not before 1970.
    let count = source.pick(&[1, 2, 3, 7, 64, 65, 127, 128, 129]);
    let [split, taken_before, ack] = [0; 3].map(|_| source.below(count + 1));
    let made: Vec<_> = (0..count)
        .map(|n| {
            let (id, record) = (id_of(source, n), record(source));
            (
                id,
                Record {
                    first_sent_s: record.first_sent_s.map(i64::abs),
                    deadline: not_before_0(record.deadline),
                    ..record
                },
            )
        })
        .collect();
    let (stored, new) = made.split_at(split);
    let (gone, kept): (Vec<_>, Vec<_>) = stored.iter().map(|(id, _)| id).partition(|_| source.below(4) < 3);
    // Some records replace one that has a row, like that of a suspect.
    let of_kept = |(n, (id, record)): (usize, &(RequestId, Record))| match kept.get(n) {
        Some(kept) if source.flag() => ((*kept).clone(), record.clone()),
        _ => (id.clone(), record.clone()),
    };
    let new: Vec<_> = new.iter().enumerate().map(of_kept).collect();
    for sql in [&one, &many] {
        stored.iter().for_each(|(id, record)| rows::put(sql, id, record).expect("written"));
    }
    let ids: Vec<_> = new.iter().map(|(id, _)| id.clone()).filter(|_| source.below(4) < 3).collect();
    let desk = Desk::shared(&many, Kept::default());
    if source.below(4) < 3 {
        desk.read_ahead(&gone, &ids).expect("read");
    }
    let places: Vec<_> = (1..=count as i64).map(|seq| (seq, taken(source))).collect();
    let (name, principal) = (SessionName::new("s").expect("a name"), Principal::default());
    for sql in [&one, &many] {
        sessions::rows::insert(sql, &name, &principal, &Epochs::first(1), 0).expect("written");
    }
    for sql in [&one as &dyn Sql, &many] {
        places[..taken_before]
            .iter()
            .for_each(|(seq, taken)| sessions::rows::put_taken(sql, 1, *seq, taken).expect("written"));
    }
    for sql in [&one as &dyn Sql, &desk] {
        let session = sessions::rows::find(sql, &name).expect("read").expect("a session");
        gone.iter().for_each(|id| rows::delete(sql, id).expect("deleted"));
        new.iter().for_each(|(id, record)| rows::put(sql, id, record).expect("written"));
        places[taken_before..].iter().for_each(|(seq, taken)| {
            sessions::rows::put_taken(sql, session.number, *seq, taken).expect("written");
        });
        sessions::rows::delete_places(sql, session.number, ack as i64 - 1).expect("deleted");
        new.iter().for_each(|(id, record)| assert_eq!(rows::find(sql, id).as_ref(), Ok(&Some(record.clone()))));
    }
    desk.write().expect("written");
    assert_eq!(written(&many), written(&one));
    new.iter().for_each(|(id, record)| assert_eq!(rows::find(&many, id).as_ref(), Ok(&Some(record.clone()))));
}

fn not_before_0(deadline: LatestDeadline) -> LatestDeadline {
    match deadline {
        LatestDeadline::At(deadline_ms) => LatestDeadline::At(deadline_ms.abs()),
        LatestDeadline::None => LatestDeadline::None,
    }
}

/// A place that was taken, usually by a request that ran.
fn taken(source: &mut Source<'_>) -> Taken {
    let State::Executed(fingerprint, outcome) = executed(source) else { unreachable!("it ran") };
    let state = match source.below(8) {
        1 => TakenState::Poisoned(fingerprint),
        2 => TakenState::Cancelled,
        _ => TakenState::Executed(fingerprint, outcome),
    };
    Taken { epoch: 1 + i64::from(source.byte() % 2), at_ms: number(source), state }
}

/// A value that a STRICT table takes in this column.
fn damaged_value(source: &mut Source<'_>, column: &str) -> Value {
    match column {
        // A number without its text.
        "principal" | "headers" if source.below(4) == 0 => Value::Integer(source.integer()),
        "principal" | "headers" => Value::Text(source.text()),
        "fingerprint" | "body" | "carried" if source.flag() => Value::Null,
        "fingerprint" => Value::Blob(vec![source.byte(); source.pick(&[0, 31, 32, 33])]),
        "body" | "carried" => Value::Blob(source.bytes().to_vec()),
        "state" => Value::Integer(if source.flag() { i64::from(source.byte() % 9) } else { source.integer() }),
        "at_ms" => Value::Integer(source.integer()),
        _ if source.flag() => Value::Null,
        _ => Value::Integer(source.integer()),
    }
}

/// Damages a row, and then asks everything about its id that can be asked.
fn check_damaged(source: &mut Source<'_>) {
    let mut key = KeyUnderTest::new();
    key.ask(&post("/count").id("first"));
    let id = RequestId::new(ID).expect("an id");
    rows::put(&key.sql, &id, &record(source)).expect("written");
    for _ in 0..1 + source.below(4) {
        let column = source.pick(COLUMNS);
        let value = damaged_value(source, column);
        let statement = format!("UPDATE semel_records SET {column} = ?1 WHERE id = '{ID}'");
        // The value may be beyond the limit of the trait, which only damage can do.
        key.sql.damage(&statement, &value);
    }
    if source.below(4) == 0 {
        let column = source.pick(&["engine_version", "handler_version", "fence_s", "clock_ms"]);
        let value = Value::Integer(source.integer());
        key.sql.damage(&format!("UPDATE semel_meta SET {column} = ?1"), &value);
    }
    key.restart();
    let found = rows::find(&key.sql, &id);
    check_found(&key.sql, found.as_ref());
    let mut may_run = matches!(&found, Ok(Some(Record { state: State::Suspect { .. }, .. })));
    for _ in 0..1 + source.below(4) {
        // An id whose row the sweep has removed counts as new.
        may_run |= rows::find(&key.sql, &id) == Ok(None);
        let call = match source.below(5) {
            0 | 1 => post("/count").id(ID),
            2 => cancel("cancellation", ID),
            3 => look_up(ID),
            _ => acknowledge(&format!("[\"{ID}\"]")),
        };
        let principal = source.pick(&["", "alice"]);
        let arrival = arrival_at(&call, principal);
        match source.below(4) {
            0 => drop(key.start(&arrival)),
            1 => drop(key.crashed(&arrival)),
            _ => drop(key.handle(&arrival)),
        }
        if source.flag() {
            key.handle(&arrival_at(&get("/count"), principal));
        }
        let effects = key.effects_of(ID);
        assert!(effects == 0 || may_run, "an id with a row ran: {found:?}");
    }
}

/// Asserts that what was read of a damaged row is what its columns say.
fn check_found(sql: &Memory, found: Result<&Option<Record>, &semel_core::server::SqlError>) {
    let Ok(record) = found else { return };
    let record = record.as_ref().expect("the row is there");
    let column = |name: &str| {
        let text = "(SELECT text FROM semel_texts WHERE number =";
        let statement = format!(
            "SELECT CASE WHEN '{name}' IN ('principal', 'headers') AND typeof({name}) = 'integer' THEN {text} {name}) \
             ELSE {name} END FROM semel_records WHERE id = '{ID}'"
        );
        sql.exec(&statement, &[]).expect("a row")[0][0].clone()
    };
    assert_eq!(Value::from(record.at_ms), column("at_ms"));
    assert_eq!(Value::from(record.first_sent_s), column("first_sent_s"));
    assert_eq!(Value::from(record.principal.as_str()), column("principal"));
    match &record.state {
        State::Executed(_, outcome) => {
            assert!((200..=599).contains(&outcome.status), "{outcome:?} can't be sent");
            assert_eq!(Value::from(outcome.headers.to_lines()), column("headers"));
            assert_eq!(Value::from(outcome.body.as_slice()), column("body"));
        }
        State::Tombstone { executed: Executed::No, .. } => assert_eq!(column("executed"), Value::Integer(0)),
        State::Tombstone { executed: Executed::Yes, .. } => assert_eq!(column("executed"), Value::Integer(1)),
        State::Suspect { crashes, .. } => assert!(*crashes >= 0),
        State::Dispatched { times, .. } => assert!(*times > 0),
        State::Tombstone { .. } | State::Cancelled { .. } | State::Poisoned(_) => {}
    }
}
