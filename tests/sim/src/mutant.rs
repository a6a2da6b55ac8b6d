//! Mutants: mistakes on purpose, each of which a run must find.
//!
//! Invariant: a mutant has the same name on the command line and in the table of `tests/mutants.rs`.

use crate::lies::{LIES, Lie};
use crate::stored::{STORED, Stored};
use semel_core::rules::Rule;

macro_rules! twins {
    ($($(#[doc = $doc:literal])* $twin:ident = $name:literal,)*) => {
        /// A mistake around client and engine, or in how they are put together.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Twin {
            $($(#[doc = $doc])* $twin,)*
        }

        impl Twin {
            const ALL: &[Self] = &[$(Self::$twin,)*];

            fn name(self) -> &'static str {
                match self {
                    $(Self::$twin => $name,)*
                }
            }
        }
    };
}

twins! {
    /// The `until` of an acknowledgement leaves out the last attempts, which may still be under way.
    TombstoneWithoutUntil = "tombstone-without-until",
    /// The store reports that a row is written before it is.
    SendBeforePersisting = "send-before-persisting",
    /// The effect is committed by itself, before the record.
    EffectApart = "effect-apart",
    /// A request is forgotten before its caller has the answer.
    ForgetBeforeDelivery = "forget-before-delivery",
    /// Each attempt after the first has its own id.
    NewIdPerAttempt = "new-id-per-attempt",
    /// A key uses the shortest retention that was ever set.
    ShortestRetention = "shortest-retention",
    /// A key says that it is full one request too soon.
    FullEarly = "full-early",
    /// A key is put back without its outcomes.
    PutBackBare = "put-back-bare",
    /// From the tenth deposit on, a read does not see the last one.
    StaleReads = "stale-reads",
    /// A call with an id in hand joins that request, even with another payload.
    OtherPayloadJoined = "other-payload-joined",
    /// It is not stored that a tab waits for another tab's request.
    JoinForgotten = "join-forgotten",
    /// How long an answer is kept for another tab is measured by the clocks of keys.
    KeptByKeysClock = "kept-by-keys-clock",
    /// Who made a request under an id that the application chose is told that its answer is lost.
    SharedAnswerLost = "shared-answer-lost",
    /// A caller who need not wait any longer is told that the request did not run.
    ReleasedWithNo = "released-with-no",
    /// A caller is told not to wait any longer when half the time is over.
    ReleasedEarly = "released-early",
    /// A caller is not told that it need not wait any longer.
    ReleasedNever = "released-never",
    /// A suspect runs together with other requests.
    SuspectTogether = "suspect-together",
    /// A suspect runs although its start could not be counted.
    UncountedRuns = "uncounted-runs",
    /// The crash of a batch is counted for its first request.
    CrashOfFrame = "crash-of-frame",
    /// What a request of a batch did is kept although it failed.
    NestedKept = "nested-kept",
    /// An administrator's decision is applied to whatever is by then at the place of the effect that was seen.
    MendedByPlace = "mended-by-place",
    /// What a key has yet to send outlives its deletion.
    DeletedStillSends = "deleted-still-sends",
    /// After the deletion of a key, what it refuses counts as if it did not say when it was first sent.
    DeletedUndated = "deleted-undated",
    /// A request is sent elsewhere before its start is durable.
    SentBeforeDurable = "sent-before-durable",
    /// If one of several requests committed together fails, what ran before it is rolled back too.
    GroupIsolation = "group-isolation",
    /// What one of several requests committed together did is kept although it failed.
    GroupKept = "group-kept",
    /// Requests committed together run in another order than they arrived.
    GroupOrder = "group-order",
    /// Requests committed together get the instant at which the commit before them began.
    GroupOldClock = "group-old-clock",
    /// If the next commit is full, the latest request is in it, and an earlier one waits for a later commit.
    GroupOvertaken = "group-overtaken",
    /// Answers leave at the end of their turn, before the commit.
    GroupEarlyAnswer = "group-early-answer",
    /// The answers to a batch are in another order than its requests.
    BatchAnswersMixed = "batch-answers-mixed",
    /// The registry hears that a key has forgotten before that is durable.
    ForgetEarlyAnswer = "forget-early-answer",
    /// What an object has in memory of a lost commit goes into the next commit.
    MemoryKept = "memory-kept",
    /// The same for what a key had in memory before it was restored from a backup.
    RestoreKept = "restore-kept",
    /// A key is put back without what its sessions have taken.
    PutBackPlaceless = "put-back-placeless",
    /// A key is put back without the highest epoch that it had given by then.
    PutBackEpochless = "put-back-epochless",
    /// After a key was put back, its clients go on with the sessions of before.
    NamesKept = "names-kept",
    /// A holder that began after its key was put back tells its callers of a gap, as the former one had to.
    GapOfNextHolder = "gap-of-next-holder",
    /// A session is idle after half the retention that a restart sets.
    IdleHalved = "idle-halved",
    /// What goes along with a request that is executed elsewhere is not acknowledged.
    AlongForgotten = "along-forgotten",
    /// A key that sends requests elsewhere says that it is full one request too soon.
    ElsewhereTooSmall = "elsewhere-too-small",
    /// Such a key takes one more record than it may.
    ElsewhereTooLarge = "elsewhere-too-large",
    /// Such a key takes requests although it has as many tombstones as it may.
    ElsewhereTombstones = "elsewhere-tombstones",
    /// Such a key keeps outcomes for half their retention.
    ElsewhereHalved = "elsewhere-halved",
    /// A key says that it is full one request too soon, also in the middle of a commit.
    RoomTooSmall = "room-too-small",
    /// A key takes one more record than it may.
    RoomTooLarge = "room-too-large",
    /// A key takes requests although it has as many tombstones as it may.
    TombstonesTooMany = "tombstones-too-many",
    /// The service does not know any more what it has made.
    ServiceForgets = "service-forgets",
    /// Something in front of the service refuses as the service itself would.
    ServiceRefuses = "service-refuses",
    /// A connection that broke is taken for one that was never made.
    BrokenIsUnsent = "broken-is-unsent",
    /// When other times are set, it is forgotten by which times a request was sent.
    TimesForgotten = "times-forgotten",
    /// An answer of the service is taken for a lost one.
    AnswerLost = "answer-lost",
    /// A look-up of an outcome writes another outcome.
    LookUpWrites = "look-up-writes",
    /// A look-up of a request in doubt counts a start.
    LookUpCounts = "look-up-counts",
    /// A look-up of an outcome puts the request in doubt.
    LookUpDoubts = "look-up-doubts",
    /// A late answer counts, although the caller was told that none came in time.
    LateAnswerTaken = "late-answer-taken",
    /// A request that had its turn keeps it.
    TurnKept = "turn-kept",
    /// What is recorded is not what an administrator said of a request in doubt.
    ResolvedOtherwise = "resolved-otherwise",
    /// A key that sends requests elsewhere is put back without its outcomes.
    ElsewherePutBackBare = "elsewhere-put-back-bare",
    /// After it was put back, such a key says that it has forgotten, and has not.
    ElsewhereUnrefused = "elsewhere-unrefused",
    /// Between two requests, such a key forgets a clock that it has told and not stored.
    ElsewhereClockForgotten = "elsewhere-clock-forgotten",
    /// Until when the other side knows an id is measured by the clock of the machine, and not of the key.
    ElsewhereDedupByMachine = "elsewhere-dedup-by-machine",
    /// A call that lasted too long is dated as if the clock had not jumped, so a probe proves too early.
    ElsewhereLateUndated = "elsewhere-late-undated",
    /// When the clock jumps, it is forgotten that a call has lasted too long, so a probe proves too early.
    ElsewhereLateUntilJump = "elsewhere-late-until-jump",
    /// The service does not know any more what was made by a request that was sent again at a wrong time.
    ServiceForgetsMistimed = "service-forgets-mistimed",
    /// An attempt is from the future by the clock of the machine, and not of the key.
    ElsewhereAheadByMachine = "elsewhere-ahead-by-machine",
    /// Each attempt of the SDK after the first says that the request was first sent later.
    FirstSentPerAttempt = "first-sent-per-attempt",
}

/// A mistake on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutant {
    /// A rule of the code under test is switched off.
    Rule(Rule),
    /// Something around the code under test is wrong.
    Twin(Twin),
    /// A key says something that is not so.
    Lie(&'static Lie),
    /// A key stores something that is not so.
    Stored(&'static Stored),
}

impl Mutant {
    /// All mutants that a run can find.
    pub fn all() -> impl Iterator<Item = Self> {
        let rules = Rule::ALL.iter().copied().map(Self::Rule);
        rules
            .chain(Twin::ALL.iter().copied().map(Self::Twin))
            .chain(LIES.iter().map(Self::Lie))
            .chain(STORED.iter().map(Self::Stored))
    }

    /// The mutant with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::all().find(|mutant| mutant.name() == name)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rule(rule) => rule.name(),
            Self::Twin(twin) => twin.name(),
            Self::Lie(lie) => lie.name,
            Self::Stored(stored) => stored.name,
        }
    }

    /// The rule that it switches off.
    pub fn rule(self) -> Option<Rule> {
        match self {
            Self::Rule(rule) => Some(rule),
            Self::Twin(_) | Self::Lie(_) | Self::Stored(_) => None,
        }
    }
}
