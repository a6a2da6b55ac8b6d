//! One attempt that names a place in a session, from start to end.
//!
//! Invariants:
//! - Effect, place and acknowledgements of an attempt are one transaction, or nothing.
//! - The acknowledgement of an attempt is applied with every answer that it gets from the session, refusals included.

use super::decision::{Asked, decide, freed, open};
use crate::fingerprint::Fingerprint;
use crate::header::Attempt;
use crate::problem::{Code, Problem};
use crate::rules::{Rule, holds};
use crate::server::answer::{Answer, checked_outcome};
use crate::server::attempt::aside::Aside;
use crate::server::attempt::decision::{Decision, poisoned};
use crate::server::attempt::places::Noted;
use crate::server::attempt::suspicion::Started;
use crate::server::attempt::turn::{Loaded, Purpose, Turn, rolled_back};
use crate::server::config::OUTCOME_BODY_BYTES_MAX;
use crate::server::handler::Undone;
use crate::server::storage::crashes::{CRASHES_MAX, Count};
use crate::server::storage::record::Outcome;
use crate::server::storage::schema::Versions;
use crate::server::storage::sessions::rows;
use crate::server::storage::sessions::state::{Session, Taken, TakenState};
use crate::server::storage::sql::{SqlError, atomically, transact};
use crate::session::{Numbered, Place, SessionName};
use std::sync::Arc;

/// An attempt, with what was found for it.
struct Asking<'a> {
    place: &'a Place,
    session: Session,
    freed_seq: i64,
    fingerprint: Fingerprint,
}

impl Asking<'_> {
    fn started(&self) -> Started {
        Started::Place { session: self.session.number, epoch: self.place.epoch, seq: self.place.seq }
    }

    fn noted(&self, count: Option<Count>) -> Option<Noted<'_>> {
        Some(Noted { session: &self.session, freed_seq: self.freed_seq, count })
    }
}

impl Turn<'_> {
    /// Answers a request of the application that has a place in a session instead of an id.
    pub(in crate::server) fn change_in_session(
        &self,
        loaded: &mut Loaded,
        attempt: &Attempt,
        Numbered { place, ack }: &Numbered,
    ) -> Result<Answer, SqlError> {
        let session = match self.open_session(loaded, &place.session)? {
            Ok(session) => session,
            Err(problem) => return self.refuse(loaded, &problem, None, Aside::default()),
        };
        let freed_seq = freed(&session, place.epoch, *ack);
        let taken = rows::find_taken(self.sql, &session, place.seq)?;
        let mut asking = Asking { place, session, freed_seq, fingerprint: Fingerprint::of(self.arrival.request) };
        // The attempt that crashed was admitted by its deadline, even if that has passed by now.
        let deadline_ms = attempt.deadline_ms.filter(|_| self.purpose != Purpose::CountCrash);
        let asked = Asked { epoch: place.epoch, seq: place.seq, fingerprint: Some(&asking.fingerprint), deadline_ms };
        match (decide(&asking.session, taken.as_ref(), &asked, freed_seq, self.instant.now_ms), taken) {
            (Decision::Execute, _) => match self.purpose {
                Purpose::Execute => match self.count_dead_place(loaded, &mut asking)? {
                    Some(answer) => Ok(answer),
                    None => self.execute_place(loaded, &asking),
                },
                Purpose::CountStart => self.count_place_start(loaded, &asking),
                Purpose::KnowStart => Ok(self.know_start(loaded, asking.started())),
                Purpose::CountCrash => self.count_place_crash(loaded, &asking),
            },
            _ if self.purpose.is_ahead() => Ok(Answer::changed()),
            (Decision::Refuse(problem), _) => self.refuse_place(loaded, &problem, &asking, false),
            (Decision::Replay, Some(Taken { at_ms, state: TakenState::Executed(_, outcome), .. })) => {
                self.set_aside(loaded, None, Aside { session: asking.noted(None), ..Aside::default() })?;
                Ok(self.replayed(&outcome, at_ms))
            }
            (Decision::Replay | Decision::Doubt, _) => Err(rows::unreadable()),
        }
    }

    /// Refuses a request of a session without reading it further. What it acknowledges stays acknowledged.
    pub(in crate::server) fn refuse_in_session(
        &self,
        loaded: &mut Loaded,
        problem: &Problem,
        Numbered { place, ack }: &Numbered,
    ) -> Result<Answer, SqlError> {
        let opened = self.open_session(loaded, &place.session)?;
        let noted = |session| Noted { session, freed_seq: freed(session, place.epoch, *ack), count: None };
        self.refuse(loaded, problem, None, Aside { session: opened.as_ref().ok().map(noted), ..Aside::default() })
    }

    /// The session, if the caller owns it, or else the problem.
    fn open_session(&self, loaded: &Loaded, name: &SessionName) -> Result<Result<Session, Problem>, SqlError> {
        let found = match loaded.versions.engine {
            0 => None,
            _ => self.work(loaded).find_session(name)?,
        };
        Ok(open(found, Some(self.arrival.principal)))
    }

    fn refuse_place(
        &self,
        loaded: &mut Loaded,
        problem: &Problem,
        asking: &Asking<'_>,
        sweep: bool,
    ) -> Result<Answer, SqlError> {
        let session = asking.noted(ended(loaded, asking));
        self.refuse(loaded, problem, None, Aside { session, sweep, ..Aside::default() })
    }

    /// Runs the handler and records its answer, with all that goes along, in one transaction.
    fn execute_place(&self, loaded: &mut Loaded, asking: &Asking<'_>) -> Result<Answer, SqlError> {
        if let Some(want) = self.want_of_bytes(loaded)? {
            return self.refuse_place(loaded, &Problem::new(Code::Capacity, want), asking, true);
        }
        let mut work = self.work(loaded);
        let executed: Result<Arc<Outcome>, Undone> = transact(self.sql, self.writes_last(loaded), || {
            self.migrate(loaded.versions)?;
            work.after.versions = Versions::current(self.handler.tables_version());
            let response = self.handler.serve(&mut self.context(), self.arrival.request).map_err(Undone::Failed)?;
            let outcome = Arc::new(checked_outcome(response, OUTCOME_BODY_BYTES_MAX).map_err(Undone::Rejected)?);
            let state = TakenState::Executed(asking.fingerprint, outcome.clone());
            work.take(&asking.session, asking.place, state, asking.freed_seq)?;
            self.write_aside(&mut work, None, &Aside::default())?;
            Ok(outcome)
        });
        match executed {
            Ok(outcome) => {
                *loaded = work.after;
                Ok(Answer::executed(&outcome, self.expires_s(self.instant.now_ms)))
            }
            Err(undone) => {
                let answer = self.undone(undone)?;
                let session = asking.noted(ended(loaded, asking));
                self.set_aside(loaded, None, Aside { session, ..Aside::default() })?;
                Ok(answer)
            }
        }
    }

    fn count_place_start(&self, loaded: &mut Loaded, asking: &Asking<'_>) -> Result<Answer, SqlError> {
        if holds(Rule::StartCounted) {
            let is_own = loaded.started.has(&asking.started());
            self.put_place_count(loaded, asking, asking.session.count.started(is_own))?;
            loaded.started.add(asking.started());
        }
        Ok(Answer::changed())
    }

    /// Counts a start of an object that died, if nothing was counted ahead of this attempt. Closes the place if that was
    /// one crash too many.
    fn count_dead_place(&self, loaded: &mut Loaded, asking: &mut Asking<'_>) -> Result<Option<Answer>, SqlError> {
        let count = asking.session.count;
        if !count.is_started || loaded.started.has(&asking.started()) {
            return Ok(None);
        }
        let count = count.crashed();
        self.put_place_count(loaded, asking, count)?;
        if count.is_poisoned() {
            return Ok(Some(Answer::problem(&poisoned())));
        }
        // The sweep that went along may have deleted sessions without a place, this one among them.
        match self.open_session(loaded, &asking.place.session)? {
            Ok(session) => {
                asking.session = session;
                Ok(None)
            }
            Err(problem) => Ok(Some(Answer::problem(&problem))),
        }
    }

    /// Counts a crash of the handler. After the last allowed one, records that the place never runs again.
    fn count_place_crash(&self, loaded: &mut Loaded, asking: &Asking<'_>) -> Result<Answer, SqlError> {
        let count = asking.session.count.crashed();
        self.put_place_count(loaded, asking, count)?;
        let Place { session, seq, .. } = asking.place;
        let log = format!(
            "the handler crashed on number {seq} of the session {:?}, {} of {CRASHES_MAX} times",
            session.as_str(),
            count.crashes
        );
        Ok(if count.is_poisoned() { Answer::problem(&poisoned()).with_log(log) } else { rolled_back(&log) })
    }

    fn put_place_count(&self, loaded: &mut Loaded, asking: &Asking<'_>, count: Count) -> Result<(), SqlError> {
        if !holds(Rule::CrashCounted) {
            return Ok(());
        }
        let mut work = self.work(loaded);
        atomically(self.sql, || {
            if count.is_poisoned() {
                work.take(&asking.session, asking.place, TakenState::Poisoned(asking.fingerprint), asking.freed_seq)?;
            } else {
                work.note(&Noted { session: &asking.session, freed_seq: asking.freed_seq, count: Some(count) })?;
            }
            self.write_aside(&mut work, None, &Aside::default())
        })?;
        *loaded = work.after;
        Ok(())
    }
}

/// The count once a start has ended without a crash; `None` unless this object has counted a start of the place.
fn ended(loaded: &Loaded, asking: &Asking<'_>) -> Option<Count> {
    let count = asking.session.count;
    let is_own = loaded.started.has(&asking.started()) || !holds(Rule::OwnStart);
    (count.is_started && is_own && holds(Rule::StartEnded)).then_some(Count { is_started: false, ..count })
}
