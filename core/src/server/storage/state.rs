//! What a handler keeps in memory of its rows during a transaction. It is loaded once and stored once, however many
//! requests of one commit work with it.
//!
//! Invariants:
//! - A read returns what is stored, or what an earlier request of the same transaction has put.
//! - A value whose storing may fail, or whose rows another type may read, is stored before the next request runs.
//!   Otherwise, in a shared transaction, a later request could hide the failure.
//! - What was put is stored before its transaction ends. When a transaction is undone, all of this memory is dropped.
//! - A statement of the handler sees what was put, and later reads see what the statement writes.

use super::sql::{Sql, SqlError};
use std::any::Any;

/// Rows as one value, for what most requests of a key change, such as its balance. In a batch, a statement takes longer
/// than all else in a request. Loading and storing the value once for many requests makes each request a third cheaper.
///
/// An error of [`State::store`] counts as an error of the request's statement: the request is undone, and if it shared a
/// transaction with others, it runs again by itself.
pub trait State: Clone + 'static {
    /// Whether the value may stay in memory until the end of a commit and be stored once for all its requests. Set it
    /// only if [`State::store`] accepts whatever a handler puts (no `CHECK`, no trigger and no number too large can
    /// refuse it) and no other type uses the same rows. Otherwise it is stored after each request.
    const IS_KEPT: bool = false;

    /// Reads the value. Must also work where nothing of it is stored yet.
    fn load(sql: &dyn Sql) -> Result<Self, SqlError>;

    /// Writes the value.
    fn store(&self, sql: &dyn Sql) -> Result<(), SqlError>;
}

/// The known value of each type. A handler has few types.
#[derive(Default)]
pub(super) struct States(Vec<Known>);

struct Known {
    state: Box<dyn Stored>,
    /// Whether the value still has to be stored.
    is_changed: bool,
}

impl Known {
    /// The value to be overwritten, if it is of that type. It then counts as changed.
    fn of<S: State>(&mut self) -> Option<&mut S> {
        let state = (&mut *self.state as &mut dyn Any).downcast_mut()?;
        self.is_changed = true;
        Some(state)
    }
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

    /// Loads a value that is not known. First stores what another type may have put into the same rows.
    pub fn load<S: State>(&mut self, sql: &dyn Sql) -> Result<S, SqlError> {
        if !S::IS_KEPT {
            self.write_own(sql)?;
        }
        let state = S::load(sql)?;
        self.0.push(Known { state: Box::new(state.clone()), is_changed: false });
        Ok(state)
    }

    /// Takes a value to be stored. Drops the values of other types that may use the same rows.
    pub fn put<S: State>(&mut self, state: S, sql: &dyn Sql) -> Result<(), SqlError> {
        if S::IS_KEPT {
            if let Some(known) = self.0.iter_mut().find_map(Known::of::<S>) {
                *known = state;
                return Ok(());
            }
        } else {
            self.0.retain(|known| !(&*known.state as &dyn Any).is::<S>());
            self.write_own(sql)?;
            self.0.retain(|known| known.state.is_kept());
        }
        self.0.push(Known { state: Box::new(state), is_changed: true });
        Ok(())
    }

    /// Stores all changed values, and keeps them in memory.
    pub fn write_all(&mut self, sql: &dyn Sql) -> Result<(), SqlError> {
        self.write(sql, |_| true)
    }

    /// Stores the changed values that may not wait for the end of the commit.
    pub fn write_own(&mut self, sql: &dyn Sql) -> Result<(), SqlError> {
        self.write(sql, |state| !state.is_kept())
    }

    // Not inlined, to keep one copy of the code instead of one for each caller.
    #[inline(never)]
    fn write(&mut self, sql: &dyn Sql, is_due: fn(&dyn Stored) -> bool) -> Result<(), SqlError> {
        for known in self.0.iter_mut().filter(|known| known.is_changed && is_due(&*known.state)) {
            known.state.write(sql)?;
            known.is_changed = false;
        }
        Ok(())
    }
}
