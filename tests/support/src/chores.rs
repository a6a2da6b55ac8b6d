//! What the host does with the object of a key without a request, step by step.

use crate::world::World;
use semel_core::server::registry::Report;
use semel_core::server::{Handler, SqlError};

/// The size of the database in reports, in bytes.
pub const BYTES: i64 = 40_960;

impl<H: Handler> World<H> {
    /// When the object has to be woken.
    pub fn wakes_at(&self) -> Option<i64> {
        self.engine.wakes_at(true)
    }

    /// The same, without a registry.
    pub fn wakes_at_without_registry(&self) -> Option<i64> {
        self.engine.wakes_at(false)
    }

    /// Wakes the object, and sweeps until nothing is left to sweep.
    pub fn wake(&mut self) -> Result<(), SqlError> {
        self.engine.woken(self.wall_ms);
        while self.sweep_page()? {}
        Ok(())
    }

    /// Sweeps a page.
    pub fn sweep_page(&mut self) -> Result<bool, SqlError> {
        self.engine.sweep_page(&self.database, self.wall_ms)
    }

    /// Wakes the object, and has the registry take its report.
    pub fn tell(&mut self) {
        self.wake().unwrap();
        let report = self.report().unwrap().expect("there is something to tell");
        self.reported(&report, 0).unwrap();
    }

    /// The report at the next instant at which the object has to be woken. There must be one.
    #[track_caller]
    pub fn tells(&mut self) -> Report {
        let at_ms = self.wakes_at().expect("it has something to tell");
        self.wall_ms = self.wall_ms.max(at_ms);
        self.wake().expect("storage");
        let report = self.report().expect("storage").expect("a report");
        self.reported(&report, 0).expect("storage");
        report
    }

    /// Wakes the object, without a registry.
    pub fn wake_without_registry(&mut self) {
        self.wake().unwrap();
        self.engine.drop_name(&self.database, self.wall_ms).unwrap();
    }

    /// The report for the registry.
    pub fn report(&mut self) -> Result<Option<Report>, SqlError> {
        self.engine.report(&self.database, self.wall_ms, BYTES)
    }

    /// Gives the object the registry's answer to a report.
    pub fn reported(&mut self, report: &Report, before_s: impl Into<Option<i64>>) -> Result<(), SqlError> {
        self.engine.reported(&self.database, self.wall_ms, report, before_s.into())
    }
}
