//! The rules that keep a promise, each of which a checker may switch off, to see that it finds out.
//!
//! Invariants:
//! - Without the feature `switches` every rule holds, and asking costs nothing. Nothing that ships has the feature: it does not
//!   compile to wasm.
//! - A switch is of one thread, and one rule is off at a time.

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
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$rule,)*];

            /// Its name in commands and documents.
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
    /// The server: what has an outcome is answered with it and does not run.
    Replay = "replay",
    /// The server: what was first sent before the fence and has no record is refused.
    Fence = "fence",
    /// The server: an attempt past its deadline does not run.
    Deadline = "deadline",
    /// The server: a cancelled id does not run.
    Cancelled = "cancelled",
    /// The server: an id with a tombstone does not run.
    Tombstone = "tombstone",
    /// The client: a request of which an attempt may have left is not taken back, but cancelled at its key.
    UnsentWithdrawn = "unsent-withdrawn",
    /// The client: a request waits for those before it at its key.
    Ordered = "ordered",
    /// The server: an id on which the handler crashed too often does not run.
    Poisoned = "poisoned",
    /// The server: crashes are counted.
    CrashCounted = "crash-counted",
    /// The server: what may have ended the process before is counted ahead of running it.
    StartCounted = "start-counted",
    /// The server: a start that ended without a crash is counted no longer.
    StartEnded = "start-ended",
    /// The server: an answer takes back no start but the one that this very object has counted.
    OwnStart = "own-start",
    /// The server: a tombstone outlives the latest deadline that the client announced.
    Until = "until",
    /// The server: a record knows the latest deadline of all attempts that came.
    SeenDeadlines = "seen-deadlines",
    /// The server: only its principal acknowledges a record.
    AcknowledgedByOwner = "acknowledged-by-owner",
    /// The server: a request does not acknowledge itself.
    OwnAcknowledgement = "own-acknowledgement",
    /// The server: an unacknowledged record stays until the fence has passed it.
    UnacknowledgedStay = "unacknowledged-stay",
    /// The server: a record without first-sent leaves a tombstone.
    ExpiredTombstone = "expired-tombstone",
    /// The server: a tombstone stays until it lapses.
    TombstoneStays = "tombstone-stays",
    /// The server: what a record carries goes on when that is acknowledged.
    CarriedOn = "carried-on",
    /// The server: which tombstones are packed is read again when the object starts.
    PackedKnown = "packed-known",
    /// The server: a key's clock does not go back.
    ClockForward = "clock-forward",
    /// The server: a key's fence does not go back.
    FenceForward = "fence-forward",
    /// The server: what rests on the fence makes it durable.
    FenceDurable = "fence-durable",
    /// The server: an answer that is no outcome is not recorded.
    CheckedOutcome = "checked-outcome",
    /// The server: what a read writes is undone.
    ReadUndone = "read-undone",
    /// The server: a cancellation passes fence and deadline as the request would.
    CancellationJudged = "cancellation-judged",
    /// The server: a cancellation leaves a record.
    CancellationRecorded = "cancellation-recorded",
    /// The server: a full key takes no new request.
    Capacity = "capacity",
    /// The server: the fence of what an administrator forgot, or deleted with its key, is durable.
    ForgottenDurable = "forgotten-durable",
    /// The server: a record that an administrator deleted leaves its id refused.
    DeletedRecordStaysRefused = "deleted-record-stays-refused",
    /// The server: a packed tombstone outlives the deletion of its key.
    PackedOutliveKey = "packed-outlive-key",
    /// The server: nobody but an administrator administers.
    AdministratorOnly = "administrator-only",
    /// The server: a session answers and obeys its principal alone.
    SessionOwned = "session-owned",
    /// The server: an epoch that a session has not come to yet is unknown.
    EpochKnown = "epoch-known",
    /// The server: an epoch is never given twice at a key, whatever becomes of its sessions.
    EpochForward = "epoch-forward",
    /// The server: a place that has an outcome is answered with it and does not run.
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
    /// The server: an epoch has no numbers up to its predecessor's last.
    OwnNumbers = "own-numbers",
    /// The server: an epoch that is over takes no place.
    Fenced = "fenced",
    /// The server: of an epoch that is too old to tell nobody hears that its place did not run.
    FencedUnknown = "fenced-unknown",
    /// The server: a number beyond the next does not run.
    NoGap = "no-gap",
    /// The server: a session keeps a bounded number of outcomes.
    Window = "window",
    /// The server: only the current epoch acknowledges.
    AckOfCurrent = "ack-of-current",
    /// The server: the last place of a session stays, whatever is acknowledged.
    LastPlaceStays = "last-place-stays",
    /// The server: an idle session still knows its last number.
    StubKeepsLast = "stub-keeps-last",
    /// The server: a take-over that expects an older epoch changes nothing.
    TakeOverExpected = "take-over-expected",
    /// The server: what was counted of a place is of no other.
    CountOfPlace = "count-of-place",
    /// The server: a key has a bounded number of sessions.
    SessionsBounded = "sessions-bounded",
    /// The server: a start is recorded before its request is sent to where it is executed.
    DispatchRecorded = "dispatch-recorded",
    /// The server: what was sent, and is in doubt, is not sent as if it were new.
    DoubtHolds = "doubt-holds",
    /// The server: what is in doubt does not leave by itself.
    DoubtStays = "doubt-stays",
    /// The server: what is in doubt is sent again only as long as the other side knows its id.
    ResendEnds = "resend-ends",
    /// The server: that the other side has nothing proves something only when what was sent has arrived or never will.
    ProbeSettles = "probe-settles",
    /// The server: an outcome is recorded only over the start that it belongs to.
    OwnDispatch = "own-dispatch",
    /// The server: of what is under way nobody is told that it stays in doubt, or never runs.
    UnderWayKnown = "under-way-known",
    /// The server: what another key has taken of a lane is asked for under the epoch that it was sent under.
    TakenEpoch = "taken-epoch",
    /// The server: an object takes its session at another key over before it sends anything new there.
    LaneTakenOver = "lane-taken-over",
    /// The server: what is emitted by a key that was put back is not taken for what went under its number before.
    PutBackRenumbered = "put-back-renumbered",
    /// The server: what another key refuses for good is closed there before it is given up.
    ClosedBeforeParked = "closed-before-parked",
    /// The server: what another key refuses a closing for is news of its place only where it speaks of that.
    ClosingOfPlace = "closing-of-place",
    /// The server: the first effect of a session that may have been sent begins no other session.
    FirstOfKnownSession = "first-of-known-session",
    /// The server: what came of something that was sent counts only where it was the last of its lane.
    AnswerOfLast = "answer-of-last",
    /// The server: the requests of a batch run in the order in which they stand in it.
    BatchInOrder = "batch-in-order",
    /// The server: a batch is one commit.
    BatchInOneCommit = "batch-in-one-commit",
    /// The server: what is in memory goes with the commit of a batch that fails.
    BatchMemory = "batch-memory",
    /// The server: where one of many that are written together undoes what it did, all are undone, and each runs by itself.
    DeskUndone = "desk-undone",
    /// The server: what one of many that are written together has recorded, those after it see.
    DeskSeen = "desk-seen",
    /// The server: what many have recorded together is written before they are committed.
    DeskWritten = "desk-written",
    /// The server: a batch is answered only once what it acknowledges is applied.
    BatchAcknowledges = "batch-acknowledges",
    /// The server: a request of a batch runs at no key but that of the batch.
    BatchKey = "batch-key",
    /// The server: a request of a batch has no header that is for others to say.
    BatchHeaders = "batch-headers",
    /// The server: of a frame that comes once the token of its socket has ended, nothing runs.
    FrameOfToken = "frame-of-token",
    /// The client: what may have left under a place is sent under that place, whoever goes on with it.
    PlaceKept = "place-kept",
    /// The client: what is under way in a frame is in no other.
    UnderWayOnce = "under-way-once",
    /// The client: only what is fenced and never ran gets another place.
    OnlyFencedRenumbered = "only-fenced-renumbered",
    /// The client: a place of one's own waits for all that was taken over under older ones.
    OlderFirst = "older-first",
    /// The client: what was taken over goes on in the order of its calls.
    LeftInOrder = "left-in-order",
    /// The client: what nobody waits for goes on with who holds the session, though its owner lives.
    LeftTaken = "left-taken",
    /// The client: an acknowledgement passes no place that still has to be heard of.
    AckHeld = "ack-held",
    /// The client: who is told that a place never runs has taken its row back before.
    RowTakenBack = "row-taken-back",
    /// The client: no attempt leaves once its row is settled or gone.
    RaiseChecked = "raise-checked",
    /// The client: a row's `until` is raised before each attempt.
    UntilRaised = "until-raised",
    /// The client: an acknowledgement says until when attempts may arrive.
    UntilTold = "until-told",
    /// The client: an acknowledgement is done only when an answer of its key came back.
    AcknowledgementAnswered = "acknowledgement-answered",
    /// The client: an answer without `Semel-Status` is no answer.
    StatusNeeded = "status-needed",
    /// The client: no 5xx is definitive.
    NoServerError = "no-server-error",
    /// The client: of a request that was paused nobody is told that it did not run.
    UnknownWhenPaused = "unknown-when-paused",
    /// The client: an attempt says under whom its request was made.
    PrincipalTold = "principal-told",
    /// The client: a cancellation goes only to a key that is no guess.
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

    /// Switches a rule off for as long as `work` runs, or none.
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
