//! Explores every order of events within small bounds: a model checker runs the real decisions of both halves.
//!
//! Nothing of Semel is copied here. The server is the real engine behind the real router, with its memory, on tables in memory.
//! The client is the real machine, on rows in memory.
//!
//! Each model has a module, and another with its scopes, which say what is explored:
//!
//! - [`letters`], [`scopes`] and, for sessions, [`session_scopes`]: a key whose clients may be anybody
//! - [`batches`], [`batch_scopes`]: a key that takes batches and frames
//! - [`groups`], [`group_scopes`]: a key whose commits take time, and which commits together what arrives meanwhile.
//!   [`group_state`]: its state
//! - [`remotes`], [`remote_scopes`]: a key whose requests are executed [`elsewhere`]. [`remote_judge`]: its judge
//! - [`effects`], [`effect_scopes`]: a key that emits requests to another. [`effect_state`], [`effect_judge`]: its state and its
//!   judge. [`payer`]: its handler. [`effect_tables`]: its tables
//! - [`tabs`], [`tab_scopes`]: the tabs of one client, with the store that they share. [`tab_state`]: its state. [`tab`]: one tab
//! - [`holders`], [`holder_scopes`]: the tabs of one client that contend for a session, with the store that they share.
//!   [`holder_state`]: its state and its judge. [`holder`]: one tab with the machine of its session
//!
//! What they share:
//!
//! - [`messages`], [`frames`], [`answers`]: what a tab and a session send, and what they get
//! - [`history`]: what stands for a machine of the client
//! - [`server`], [`ledger`], [`tables`], [`session_tables`]: the engine, the handler, and what is committed. [`reads`]: how that
//!   is read. [`database`]: the faults of the storage. [`values`]: the rows of one statement
//! - [`oracle`], [`session_judge`]: the judge, and its part for sessions. [`properties`]: what must never happen, and what must
//!   happen sometimes
//! - [`mutants`]: for each rule, the property that is broken without it
//!
//! Invariants:
//! - A step has one successor: there is no wall clock and no randomness.
//! - A state is complete: two equal states behave alike from then on.

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
pub mod group_state;
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
pub mod reads;
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
