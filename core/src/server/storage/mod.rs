//! What a key keeps, and how it is read and written.
//!
//! - [`sql`]: the trait through which all storage goes; `watched`: whether anything was written
//! - [`schema`]: the tables and their versions
//! - [`record`]: records and their life, without I/O. [`rows`]: their rows; [`survey`]: queries over all records;
//!   [`totals`]: counts of all records
//! - [`tombstones`]: the tombstones of acknowledged requests, many to a row; [`packed`]: their bytes
//! - [`retention`]: the fence and the sweep
//! - [`sessions`]: sessions and their places; [`crashes`]: how often a handler crashed on an id
//! - [`desk`]: reads and writes together the rows of requests that are committed together
//! - [`state`]: what a handler keeps in memory during a transaction

pub mod crashes;
pub mod desk;
pub mod packed;
pub mod record;
pub mod retention;
pub mod rows;
pub mod schema;
pub mod sessions;
pub mod sql;
pub mod state;
pub mod survey;
pub mod tombstones;
pub mod totals;
pub(super) mod watched;
