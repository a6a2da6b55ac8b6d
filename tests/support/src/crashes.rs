//! Crashes between any two statements of a request to the key under test.

use crate::call::Call;
use crate::world::World;

/// Everything that is committed and that a client could ever learn of.
pub fn committed(world: &World) -> Vec<Vec<String>> {
    let queries = [
        "SELECT id FROM effects ORDER BY id",
        "SELECT id, state, principal, first_sent_s, at_ms, deadline_ms, lapses_ms, crashes, is_started, executed, hex(carried), hex(fingerprint), status, headers, hex(body) FROM semel_records ORDER BY id",
        "SELECT chunk, at_ms, lapses_ms, principal, hex(entries) FROM semel_tombstones",
        "SELECT text FROM semel_texts ORDER BY text",
        "SELECT name, principal, hex(epochs), closed_seq, closed_ack, crashes, is_started, at_ms FROM semel_sessions",
        "SELECT session, seq, epoch, at_ms, state, hex(fingerprint), status, headers, hex(body) FROM semel_places ORDER BY session, seq",
        "SELECT engine_version, handler_version, fence_s, clock_ms, forgotten_s, epoch FROM semel_meta",
    ];
    let rows = queries.iter().flat_map(|query| world.database.query(query));
    rows.map(|row| row.iter().map(|value| format!("{value:?}")).collect()).collect()
}

/// Crashes before each statement of `call` in turn, at a key that `ready` makes. Each time, the state must be the one
/// before or the one after the call, and sending the call again must end as without a crash.
pub fn everywhere(ready: impl Fn() -> World, call: &Call, effects: i64) {
    let mut whole = ready();
    let before = committed(&whole);
    let expected = whole.send(call);
    let after = committed(&whole);
    assert_ne!(before, after, "the request writes");
    let mut crashes = 0;
    loop {
        let mut world = ready();
        world.database.crash_before(crashes);
        let got = world.send(call);
        if !world.database.has_crashed() {
            assert_eq!(got, expected);
            break;
        }
        got.is_problem(503, "unavailable", "unknown", "same-id");
        world.restart();
        let found = committed(&world);
        assert!(found == before || found == after, "crash {crashes} left a part: {found:?}");
        world.send(call).only("semel-status");
        assert_eq!(world.effects(), effects, "crash {crashes}");
        // Whether or not it was executed before the crash, another attempt gets the same answer.
        let again = world.send(call);
        assert_eq!((again.status(), again.body()), (expected.status(), expected.body()), "crash {crashes}");
        crashes += 1;
    }
    assert!(crashes >= 4, "only {crashes} places to crash");
}
