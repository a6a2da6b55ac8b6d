//! What a caller gets if there is no outcome.
//!
//! Invariant: `executed` is `no` only if the request never ran under its id and never will. A problem with `no` may
//! speak of one attempt only, and an earlier attempt may have run.

use crate::problem::{Executed, Retry};

macro_rules! client_codes {
    ($($(#[$doc:meta])* $name:ident $code:literal $executed:ident $retry:ident $detail:literal;)*) => {
        /// A code of the client itself.
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

// The detail of a request that never left ends in "not sent": `sdk/js/semel.js` recognises it by that.
client_codes! {
    OutboxFull "outbox-full" No Never "too many requests are pending, so it was not sent";
    StoreFailed "store-failed" No Never "it could not be stored, so it was not sent";
    GaveUp "gave-up" Unknown SameId "no definitive answer in time; it goes on";
    OutcomeLost "outcome-lost" Unknown Never "it is no longer stored, and its answer is not kept";
}

/// An answer without an outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// A code of the protocol, of the client itself, or of a newer server.
    pub code: String,
    /// Whether the request was executed.
    pub executed: Executed,
    /// How the caller may go on.
    pub retry: Retry,
    /// A sentence about this case.
    pub detail: String,
    /// The body of the problem as the server sent it; empty for a failure of the client itself.
    pub problem: Vec<u8>,
}

impl Failure {
    /// Makes a failure without a problem's body.
    #[inline(never)]
    pub(super) fn of(code: &str, executed: Executed, retry: Retry, detail: &str) -> Self {
        Self { code: code.to_owned(), executed, retry, detail: detail.to_owned(), problem: Vec::new() }
    }

    /// The same failure with `executed: "no"`: for a request that never left, or whose place nobody can take any more.
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
