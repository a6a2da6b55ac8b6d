//! The ledger as it is deployed: protected accounts, and unprotected ones to compare with.

pub mod ledger;
mod naive;

pub use ledger::Ledger;

semel_worker::export!(Ledger);
