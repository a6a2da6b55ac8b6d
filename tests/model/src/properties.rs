//! What must never come about, and what must sometimes, or the model tries too little. Each is named after an invariant.
//!
//! Invariant: every model has all of the first kind. A step that breaks one leaves that in the state, so the shortest trace to it
//! is the counter-example.

use crate::oracle::Oracle;
use stateright::{Model, Property};

/// A state in which an oracle watches.
pub trait Watched {
    /// What it has seen.
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
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// What it says.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }

            /// For the checker, whose conditions are functions without an environment.
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
    /// What must never come about.
    Never by always, |oracle, property| !oracle.broken.contains(&property);
    /// An effect happens twice.
    Twice = "nothing runs again: an effect happens twice",
    /// An effect happens after the deadline of its attempt.
    TooLate = "a late message changes nothing: an effect after its attempt's deadline",
    /// Two attempts of an id get different outcomes, or one gets an outcome that never was.
    Different = "original answer: two attempts of an id get different outcomes",
    /// An answer `no` with `never`, for an id that ran or runs later.
    NoForGood = "original answer: \"no\" for good, for an id that ran or runs later",
    /// An answer `no` for an attempt that took effect.
    NoOfEffect = "original answer: \"no\" for an attempt that took effect",
    /// A caller gets an answer though it has one, or was told not to wait for it.
    ToldTwice = "original answer: a caller is answered twice",
    /// An answer `yes` for an id that did not run.
    YesOfNone = "original answer: \"yes\" for an id that did not run",
    /// Another principal learns of an outcome.
    Learnt = "scoped: another principal learns an outcome",
    /// An attempt gets the outcome of a request with another payload.
    Foreign = "scoped: an attempt gets the outcome of another request",
    /// A request runs under another principal than made it.
    Impersonated = "scoped: a request runs as somebody else's",
    /// What was refused as too old, or forgotten, runs.
    FenceBack = "nothing runs again: the fence moves back",
    /// An outcome is gone before its retention, though its owner did not acknowledge it.
    Freed = "forget after: an outcome is freed without its owner's word",
    /// A request takes effect before an earlier one of its tab at its key has.
    OutOfOrder = "in order: a request takes effect before an earlier one has its effect or its answer",
    /// A place is taken by an epoch that is over, or that nobody was given.
    Unheld = "sessions: a place is taken by an epoch that does not hold the session",
    /// The numbers of what takes effect are not one after the other.
    OutOfNumber = "sessions: a number is left out, or taken twice",
    /// Two take-overs give the same epoch.
    EpochTwice = "sessions: an epoch is given twice",
    /// A take-over fences somebody whom it did not expect.
    Usurped = "sessions: a take-over that expects an older epoch fences a newer holder",
    /// Who takes over hears of another last number than was taken.
    Misled = "sessions: a take-over tells another last number than was taken",
    /// Whoever takes over can have nothing done.
    Wedged = "sessions: whoever takes over has a new request not executed",
    /// A place is used for two requests.
    TwoRequests = "sessions: a place names two requests",
    /// A request leaves at a place that its row does not have.
    Unstored = "persist, then send: a request leaves at a place that is not stored",
    /// What is to be sent is neither there nor here any more.
    Vanished = "effects that leave: one is gone, and has neither arrived nor is parked",
    /// What is parked is called unknown, and nobody has lost anything.
    Doubted = "effects that leave: one is parked as unknown, though nothing was put back that it was in",
    /// Something arrives that nobody has committed.
    Made = "effects that leave: one arrives that was never committed",
    /// What was asked for is left as it is, and nobody goes on with it.
    Stuck = "sessions: what was asked for is left, and nobody goes on with it",
    /// Of what arrives together, a part is committed and the rest is not.
    Partly = "one commit: of a batch a part is committed",
    /// Of what is committed in one turn, the failure of one undoes what another did and was told.
    Entangled = "one turn: the failure of one request undoes what another was told",
    /// An answer leaves, and what it tells of is lost with the commit that was under way.
    Early = "committed, then answered: an answer tells of an effect that is lost",
    /// A request takes effect at another key than its own.
    Astray = "scoped: a request runs at a key that is not its own",
    /// A request of a frame takes effect after the token of its socket has ended.
    AfterToken = "scoped: a frame runs after its token has ended",
    /// A request is refused for want of room that there is.
    Needless = "bounded: a key refuses for want of room that it has",
    /// A place is acknowledged, and somebody waits for its outcome still.
    Unheard = "forget after: a place is acknowledged of which somebody has still to hear",
    /// A client forgets an acknowledgement that no key has taken.
    Unacknowledged = "forget after: a client forgets an acknowledgement that no key has taken",
    /// An answer that is no outcome is recorded.
    NoOutcome = "one commit: what is no outcome is recorded",
    /// A read leaves an effect.
    ReadWrites = "reads are committed: a read leaves an effect",
    /// A key keeps more records than it may.
    Overfull = "bounded: a key keeps more than it may",
    /// A request is sent, and nothing would tell of it after a crash.
    Unrecorded = "recorded start: a request is sent elsewhere before its start is committed",
    /// The handler crashes on an id more often than it may.
    CrashesOn = "bounded: the handler crashes on an id again and again",
    /// An id is refused for crashes that were none, or another's.
    Blamed = "bounded: an id is poisoned that crashed less often",
}

properties! {
    /// What must come about sometimes.
    Sometimes by sometimes, |oracle, property| oracle.seen.contains(&property);
    /// An attempt gets the recorded outcome.
    Replay = "sometimes: a replay",
    /// A place of an epoch that is over is replayed.
    OldReplay = "sometimes: a place of an old epoch replays",
    /// A number beyond the next is refused.
    Gap = "sometimes: a gap",
    /// An epoch that is over is refused.
    Fenced = "sometimes: a fenced epoch",
    /// A place is refused whose outcome went because its session was idle.
    Stub = "sometimes: a stub",
    /// A session is not there, or not any more.
    SessionUnknown = "sometimes: an unknown session",
    /// What arrives together is dealt with one by one.
    OneByOne = "sometimes: a batch that goes one by one",
    /// What waited for a commit is committed in one turn.
    Grouped = "sometimes: a group that is committed in one turn",
    /// One of a group fails, and what the others did stays.
    GroupedBeside = "sometimes: one of a group that fails beside others",
    /// A group is lost as a whole.
    GroupLost = "sometimes: a group that is lost before its commit",
    /// What is replayed is not committed yet.
    GroupReplay = "sometimes: a replay of what is in the same group",
    /// What is in doubt is sent again.
    Resent = "sometimes: a request that is sent again",
    /// A probe brings the outcome.
    Found = "sometimes: a probe that finds what was made",
    /// A probe proves that there is nothing, and the request is sent again.
    ProvenAbsent = "sometimes: a probe that proves that there is nothing",
    /// What is in doubt stays so.
    OutcomeUnknown = "sometimes: an unknown outcome",
    /// An administrator settles what is in doubt.
    Resolved = "sometimes: a resolved doubt",
    /// The other side can't be reached.
    Unreachable = "sometimes: an unreachable other side",
    /// An attempt waits while another of its id is executed.
    Waits = "sometimes: a waiting duplicate",
    /// An attempt is refused by a tombstone.
    Tombstone = "sometimes: a tombstone",
    /// An attempt comes after its deadline.
    Late = "sometimes: a late attempt",
    /// The fence refuses an attempt.
    Fence = "sometimes: a fence refuses",
    /// What an administrator had forgotten is refused.
    Forgot = "sometimes: something forgotten",
    /// Somebody else asks what only an administrator may.
    Forbidden = "sometimes: a stranger at an administrator's path",
    /// All of a key is deleted.
    Deleted = "sometimes: a deleted key",
    /// An attempt of a cancelled id is refused.
    Cancelled = "sometimes: a cancelled id",
    /// A cancellation brings the outcome.
    RanBefore = "sometimes: a cancellation that comes too late",
    /// Another principal, or another payload, is refused.
    Mismatch = "sometimes: a mismatch",
    /// An id is poisoned.
    Poisoned = "sometimes: a poisoned id",
    /// A full key refuses.
    Full = "sometimes: a full key",
    /// A failed execution is undone.
    RolledBack = "sometimes: a rolled back execution",
    /// An execution ends the process.
    Ends = "sometimes: an execution that ends the process",
    /// An acknowledgement goes along with another request.
    Rides = "sometimes: an acknowledgement that rides",
    /// A request that is given up asks for its key.
    Probes = "sometimes: a probe",
    /// A caller is told that it need not wait any more.
    GaveUp = "sometimes: a caller that gives up",
    /// A request is sent only once the one before it has taken effect.
    Turn = "sometimes: a request that waits for its turn",
    /// A request that never left is taken back.
    Withdrawn = "sometimes: a request that is taken back",
    /// A request of a session gets another place.
    Renumbered = "sometimes: a request that gets another place",
    /// A request of a session is left to who holds it.
    LeftBehind = "sometimes: a request that is left to who holds the session",
    /// What a handler has sent has arrived, and its sender knows.
    Credited = "sometimes: an effect that leaves and arrives",
    /// What a handler has sent is parked.
    Parked = "sometimes: an effect that is parked",
    /// A session is taken over once more.
    TakenOver = "sometimes: a session that is taken over again",
    /// A key is put back.
    PutBack = "sometimes: a sender that is put back",
    /// A row is gone from the client's store.
    Forgotten = "sometimes: all is done and forgotten",
}
