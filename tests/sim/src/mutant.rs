//! The ways in which a run can be wrong on purpose, each of which must be found out.
//!
//! Invariant: a mutant has one name, on the command line and in the table of `tests/mutants.rs`.

use crate::lies::{LIES, Lie};
use crate::stored::{STORED, Stored};
use semel_core::rules::Rule;

macro_rules! twins {
    ($($(#[doc = $doc:literal])* $twin:ident = $name:literal,)*) => {
        /// A mistake in the world around the two halves, or in how they are put together.
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
    /// An acknowledgement says nothing of the last attempts that may still be under way.
    TombstoneWithoutUntil = "tombstone-without-until",
    /// The store says that a row is written before it is.
    SendBeforePersisting = "send-before-persisting",
    /// The effect is committed by itself, before the record.
    EffectApart = "effect-apart",
    /// A request is forgotten before its caller has the answer.
    ForgetBeforeDelivery = "forget-before-delivery",
    /// Each attempt after the first has an id of its own.
    NewIdPerAttempt = "new-id-per-attempt",
    /// A key goes by the shortest retention that it was ever set to.
    ShortestRetention = "shortest-retention",
    /// A key calls itself full one request too soon.
    FullEarly = "full-early",
    /// From the tenth deposit on, a read does not see the last one.
    StaleReads = "stale-reads",
    /// Who calls with an id that is in hand joins it, whatever they ask for.
    OtherPayloadJoined = "other-payload-joined",
    /// That a tab waits for what another sees to is not written down.
    JoinForgotten = "join-forgotten",
    /// Who waits no longer is told that it did not run.
    ReleasedWithNo = "released-with-no",
    /// Who waits is told to wait no longer when half of their time is over.
    ReleasedEarly = "released-early",
    /// Who waits is not told to wait no longer.
    ReleasedNever = "released-never",
    /// What may have ended the object before runs beside others.
    SuspectTogether = "suspect-together",
    /// What may have ended the object before runs though its start could not be counted.
    UncountedRuns = "uncounted-runs",
    /// A crash of a batch is counted of its first request.
    CrashOfFrame = "crash-of-frame",
    /// What a request of a batch did stays though it failed.
    NestedKept = "nested-kept",
    /// What is mended is what is in the place of what an administrator saw there.
    MendedByPlace = "mended-by-place",
    /// A request is sent elsewhere before its start is durable.
    SentBeforeDurable = "sent-before-durable",
    /// What fails one of those that are committed together undoes what ran before it.
    GroupIsolation = "group-isolation",
    /// What one of those that are committed together did stays though it failed.
    GroupKept = "group-kept",
    /// What is committed together is worked in another order than it came in.
    GroupOrder = "group-order",
    /// What is committed together is as of when the commit before it began.
    GroupOldClock = "group-old-clock",
    /// Who came last is in the next commit, and those before them in a later one, if it is full.
    GroupOvertaken = "group-overtaken",
    /// Answers leave when their turn is over, before its commit is.
    GroupEarlyAnswer = "group-early-answer",
    /// The answers to a batch are in another order than its requests.
    BatchAnswersMixed = "batch-answers-mixed",
    /// The registry hears that a key has forgotten before that is durable.
    ForgetEarlyAnswer = "forget-early-answer",
    /// What an object had in memory of a commit that is lost is in the next one's.
    MemoryKept = "memory-kept",
    /// The same, of what a key had in memory before it was put back to a backup.
    RestoreKept = "restore-kept",
    /// Where requests are sent nobody knows what was made.
    ServiceForgets = "service-forgets",
    /// Who stands in front of the service refuses as the service would.
    ServiceRefuses = "service-refuses",
    /// A connection that broke is taken for one that could not be made.
    BrokenIsUnsent = "broken-is-unsent",
    /// By which times something was sent is forgotten where others are set.
    TimesForgotten = "times-forgotten",
    /// An answer of the service is taken for one that was lost.
    AnswerLost = "answer-lost",
    /// Who looks an outcome up writes another.
    LookUpWrites = "look-up-writes",
    /// Who looks up what is in doubt counts a start.
    LookUpCounts = "look-up-counts",
    /// Who looks an outcome up puts it in doubt.
    LookUpDoubts = "look-up-doubts",
    /// What has had no answer in time, and of which its caller was told so, has one that comes late.
    LateAnswerTaken = "late-answer-taken",
    /// Whoever had a turn keeps it.
    TurnKept = "turn-kept",
    /// What an administrator says of what is in doubt is not what is recorded.
    ResolvedOtherwise = "resolved-otherwise",
}

/// One mistake on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutant {
    /// A rule of the code under test is switched off.
    Rule(Rule),
    /// Something around it is wrong.
    Twin(Twin),
    /// A key says what is not so.
    Lie(&'static Lie),
    /// A key stores what is not so.
    Stored(&'static Stored),
}

impl Mutant {
    /// All that a run can find out.
    pub fn all() -> impl Iterator<Item = Self> {
        let rules = Rule::ALL.iter().copied().map(Self::Rule);
        rules
            .chain(Twin::ALL.iter().copied().map(Self::Twin))
            .chain(LIES.iter().map(Self::Lie))
            .chain(STORED.iter().map(Self::Stored))
    }

    /// The one of a name.
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
