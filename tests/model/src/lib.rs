//! Every order of events within small bounds: the real decisions of both halves under a model checker.
//!
//! Nothing of Semel is copied here. The server is the real engine behind the real router, with its memory, on tables in memory.
//! The client is the real machine, on rows in memory.
//!
//! - [`letters`]: a key among clients that may be anybody. [`scopes`]: what is explored of it
//! - [`tabs`]: the tabs of one client, with the store that they share. [`tab_scopes`]: what is explored of them
//! - [`tab_state`]: the state of all that
//! - [`tab`], [`messages`], [`answers`]: a tab, what it sends, what it hears
//! - [`holders`]: the tabs of one client that contend for a session, with the store that they share. [`holder_scopes`]: what is explored of them
//! - [`holder_state`]: the state of all that, and its judge
//! - [`holder`], [`frames`]: a tab with the machine of its session, what it sends
//! - [`history`]: what stands for a machine of the client
//! - [`server`], [`ledger`], [`tables`], [`session_tables`]: the engine, the handler, what is committed. [`database`]: what goes wrong with
//!   that. [`values`]: the rows of one statement
//! - [`session_scopes`]: what is explored of sessions. [`session_judge`]: what the judge knows of them
//! - [`batches`]: a key that takes batches and frames. [`batch_scopes`]: what is explored of it
//! - [`groups`]: a key whose commits take their time, with what they bring together. [`group_scopes`]: what is explored of it
//! - [`remotes`]: a key whose requests are executed [`elsewhere`]. [`remote_scopes`]: what is explored of it. [`remote_judge`]: its judge
//! - [`effects`]: a key that has requests sent to another. [`effect_scopes`]: what is explored of it. [`effect_state`], [`effect_judge`]:
//!   the state of all that, and its judge. [`payer`]: its handler. [`effect_tables`]: what it has committed of them
//! - [`oracle`]: the judge. [`properties`]: what must never be, and what must be sometimes
//! - [`mutants`]: for each rule, the property that finds out when it does not hold
//!
//! Invariants:
//! - A step has one successor: no wall clock, no randomness.
//! - A state is all there is: two states that are equal behave alike from then on.

pub mod answers;
pub mod batch_scopes;
pub mod batches;
pub mod database;
pub mod effect_judge;
pub mod effect_scopes;
pub mod effect_state;
pub mod effect_tables;
pub mod effects;
pub mod elsewhere;
pub mod frames;
pub mod group_scopes;
pub mod groups;
pub mod history;
pub mod holder;
pub mod holder_scopes;
pub mod holder_state;
pub mod holders;
pub mod ledger;
pub mod letters;
pub mod messages;
pub mod mutants;
pub mod oracle;
pub mod payer;
pub mod properties;
pub mod remote_judge;
pub mod remote_scopes;
pub mod remotes;
pub mod scopes;
pub mod server;
pub mod session_judge;
pub mod session_scopes;
pub mod session_tables;
pub mod tab;
pub mod tab_scopes;
pub mod tab_state;
pub mod tables;
pub mod tabs;
pub mod values;
