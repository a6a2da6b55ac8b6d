//! What a key keeps, and how it is read and written.
//!
//! - [`sql`]: the one trait through which all storage goes; `watched`: whether anything was written
//! - [`schema`]: the tables, with a version
//! - [`record`]: records and their life; pure. [`rows`]: their rows; [`survey`]: what is asked of all at once; [`totals`]: what all come to
//! - [`tombstones`]: those of acknowledged requests, many to a row; [`packed`]: as bytes
//! - [`retention`]: the fence and the sweep
//! - [`sessions`]: sessions and their places; [`crashes`]: how often a handler crashed on an id
//! - [`desk`]: rows of requests that are committed together, read and written together
//! - [`state`]: what a handler keeps in memory as long as a transaction lasts

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
