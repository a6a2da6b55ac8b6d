//! The codes of the layer, in one table, from which problems, documentation and the SDK's errors come.
//!
//! Invariant: an answer that is no outcome always says whether the request ran, and what the client should do next.

use crate::id::Invalid;
use std::fmt;

/// Whether the request that a problem is about was executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Executed {
    /// It did not run. With [`Retry::Never`], it never will.
    No,
    /// It ran.
    Yes,
    /// The layer can't know.
    Unknown,
}

impl Executed {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::No => "no",
            Self::Yes => "yes",
            Self::Unknown => "unknown",
        }
    }

    /// Reads the word on the wire.
    pub fn from_wire(word: &str) -> Option<Self> {
        [Self::No, Self::Yes, Self::Unknown].into_iter().find(|each| each.as_str() == word)
    }
}

/// What the client should do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// Send the same request again, under the same id.
    SameId,
    /// Something must be fixed first; then send again under the same id.
    AfterFix,
    /// Stop: this answer is definitive.
    Never,
}

impl Retry {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::SameId => "same-id",
            Self::AfterFix => "after-fix",
            Self::Never => "never",
        }
    }

    /// Reads the word on the wire.
    pub fn from_wire(word: &str) -> Option<Self> {
        [Self::SameId, Self::AfterFix, Self::Never].into_iter().find(|each| each.as_str() == word)
    }
}

macro_rules! codes {
    ($($name:ident $status:literal $code:literal $executed:ident $retry:ident $title:literal;)*) => {
        /// A code of the layer.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Code {
            $(#[doc = $title] $name,)*
        }

        impl Code {
            /// Every code, in the order of the table.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The code as it is in `Semel-Status` and in the body.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => $code,)* }
            }

            /// The HTTP status.
            pub fn status(self) -> u16 {
                match self { $(Self::$name => $status,)* }
            }

            /// Whether the request ran, unless a record says more.
            pub fn executed(self) -> Executed {
                match self { $(Self::$name => Executed::$executed,)* }
            }

            /// What the client should do next.
            pub fn retry(self) -> Retry {
                match self { $(Self::$name => Retry::$retry,)* }
            }

            /// The case in a few words.
            pub fn title(self) -> &'static str {
                match self { $(Self::$name => $title,)* }
            }
        }
    };
}

codes! {
    KeyMissing 400 "key-missing" No AfterFix "no request id where one is needed";
    KeyInvalid 400 "key-invalid" No AfterFix "malformed id, key, path or other header of the protocol";
    BodyInvalid 400 "body-invalid" No AfterFix "malformed body of a control request";
    KeyMismatch 400 "key-mismatch" No AfterFix "the key rule names another key";
    Unauthorized 401 "unauthorized" No AfterFix "not authenticated";
    Forbidden 403 "forbidden" No AfterFix "not allowed";
    NotFound 404 "not-found" No AfterFix "nothing handles this path and method";
    NotSeen 404 "not-seen" Unknown SameId "this id was never seen";
    AttemptExpired 408 "attempt-expired" No SameId "the deadline passed before execution started";
    InFlight 409 "in-flight" Unknown SameId "another attempt is still running";
    Locked 409 "locked" No SameId "the key is held by a transaction";
    Fenced 409 "fenced" No Never "a newer epoch holds the session";
    SequenceGap 409 "sequence-gap" No SameId "a number beyond the next of the session";
    OutcomeUnknown 409 "outcome-unknown" Unknown Never "it can't be known whether the effect happened";
    TransactionAborted 409 "transaction-aborted" No Never "the transaction was aborted";
    Cancelled 410 "cancelled" No Never "the id was cancelled";
    Poisoned 410 "poisoned" No Never "the handler crashed on this id too often";
    Acknowledged 410 "acknowledged" Unknown Never "the id was acknowledged before";
    OutcomeExpired 410 "outcome-expired" Unknown Never "its outcome is no longer kept";
    Forgotten 410 "forgotten" Unknown Never "an administrator forgot ids of that age";
    SessionUnknown 410 "session-unknown" Unknown Never "the session is not known here";
    OutsideWindow 412 "outside-window" Unknown Never "first sent before the fence, and no record";
    TooLarge 413 "too-large" No AfterFix "the request is too large";
    FingerprintMismatch 422 "fingerprint-mismatch" No AfterFix "the id is in use for another request";
    RateLimited 429 "rate-limited" No SameId "too many requests";
    RolledBack 500 "rolled-back" No SameId "the handler failed and was rolled back";
    UpstreamUnreachable 502 "upstream-unreachable" No SameId "an upstream could not be reached";
    Capacity 503 "capacity" No SameId "the key holds too many records or tombstones";
    Unavailable 503 "unavailable" Unknown SameId "storage or object not available";
}

/// An answer of the layer that is no outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Which case.
    pub code: Code,
    /// Whether the request ran.
    pub executed: Executed,
    /// This case in a sentence for the client's developer. It reveals nothing about other requests.
    pub detail: String,
    /// Where the session stands. Only its principal is told.
    pub position: Option<Position>,
}

/// What a problem says about where a session stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Position {
    /// The epoch of its current holder: `currentEpoch`.
    CurrentEpoch(i64),
    /// The next number that the session takes: `expectedSeq`.
    ExpectedSeq(i64),
}

impl Problem {
    /// A problem with what the table says for its code.
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self { code, executed: code.executed(), detail: detail.into(), position: None }
    }

    /// The problem of a change without a request id.
    pub fn key_missing() -> Self {
        Self::new(Code::KeyMissing, "a change needs an Idempotency-Key or a Semel-Session")
    }

    /// The same problem, with what a record says about the execution.
    pub fn with_executed(self, executed: Executed) -> Self {
        Self { executed, ..self }
    }

    /// The same problem, with where the session stands.
    pub fn with_position(self, position: Position) -> Self {
        Self { position: Some(position), ..self }
    }

    /// The `type` of the body: a name for the case, not an address.
    pub fn type_uri(&self) -> String {
        format!("urn:semel:problem:{}", self.code.as_str())
    }

    /// `Retry-After` in seconds, for the cases that pass without a fix.
    pub fn retry_after_s(&self) -> Option<u32> {
        match self.code {
            Code::InFlight | Code::Locked | Code::RateLimited | Code::Capacity | Code::Unavailable => Some(1),
            _ => None,
        }
    }
}

/// Makes a problem of a malformed header or path. A malformed body has its own code, [`Code::BodyInvalid`].
impl From<Invalid> for Problem {
    fn from(Invalid(detail): Invalid) -> Self {
        Self::new(Code::KeyInvalid, detail)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code.as_str(), self.detail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_5xx_code_has_retry_never() {
        for code in Code::ALL.iter().filter(|code| code.status() >= 500) {
            assert_ne!(code.retry(), Retry::Never, "{code:?}");
        }
    }

    #[test]
    fn protocol_md_lists_exactly_the_codes_with_a_retry_after_of_1_second() {
        let says = |code: &&Code| Problem::new(**code, "").retry_after_s() == Some(1);
        let named: Vec<_> = Code::ALL.iter().filter(says).map(|code| format!("`{}`", code.as_str())).collect();
        let (last, others) = named.split_last().expect("codes");
        let sentence = format!("`Retry-After` is 1 second with {} and {last}.", others.join(", "));
        assert!(include_str!("../../PROTOCOL.md").contains(&sentence), "{sentence}");
    }

    #[test]
    fn the_table_of_codes_in_protocol_md_equals_the_table_in_the_code() {
        let protocol = include_str!("../../PROTOCOL.md");
        let mut rows =
            protocol.lines().filter(|line| line.starts_with("| `") && line.contains("` | 4") | line.contains("` | 5"));
        for code in Code::ALL {
            let row = format!(
                "| `{}` | {} | {} | {} | {} |",
                code.as_str(),
                code.status(),
                code.executed().as_str(),
                code.retry().as_str(),
                code.title()
            );
            assert_eq!(rows.next(), Some(row.as_str()));
        }
        assert_eq!(rows.next(), None);
    }
}
