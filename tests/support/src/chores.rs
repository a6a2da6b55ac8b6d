//! What the host does with a key without a request, step by step.

use crate::world::World;
use semel_core::server::registry::Report;
use semel_core::server::{Handler, SqlError};

/// The size that the database is said to have.
pub const BYTES: i64 = 40_960;

impl<H: Handler> World<H> {
    /// When the object is to be woken.
    pub fn wakes_at(&self) -> Option<i64> {
        self.engine.wakes_at(true)
    }

    /// The same, where there is no registry.
    pub fn wakes_at_without_registry(&self) -> Option<i64> {
        self.engine.wakes_at(false)
    }

    /// Wakes it: sweeps all there is.
    pub fn wake(&mut self) -> Result<(), SqlError> {
        self.engine.woken(self.wall_ms);
        while self.sweep_page()? {}
        Ok(())
    }

    /// Sweeps one page.
    pub fn sweep_page(&mut self) -> Result<bool, SqlError> {
        self.engine.sweep_page(&self.database, self.wall_ms)
    }

    /// Wakes it, and has the registry take what it tells.
    pub fn tell(&mut self) {
        self.wake().unwrap();
        let report = self.report().unwrap().expect("there is something to tell");
        self.reported(&report, 0).unwrap();
    }

    /// What it tells the registry when it is woken next, which it has to be.
    #[track_caller]
    pub fn tells(&mut self) -> Report {
        let at_ms = self.wakes_at().expect("it has something to tell");
        self.wall_ms = self.wall_ms.max(at_ms);
        self.wake().expect("storage");
        let report = self.report().expect("storage").expect("a report");
        self.reported(&report, 0).expect("storage");
        report
    }

    /// Wakes it where there is no registry.
    pub fn wake_without_registry(&mut self) {
        self.wake().unwrap();
        self.engine.drop_name(&self.database, self.wall_ms).unwrap();
    }

    /// What the registry is to be told.
    pub fn report(&mut self) -> Result<Option<Report>, SqlError> {
        self.engine.report(&self.database, self.wall_ms, BYTES)
    }

    /// Has the registry answer a report.
    pub fn reported(&mut self, report: &Report, before_s: impl Into<Option<i64>>) -> Result<(), SqlError> {
        self.engine.reported(&self.database, self.wall_ms, report, before_s.into())
    }
}
