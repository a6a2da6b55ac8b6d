//! What a handler keeps of its rows in memory, as long as a transaction lasts: loaded once, and stored once, however many requests of one commit
//! work with it.
//!
//! Invariants:
//! - Who asks gets what is stored, or what a request before it in the same transaction has put.
//! - What may be refused, or be seen by another type, is stored before the next request: where many share a transaction, a later one must not cover it up.
//! - What was put is stored before its transaction ends. Where one is undone, nothing of it is known any more.
//! - A statement of the handler's sees what was put, and what it writes is seen by who asks next.

use super::sql::{Sql, SqlError};
use std::any::Any;

/// Rows as a value: what most requests of a key change, such as its balance. A statement takes longer than all else in a request of a batch, so
/// what is loaded and stored once for many of them makes each a third cheaper.
///
/// An error of [`State::store`] is one of the request's statements: what it asked is undone, and it runs by itself where others were with it.
pub trait State: Clone + 'static {
    /// Whether it may be kept until the end of a commit, stored once for all its requests: [`State::store`] takes whatever a handler puts, so that no `CHECK`,
    /// no trigger and no number too large for a statement refuses it, and no other type is of the same rows. Else it is stored after each request.
    const IS_KEPT: bool = false;

    /// Reads it: also where there is nothing of it yet.
    fn load(sql: &dyn Sql) -> Result<Self, SqlError>;

    /// Writes it.
    fn store(&self, sql: &dyn Sql) -> Result<(), SqlError>;
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
    fn is_kept(&self) -> bool;
}

impl<S: State> Stored for S {
    fn write(&self, sql: &dyn Sql) -> Result<(), SqlError> {
        self.store(sql)
    }

    fn is_kept(&self) -> bool {
        S::IS_KEPT
    }
}

impl States {
    pub fn get<S: State>(&self) -> Option<S> {
        self.0.iter().find_map(|known| (&*known.state as &dyn Any).downcast_ref::<S>()).cloned()
    }

    /// Loads what is not known. It may be of rows that another type has yet to write.
    pub fn load<S: State>(&mut self, sql: &dyn Sql) -> Result<S, SqlError> {
        if !S::IS_KEPT {
            self.write_own(sql)?;
        }
        let state = S::load(sql)?;
        self.0.push(Known { state: Box::new(state.clone()), is_changed: false });
        Ok(state)
    }

    /// What is to be stored. Of others that may be of the same rows nothing is known any more.
    pub fn put<S: State>(&mut self, state: S, sql: &dyn Sql) -> Result<(), SqlError> {
        self.0.retain(|known| !(&*known.state as &dyn Any).is::<S>());
        if !S::IS_KEPT {
            self.write_own(sql)?;
            self.0.retain(|known| known.state.is_kept());
        }
        self.0.push(Known { state: Box::new(state), is_changed: true });
        Ok(())
    }

    /// Stores what has changed. It stays known.
    pub fn write_all(&mut self, sql: &dyn Sql) -> Result<(), SqlError> {
        self.write(sql, |_| true)
    }

    /// Stores what has changed and is not kept until the end.
    pub fn write_own(&mut self, sql: &dyn Sql) -> Result<(), SqlError> {
        self.write(sql, |state| !state.is_kept())
    }

    // Once, and not in each place that has it stored.
    #[inline(never)]
    fn write(&mut self, sql: &dyn Sql, is_due: fn(&dyn Stored) -> bool) -> Result<(), SqlError> {
        for known in self.0.iter_mut().filter(|known| known.is_changed && is_due(&*known.state)) {
            known.state.write(sql)?;
            known.is_changed = false;
        }
        Ok(())
    }
}
