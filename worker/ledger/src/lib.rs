//! The ledger, as it is deployed: the protected accounts, and beside them naive ones to compare with.

pub mod ledger;
mod naive;

pub use ledger::Ledger;

semel_worker::export!(Ledger);
