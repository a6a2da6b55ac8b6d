//! What a caller gets where there is no outcome.
//!
//! Invariant: `executed` is `no` only where the request never ran under its id and never will. Whatever a problem says of
//! one attempt, an earlier one may have run.

use crate::problem::{Executed, Retry};

macro_rules! client_codes {
    ($($(#[$doc:meta])* $name:ident $code:literal $executed:ident $retry:ident $detail:literal;)*) => {
        /// A code of the client's own.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum ClientCode {
            $(#[doc = $detail] $name,)*
        }

        impl ClientCode {
            /// Every code.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The code as the caller sees it.
            pub fn as_str(self) -> &'static str {
                self.parts().0
            }

            fn parts(self) -> (&'static str, Executed, Retry, &'static str) {
                match self { $(Self::$name => ($code, Executed::$executed, Retry::$retry, $detail),)* }
            }
        }
    };
}

// What never left ends in "not sent": by that `sdk/js/semel.js` knows it.
client_codes! {
    OutboxFull "outbox-full" No Never "too many requests are pending, so it was not sent";
    StoreFailed "store-failed" No Never "it could not be stored, so it was not sent";
    GaveUp "gave-up" Unknown SameId "no definitive answer in time; it goes on";
    OutcomeLost "outcome-lost" Unknown Never "it is no longer stored, and its answer is not kept";
}

/// An answer that is no outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// A code of the protocol, of the client, or of a newer server.
    pub code: String,
    /// Whether the request ran.
    pub executed: Executed,
    /// How to go on.
    pub retry: Retry,
    /// This case in a sentence.
    pub detail: String,
    /// The body of the problem as the server sent it; empty for a failure of the client's own.
    pub problem: Vec<u8>,
}

impl Failure {
    /// Of parts.
    #[inline(never)]
    pub(super) fn of(code: &str, executed: Executed, retry: Retry, detail: &str) -> Self {
        Self { code: code.to_owned(), executed, retry, detail: detail.to_owned(), problem: Vec::new() }
    }

    /// Of a request that never left, or whose place nobody can take any more.
    pub(super) fn never_ran(self) -> Self {
        Self { executed: Executed::No, ..self }
    }
}

impl From<ClientCode> for Failure {
    fn from(code: ClientCode) -> Self {
        let (code, executed, retry, detail) = code.parts();
        Self::of(code, executed, retry, detail)
    }
}
