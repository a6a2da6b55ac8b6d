//! The rules that keep a promise. A checker can switch off each of them, to see that it notices the difference.
//!
//! Invariants:
//! - Without the feature `switches`, every rule holds, and asking costs nothing. Nothing that ships has the feature: it
//!   does not compile to wasm.
//! - A switch applies to one thread, and only one rule is off at a time.

#[cfg(all(feature = "switches", target_family = "wasm"))]
compile_error!("the feature `switches` takes the promises away: it is for tests alone");

macro_rules! rules {
    ($($(#[doc = $doc:literal])* $rule:ident = $name:literal,)*) => {
        /// A rule that can be switched off.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Rule {
            $($(#[doc = $doc])* $rule,)*
        }

        impl Rule {
            /// All rules.
            pub const ALL: &[Self] = &[$(Self::$rule,)*];

            /// The name of the rule in commands and documents.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$rule => $name,)*
                }
            }
        }
    };
}

rules! {
    /// The server: another principal learns nothing of a record.
    Principal = "principal",
    /// The server: the same id with another payload is refused.
    Fingerprint = "fingerprint",
    /// The server: a request that has an outcome is answered with it, and does not run again.
    Replay = "replay",
    /// The server: a request that was first sent before the fence and has no record is refused.
    Fence = "fence",
    /// The server: an attempt past its deadline does not run.
    Deadline = "deadline",
    /// The server: a cancelled id does not run.
    Cancelled = "cancelled",
    /// The server: an id with a tombstone does not run.
    Tombstone = "tombstone",
    /// The client: a request that may have left is not taken back; it is cancelled at its key.
    UnsentWithdrawn = "unsent-withdrawn",
    /// The client: a request waits for the earlier requests of its key.
    Ordered = "ordered",
    /// The server: an id on which the handler crashed too often does not run.
    Poisoned = "poisoned",
    /// The server: crashes are counted.
    CrashCounted = "crash-counted",
    /// The server: before a request runs that may have ended the process, its start is counted.
    StartCounted = "start-counted",
    /// The server: a start that ended without a crash is not counted any more.
    StartEnded = "start-ended",
    /// The server: an answer takes back only a start that the same object has counted.
    OwnStart = "own-start",
    /// The server: a tombstone outlives the latest deadline that the client announced.
    Until = "until",
    /// The server: a record knows the latest deadline of all attempts that arrived.
    SeenDeadlines = "seen-deadlines",
    /// The server: only the principal of a record may acknowledge it.
    AcknowledgedByOwner = "acknowledged-by-owner",
    /// The server: a request does not acknowledge itself.
    OwnAcknowledgement = "own-acknowledgement",
    /// The server: an unacknowledged record stays until the fence has passed it.
    UnacknowledgedStay = "unacknowledged-stay",
    /// The server: a record without first-sent leaves a tombstone.
    ExpiredTombstone = "expired-tombstone",
    /// The server: a tombstone stays until it lapses.
    TombstoneStays = "tombstone-stays",
    /// The server: when a record is acknowledged, the tombstones that it carries are carried on.
    CarriedOn = "carried-on",
    /// The server: an object that starts reads again which tombstones are packed.
    PackedKnown = "packed-known",
    /// The server: a key's clock does not go back.
    ClockForward = "clock-forward",
    /// The server: a key's fence does not go back.
    FenceForward = "fence-forward",
    /// The server: a fence on which a decision depends is made durable.
    FenceDurable = "fence-durable",
    /// The server: an answer that is no outcome is not recorded.
    CheckedOutcome = "checked-outcome",
    /// The server: the writes of a read are undone.
    ReadUndone = "read-undone",
    /// The server: a cancellation passes fence and deadline like the request would.
    CancellationJudged = "cancellation-judged",
    /// The server: a cancellation leaves a record.
    CancellationRecorded = "cancellation-recorded",
    /// The server: a full key takes no new request.
    Capacity = "capacity",
    /// The server: when an administrator forgets requests or deletes a key, the fence is durable.
    ForgottenDurable = "forgotten-durable",
    /// The server: after an administrator has deleted a record, its id stays refused.
    DeletedRecordStaysRefused = "deleted-record-stays-refused",
    /// The server: a packed tombstone outlives the deletion of its key.
    PackedOutliveKey = "packed-outlive-key",
    /// The server: only an administrator administers.
    AdministratorOnly = "administrator-only",
    /// The server: a session answers and obeys only its principal.
    SessionOwned = "session-owned",
    /// The server: an epoch that a session has not reached yet is unknown.
    EpochKnown = "epoch-known",
    /// The server: an epoch is never given twice at a key, even if its sessions are gone.
    EpochForward = "epoch-forward",
    /// The server: a place that has an outcome is answered with it, and does not run again.
    PlaceReplay = "place-replay",
    /// The server: the same place with another payload is refused.
    PlaceFingerprint = "place-fingerprint",
    /// The server: a cancelled place does not run.
    PlaceCancelled = "place-cancelled",
    /// The server: a place on which the handler crashed too often does not run.
    PlacePoisoned = "place-poisoned",
    /// The server: a place that was taken and has no outcome any more does not run.
    PlaceGone = "place-gone",
    /// The server: a place answers only the epoch that took it.
    PlaceOfEpoch = "place-of-epoch",
    /// The server: an epoch has no numbers up to the last of its predecessor.
    OwnNumbers = "own-numbers",
    /// The server: an epoch that is over takes no place.
    Fenced = "fenced",
    /// The server: the holder of an epoch that is too old to be remembered is never told that its place did not run.
    FencedUnknown = "fenced-unknown",
    /// The server: a number beyond the next does not run.
    NoGap = "no-gap",
    /// The server: a session keeps a bounded number of outcomes.
    Window = "window",
    /// The server: only the current epoch acknowledges.
    AckOfCurrent = "ack-of-current",
    /// The server: the last place of a session stays, even if it is acknowledged.
    LastPlaceStays = "last-place-stays",
    /// The server: an idle session still knows its last number.
    StubKeepsLast = "stub-keeps-last",
    /// The server: a take-over that expects an older epoch changes nothing.
    TakeOverExpected = "take-over-expected",
    /// The server: the crashes that were counted for a place count for no other place.
    CountOfPlace = "count-of-place",
    /// The server: a key has a bounded number of sessions.
    SessionsBounded = "sessions-bounded",
    /// The server: before a request is sent to where it is executed, its start is recorded.
    DispatchRecorded = "dispatch-recorded",
    /// The server: a request that was sent, and is in doubt, is not sent as if it were new.
    DoubtHolds = "doubt-holds",
    /// The server: a record in doubt does not leave by itself.
    DoubtStays = "doubt-stays",
    /// The server: a request in doubt is sent again only while the other side remembers its id.
    ResendEnds = "resend-ends",
    /// The server: a probe that finds nothing is a proof only once the request has arrived or never will.
    ProbeSettles = "probe-settles",
    /// The server: an outcome is recorded only over the start to which it belongs.
    OwnDispatch = "own-dispatch",
    /// The server: while a request is under way, nobody is told that it stays in doubt, or never runs.
    UnderWayKnown = "under-way-known",
    /// The server: a number of a lane that the other key has taken is asked for under the epoch under which it was sent.
    TakenEpoch = "taken-epoch",
    /// The server: before an object sends anything new to another key, it takes over its session there.
    LaneTakenOver = "lane-taken-over",
    /// The server: what a restored key emits does not count as what had the same number before.
    PutBackRenumbered = "put-back-renumbered",
    /// The server: an effect that another key refuses for good is closed there before it is given up.
    ClosedBeforeParked = "closed-before-parked",
    /// The server: the refusal of a closing is news of its place only if it is about the place.
    ClosingOfPlace = "closing-of-place",
    /// The server: if the first effect of a session may have been sent, no other session is begun for it.
    FirstOfKnownSession = "first-of-known-session",
    /// The server: the report on an effect counts only if it was the last one sent on its lane.
    AnswerOfLast = "answer-of-last",
    /// The server: the requests of a batch run in the order in which they are written.
    BatchInOrder = "batch-in-order",
    /// The server: a batch is one commit.
    BatchInOneCommit = "batch-in-one-commit",
    /// The server: when the commit of a batch fails, what is in memory is dropped.
    BatchMemory = "batch-memory",
    /// The server: when one of many requests at a desk undoes what it did, all are undone, and each runs by itself.
    DeskUndone = "desk-undone",
    /// The server: what a request at a shared desk has recorded is visible to the requests after it.
    DeskSeen = "desk-seen",
    /// The server: what is recorded at a shared desk is written before the commit.
    DeskWritten = "desk-written",
    /// The server: a batch is answered only once its acknowledgements are applied.
    BatchAcknowledges = "batch-acknowledges",
    /// The server: a request of a batch runs only at the key of the batch.
    BatchKey = "batch-key",
    /// The server: a request of a batch has no header that only the platform, the router or the layer may set.
    BatchHeaders = "batch-headers",
    /// The server: nothing runs of a frame that arrives after the token of its socket has ended.
    FrameOfToken = "frame-of-token",
    /// The client: a request that may have left under a place keeps this place, whoever goes on with it.
    PlaceKept = "place-kept",
    /// The client: a request that is under way in a frame is in no other frame.
    UnderWayOnce = "under-way-once",
    /// The client: only a request that is fenced and never ran gets another place.
    OnlyFencedRenumbered = "only-fenced-renumbered",
    /// The client: requests with new places wait for all requests that were taken over with older epochs.
    OlderFirst = "older-first",
    /// The client: requests that were taken over go on in the order of their calls.
    LeftInOrder = "left-in-order",
    /// The client: a request that nobody waits for goes on with the holder of the session, even if its owner is alive.
    LeftTaken = "left-taken",
    /// The client: an acknowledgement does not pass a place that still needs an answer.
    AckHeld = "ack-held",
    /// The client: before a caller is told that its place never runs, the row is taken back.
    RowTakenBack = "row-taken-back",
    /// The client: no attempt leaves once its row is settled or gone.
    RaiseChecked = "raise-checked",
    /// The client: a row's `until` is raised before each attempt.
    UntilRaised = "until-raised",
    /// The client: an acknowledgement says until when attempts may still arrive.
    UntilTold = "until-told",
    /// The client: an acknowledgement is done only when an answer from its key has come back.
    AcknowledgementAnswered = "acknowledgement-answered",
    /// The client: an answer without `Semel-Status` does not count as an answer.
    StatusNeeded = "status-needed",
    /// The client: no 5xx is definitive.
    NoServerError = "no-server-error",
    /// The client: nobody is told that a paused request did not run.
    UnknownWhenPaused = "unknown-when-paused",
    /// The client: an attempt says under which principal its request was made.
    PrincipalTold = "principal-told",
    /// The client: a cancellation goes only to a key that is certain, not guessed.
    CertainKey = "certain-key",
}

/// Whether a rule holds.
#[cfg(not(feature = "switches"))]
#[inline(always)]
pub fn holds(_rule: Rule) -> bool {
    true
}

#[cfg(feature = "switches")]
pub use switches::{holds, without};

#[cfg(feature = "switches")]
mod switches {
    use super::Rule;
    use std::cell::Cell;

    thread_local! {
        static OFF: Cell<Option<Rule>> = const { Cell::new(None) };
    }

    /// Whether a rule holds.
    pub fn holds(rule: Rule) -> bool {
        OFF.get() != Some(rule)
    }

    /// Runs `work` with one rule switched off, or with none.
    pub fn without<T>(rule: Option<Rule>, work: impl FnOnce() -> T) -> T {
        struct Restore(Option<Rule>);
        impl Drop for Restore {
            fn drop(&mut self) {
                OFF.set(self.0);
            }
        }
        let _restore = Restore(OFF.replace(rule));
        work()
    }
}
