//! What a handler keeps of its rows in memory, as long as a transaction lasts: loaded once, and stored once, however many requests of one commit
//! work with it.
//!
//! Invariants:
//! - Who asks gets what is stored, or what a request before it in the same transaction has put.
//! - What was put is stored before its transaction ends. Where one is undone, nothing of it is known any more.
//! - A statement of the handler's sees what was put, and what it writes is seen by who asks next.

use super::handler::Context;
use super::sql::{Sql, SqlError};
use std::any::Any;

/// Rows as a value: what most requests of a key change, such as its balance. A statement takes longer than all else in a request of a batch, so
/// what is loaded and stored once for many of them makes each a third cheaper.
///
/// An error of [`State::store`] is one of the request's statements: what it asked is undone, and it runs by itself where others were with it.
pub trait State: Clone + 'static {
    /// Reads it: also where there is nothing of it yet.
    fn load(sql: &dyn Sql) -> Result<Self, SqlError>;

    /// Writes it.
    fn store(&self, sql: &dyn Sql) -> Result<(), SqlError>;
}

impl Context<'_> {
    /// The state of that type, as it is by now.
    pub fn state<S: State>(&self) -> Result<S, SqlError> {
        self.sql.desk().map_or_else(|| S::load(self.sql), |desk| desk.state())
    }

    /// Has it stored with all else that the request does.
    pub fn put<S: State>(&self, state: S) -> Result<(), SqlError> {
        match self.sql.desk() {
            Some(desk) => {
                desk.put(state);
                Ok(())
            }
            None => state.store(self.sql),
        }
    }

    /// Has what was put stored, where nobody else comes in this transaction: what can't be is this handler's failure.
    pub(super) fn store_alone(&self) -> Result<(), SqlError> {
        self.sql.desk().map_or(Ok(()), |desk| desk.store_alone())
    }
}

/// What is known of each type. A handler has few.
#[derive(Default)]
pub(super) struct States(Vec<Known>);

struct Known {
    state: Box<dyn Stored>,
    /// Whether it has yet to be stored.
    is_changed: bool,
}

trait Stored: Any {
    fn write(&self, sql: &dyn Sql) -> Result<(), SqlError>;
}

impl<S: State> Stored for S {
    fn write(&self, sql: &dyn Sql) -> Result<(), SqlError> {
        self.store(sql)
    }
}

impl States {
    pub fn get<S: State>(&self) -> Option<S> {
        self.0.iter().find_map(|known| (&*known.state as &dyn Any).downcast_ref::<S>()).cloned()
    }

    pub fn put<S: State>(&mut self, state: S, is_changed: bool) {
        let of_type = |known: &&mut Known| (&*known.state as &dyn Any).is::<S>();
        match self.0.iter_mut().find(of_type) {
            Some(known) => *known = Known { state: Box::new(state), is_changed },
            None => self.0.push(Known { state: Box::new(state), is_changed }),
        }
    }

    /// Stores what has changed. It stays known.
    // Once, and not in each place that has it stored.
    #[inline(never)]
    pub fn write(&mut self, sql: &dyn Sql) -> Result<(), SqlError> {
        for known in self.0.iter_mut().filter(|known| known.is_changed) {
            known.state.write(sql)?;
            known.is_changed = false;
        }
        Ok(())
    }
}
