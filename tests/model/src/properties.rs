//! What must never happen, and what must happen sometimes, since otherwise the model would try too little. Each property is named
//! after an invariant.
//!
//! Invariant: every model checks all properties of the first kind. A step that breaks one leaves a note in the state, so the
//! shortest trace to such a state is the counter-example.

use crate::oracle::Oracle;
use stateright::{Model, Property};

/// A state with a judge.
pub trait Watched {
    /// The judge.
    fn oracle(&self) -> &Oracle;
}

macro_rules! properties {
    ($(#[doc = $doc:literal])* $set:ident by $expectation:ident, $holds:expr; $($(#[doc = $each:literal])* $name:ident = $text:literal,)*) => {
        $(#[doc = $doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $set {
            $($(#[doc = $each])* $name,)*
        }

        impl $set {
            /// All properties of this kind.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// What it says.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }

            /// The property for the checker, whose conditions are functions without an environment.
            pub fn property<M: Model>(self) -> Property<M> where M::State: Watched {
                match self {
                    $(Self::$name => Property::$expectation($text, |_, state: &M::State| {
                        let holds: fn(&Oracle, Self) -> bool = $holds;
                        holds(state.oracle(), Self::$name)
                    }),)*
                }
            }
        }
    };
}

properties! {
    /// What must never happen.
    Never by always, |oracle, property| !oracle.broken.contains(&property);
    /// An effect happens twice.
    Twice = "nothing runs again: an effect happens twice",
    /// An effect happens after the deadline of its attempt.
    TooLate = "a late message changes nothing: an effect after its attempt's deadline",
    /// Two attempts of an id get different outcomes, or one gets an outcome that never existed.
    Different = "original answer: two attempts of an id get different outcomes",
    /// An answer says `no` with `never` for an id that ran, or runs later.
    NoForGood = "original answer: \"no\" for good, for an id that ran or runs later",
    /// An answer says `no` for an attempt that took effect.
    NoOfEffect = "original answer: \"no\" for an attempt that took effect",
    /// A caller gets a second answer, or an answer after it was told not to wait.
    ToldTwice = "original answer: a caller is answered twice",
    /// An answer says `yes` for an id that did not run.
    YesOfNone = "original answer: \"yes\" for an id that did not run",
    /// Another principal learns of an outcome.
    Learnt = "scoped: another principal learns an outcome",
    /// An attempt gets the outcome of a request with another payload.
    Foreign = "scoped: an attempt gets the outcome of another request",
    /// A request runs under a principal that did not make it.
    Impersonated = "scoped: a request runs as somebody else's",
    /// A request runs that was refused as too old, or forgotten.
    FenceBack = "nothing runs again: the fence moves back",
    /// An outcome is gone before its retention ends, and its owner did not acknowledge it.
    Freed = "forget after: an outcome is freed without its owner's word",
    /// A request takes effect before an earlier request of its tab at its key has its effect or its answer.
    OutOfOrder = "in order: a request takes effect before an earlier one has its effect or its answer",
    /// A place is taken under an epoch that is over, or that nobody was given.
    Unheld = "sessions: a place is taken by an epoch that does not hold the session",
    /// The seqs of the requests that take effect are not contiguous.
    OutOfNumber = "sessions: a number is left out, or taken twice",
    /// Two take-overs give the same epoch.
    EpochTwice = "sessions: an epoch is given twice",
    /// A take-over fences a holder that it did not expect.
    Usurped = "sessions: a take-over that expects an older epoch fences a newer holder",
    /// A take-over is told another last seq than the last that was taken.
    Misled = "sessions: a take-over tells another last number than was taken",
    /// The session's owner can take it over, and still have no new request executed.
    Wedged = "sessions: whoever takes over has a new request not executed",
    /// A place is used for two requests.
    TwoRequests = "sessions: a place names two requests",
    /// A request leaves at a place that its row does not have.
    Unstored = "persist, then send: a request leaves at a place that is not stored",
    /// An effect is no longer at the sender, and has neither arrived nor been parked.
    Vanished = "effects that leave: one is gone, and has neither arrived nor is parked",
    /// An effect is parked as unknown, though nobody has lost anything.
    Doubted = "effects that leave: one is parked as unknown, though nothing was put back that it was in",
    /// A request arrives that nobody has committed.
    Made = "effects that leave: one arrives that was never committed",
    /// A request is left to the holder, and nobody goes on with it.
    Stuck = "sessions: what was asked for is left, and nobody goes on with it",
    /// A part of a batch is committed, and the rest is not.
    Partly = "one commit: of a batch a part is committed",
    /// In a turn, the failure of one request undoes what another did and was told.
    Entangled = "one turn: the failure of one request undoes what another was told",
    /// An answer leaves, and the effect that it tells of is lost with the commit that was under way.
    Early = "committed, then answered: an answer tells of an effect that is lost",
    /// A request takes effect at another key than its own.
    Astray = "scoped: a request runs at a key that is not its own",
    /// A request of a frame takes effect after the token of its socket has expired.
    AfterToken = "scoped: a frame runs after its token has ended",
    /// A request is refused for lack of room that the key has.
    Needless = "bounded: a key refuses for want of room that it has",
    /// A place is acknowledged, and a caller still waits for its outcome.
    Unheard = "forget after: a place is acknowledged of which somebody has still to hear",
    /// A client forgets an acknowledgement that no key has taken.
    Unacknowledged = "forget after: a client forgets an acknowledgement that no key has taken",
    /// An answer that is not an outcome is recorded.
    NoOutcome = "one commit: what is no outcome is recorded",
    /// A read leaves an effect.
    ReadWrites = "reads are committed: a read leaves an effect",
    /// A key keeps more records than it may.
    Overfull = "bounded: a key keeps more than it may",
    /// A request is sent elsewhere, and no record would show this after a crash.
    Unrecorded = "recorded start: a request is sent elsewhere before its start is committed",
    /// The handler crashes on an id more often than it may.
    CrashesOn = "bounded: the handler crashes on an id again and again",
    /// An id is poisoned for crashes that did not happen, or that were another id's.
    Blamed = "bounded: an id is poisoned that crashed less often",
}

properties! {
    /// What must happen in some state.
    Sometimes by sometimes, |oracle, property| oracle.seen.contains(&property);
    /// An attempt gets the recorded outcome.
    Replay = "sometimes: a replay",
    /// A place of an epoch that is over is replayed.
    OldReplay = "sometimes: a place of an old epoch replays",
    /// A seq beyond the next is refused.
    Gap = "sometimes: a gap",
    /// An epoch that is over is refused.
    Fenced = "sometimes: a fenced epoch",
    /// A place is refused whose outcome is gone because its session was idle.
    Stub = "sometimes: a stub",
    /// A session does not exist, or no longer exists.
    SessionUnknown = "sometimes: an unknown session",
    /// The requests of a batch are executed one by one.
    OneByOne = "sometimes: a batch that goes one by one",
    /// Requests that waited for a commit are committed in one turn.
    Grouped = "sometimes: a group that is committed in one turn",
    /// One request of a group fails, and what the others did stays.
    GroupedBeside = "sometimes: one of a group that fails beside others",
    /// A whole group is lost.
    GroupLost = "sometimes: a group that is lost before its commit",
    /// A replay whose outcome is not committed yet.
    GroupReplay = "sometimes: a replay of what is in the same group",
    /// A request that is in doubt is sent again.
    Resent = "sometimes: a request that is sent again",
    /// A probe brings the outcome.
    Found = "sometimes: a probe that finds what was made",
    /// A probe proves that the request did not run, and it is sent again.
    ProvenAbsent = "sometimes: a probe that proves that there is nothing",
    /// A request that is in doubt stays in doubt.
    OutcomeUnknown = "sometimes: an unknown outcome",
    /// An administrator settles a request that is in doubt.
    Resolved = "sometimes: a resolved doubt",
    /// The other service can't be reached.
    Unreachable = "sometimes: an unreachable other side",
    /// An attempt waits while another attempt of its id is executed.
    Waits = "sometimes: a waiting duplicate",
    /// An attempt is refused by a tombstone.
    Tombstone = "sometimes: a tombstone",
    /// An attempt arrives after its deadline.
    Late = "sometimes: a late attempt",
    /// The fence refuses an attempt.
    Fence = "sometimes: a fence refuses",
    /// A request is refused that an administrator had forgotten.
    Forgot = "sometimes: something forgotten",
    /// Somebody else asks for what only an administrator may ask.
    Forbidden = "sometimes: a stranger at an administrator's path",
    /// A key is deleted.
    Deleted = "sometimes: a deleted key",
    /// An attempt of a cancelled id is refused.
    Cancelled = "sometimes: a cancelled id",
    /// A cancellation brings the outcome.
    RanBefore = "sometimes: a cancellation that comes too late",
    /// Another principal, or another payload, is refused.
    Mismatch = "sometimes: a mismatch",
    /// An id is poisoned.
    Poisoned = "sometimes: a poisoned id",
    /// A full key refuses a request.
    Full = "sometimes: a full key",
    /// A failed execution is rolled back.
    RolledBack = "sometimes: a rolled back execution",
    /// An execution ends the process.
    Ends = "sometimes: an execution that ends the process",
    /// An acknowledgement goes along with another request.
    Rides = "sometimes: an acknowledgement that rides",
    /// A client probes for the key of a request that it gives up.
    Probes = "sometimes: a probe",
    /// A caller is told to wait no longer.
    GaveUp = "sometimes: a caller that gives up",
    /// A request is sent only after the one before it has taken effect.
    Turn = "sometimes: a request that waits for its turn",
    /// A request that was never sent is withdrawn.
    Withdrawn = "sometimes: a request that is taken back",
    /// A request of a session gets another place.
    Renumbered = "sometimes: a request that gets another place",
    /// A request of a session is left to the session's holder.
    LeftBehind = "sometimes: a request that is left to who holds the session",
    /// An effect has arrived, and its sender knows.
    Credited = "sometimes: an effect that leaves and arrives",
    /// An effect is parked.
    Parked = "sometimes: an effect that is parked",
    /// A session is taken over once more.
    TakenOver = "sometimes: a session that is taken over again",
    /// A key is put back to an earlier state.
    PutBack = "sometimes: a sender that is put back",
    /// A row is gone from the client's store.
    Forgotten = "sometimes: all is done and forgotten",
}
