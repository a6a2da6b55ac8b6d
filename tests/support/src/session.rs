//! Requests of a session to the key under test.

use crate::call::{Call, control, post};
use crate::reply::Reply;
use crate::world::World;
use semel_core::header::quoted;
use semel_core::server::Handler;

/// The name of the session in tests.
pub const SESSION: &str = "s";

/// The take-over `own` of the session.
pub fn take_over(own: &str) -> Call {
    take_over_with(own, &format!("{{\"name\":\"{SESSION}\"}}"))
}

/// The take-over `own`, which expects this epoch to be current.
pub fn take_over_after(own: &str, after: i64) -> Call {
    take_over_with(own, &format!("{{\"name\":\"{SESSION}\",\"after\":{after}}}"))
}

/// The take-over `own` with a JSON body.
pub fn take_over_with(own: &str, body: &str) -> Call {
    post(&control("sessions")).id(own).body(body)
}

/// A place in the first epoch of a session with a name.
pub fn numbered_of(name: &str, seq: i64) -> Call {
    post("/count").header("semel-session", format!("\"{name}\";epoch=1;seq={seq}"))
}

/// The cancellation `own` of a place of the session.
pub fn cancel_place(own: &str, epoch: i64, seq: i64) -> Call {
    let body = format!("{{\"session\":{{\"name\":\"{SESSION}\",\"epoch\":{epoch},\"seq\":{seq}}}}}");
    post(&control("cancel")).id(own).body(body)
}

/// A change at a place of the session.
pub fn numbered(epoch: i64, seq: i64) -> Call {
    post("/count").place(epoch, seq)
}

impl Call {
    /// The same at a place of the session.
    pub fn place(self, epoch: i64, seq: i64) -> Self {
        self.header("semel-session", format!("{};epoch={epoch};seq={seq}", quoted(SESSION)))
    }

    /// The same at a place of the session, with an acknowledgement of all places up to `ack`.
    pub fn place_acking(self, epoch: i64, seq: i64, ack: i64) -> Self {
        self.header("semel-session", format!("{};epoch={epoch};seq={seq};ack={ack}", quoted(SESSION)))
    }
}

impl Reply {
    /// Asserts that the session was taken over, under this epoch and after this number.
    #[track_caller]
    pub fn is_taken_over(&self, epoch: i64, last_seq: i64) -> &Self {
        self.is_executed(200);
        let json = self.json();
        assert_eq!((json["epoch"].as_i64(), json["lastSeq"].as_i64()), (Some(epoch), Some(last_seq)), "{json}");
        self
    }

    /// Asserts that the epoch of the request is over, what is said of its place, and which epoch is current.
    #[track_caller]
    pub fn is_fenced(&self, executed: &str, current_epoch: i64) -> &Self {
        self.is_problem(409, "fenced", executed, "never");
        assert_eq!(self.json()["currentEpoch"], current_epoch);
        self
    }

    /// Asserts that the number is beyond the next, and which number that is.
    #[track_caller]
    pub fn is_gap(&self, expected_seq: i64) -> &Self {
        self.is_problem(409, "sequence-gap", "no", "same-id");
        assert_eq!(self.json()["expectedSeq"], expected_seq);
        self
    }
}

impl<H: Handler> World<H> {
    /// All places that have a row: number, epoch, state, and whether there is an outcome.
    pub fn places(&self) -> Vec<(i64, i64, i64, bool)> {
        let rows =
            self.database.query("SELECT seq, epoch, state, body IS NOT NULL FROM semel_places ORDER BY session, seq");
        let number = |row: &[semel_core::server::Value], column: usize| row[column].as_integer().expect("an integer");
        rows.iter().map(|row| (number(row, 0), number(row, 1), number(row, 2), number(row, 3) == 1)).collect()
    }

    /// The same key, with the session at its first epoch.
    #[track_caller]
    pub fn in_session(mut self) -> Self {
        self.send(&take_over("takes over")).is_taken_over(1, 0);
        self
    }
}
