//! The keys that have sessions and take batches.
//!
//! - [`Server`]: all keys, and what happens to them; requests that come alone
//! - `batch`: batches and frames
//! - `key`: one key, and the faults of its storage
//! - `putting_back`: a key goes back to a backup
//!
//! Invariants:
//! - A batch is handled as in `batches.js`: in one commit, or one by one if that crashes, if the storage fails, or if
//!   one of its requests is a suspect.
//! - A crash happens between any two statements, and leaves what was committed. The next message starts the object
//!   again.

mod batch;
mod key;
mod putting_back;

use self::key::Keyed;
use super::asked::{Asked, Dealt};
use super::view::View;
use crate::deposits::{Deposits, Trouble};
use crate::letter::Message;
use crate::lies;
use crate::mutant::{Mutant, Twin};
use crate::plan::Plan;
use crate::snapshot::effects_after;
use crate::stored::{self, When};
use fastrand::Rng;
pub use putting_back::Copy;
use semel_core::message::Method;
use semel_core::server::edge::router::{self, Route};
use semel_core::server::{Access, Config, Gate};
use semel_support::{Call, Reply, START_MS};
use std::collections::BTreeMap;
use std::rc::Rc;

/// How far a clock goes back at most, in ms. This is less than a first-sent may be ahead: a client that took its
/// first-sent from an answer without a commit is not refused for it.
const BACK_MS_MAX: i64 = 100_000;

/// All keys.
pub struct Server {
    mutant: Option<Mutant>,
    plan: Plan,
    config: Config,
    keys: BTreeMap<String, Keyed>,
    /// For what is held back: another stream, so that all other decisions stay as they were.
    apart: Rng,
    /// Whether the commit of the next message may be slow.
    pub may_hold: bool,
    /// What goes wrong in the handler, by the number of the request, and how often.
    pub troubles: BTreeMap<String, (Trouble, u32)>,
}

impl Server {
    /// Makes a server for a plan.
    pub fn new(plan: &Plan, mutant: Option<Mutant>) -> Self {
        let config = Config {
            open: true,
            retention_s: plan.sessions.retentions_s[0],
            sessions_max: plan.sessions.sessions_max,
            ..Config::default()
        };
        Self {
            mutant,
            plan: plan.clone(),
            config,
            keys: BTreeMap::new(),
            apart: Rng::with_seed(crate::plan::of_sockets(!plan.seed)),
            may_hold: false,
            troubles: BTreeMap::new(),
        }
    }

    pub fn is_twin(&self, twin: Twin) -> bool {
        self.mutant == Some(Mutant::Twin(twin))
    }

    /// Ends the faults. A request that crashes the handler still does.
    pub fn calm(&mut self) {
        let Plan { crash_server, fail_statements, full_disk, slow_commits, .. } = &mut self.plan;
        for share in [crash_server, fail_statements, full_disk, slow_commits] {
            *share = 0;
        }
        for keyed in self.keys.values_mut() {
            let mut troubles = keyed.world.handler.troubles.borrow_mut();
            troubles.retain(|_, (trouble, _)| matches!(trouble, Trouble::Panics | Trouble::Kills));
        }
        self.troubles.retain(|_, (trouble, _)| matches!(trouble, Trouble::Panics | Trouble::Kills));
    }

    /// The clock of a key at `at_ms` of the run, in Unix ms.
    pub fn clock_ms(&self, key: &str, at_ms: i64) -> i64 {
        let keyed = self.keys.get(key);
        let ahead_ms = keyed.map_or(0, |keyed| keyed.ahead_ms);
        let latest_ms = keyed.map_or(0, |keyed| keyed.seen.ids.latest_ms());
        let used_ms = keyed.and_then(|keyed| keyed.seen.sessions.values().map(|row| row.used_ms).max());
        let told_ms = keyed.map_or(0, |keyed| keyed.told_ms);
        (START_MS + at_ms + ahead_ms).max(told_ms).max(latest_ms).max(used_ms.unwrap_or(0))
    }

    /// The clock of a key's machine at `at_ms` of the run, in Unix ms.
    pub fn wall_ms(&self, key: &str, at_ms: i64) -> i64 {
        START_MS + at_ms + self.keys.get(key).map_or(0, |keyed| keyed.ahead_ms)
    }

    /// How many objects of a key have lived so far.
    pub fn starts(&self, key: &str) -> u32 {
        self.keys.get(key).map_or(0, |keyed| keyed.starts)
    }

    /// What a key stores.
    pub fn seen(&self, key: &str) -> Option<&View> {
        self.keys.get(key).map(|keyed| &*keyed.seen)
    }

    /// Makes durable what a key holds back.
    pub fn release(&mut self, key: &str) {
        if let Some(keyed) = self.keys.get(key).filter(|keyed| keyed.world.database.is_holding()) {
            keyed.world.database.release();
        }
    }

    /// Before a suspect, everything is made durable; also before a request that ends the module, since that ends the
    /// connection here, which it does not do in the real host. Otherwise commits may be held back from now on. Returns
    /// whether what was held back is durable now.
    fn settle(&mut self, keyed: &Keyed, asked: &[Asked], is_suspect: bool) -> bool {
        let (database, troubles) = (&keyed.world.database, keyed.world.handler.troubles.borrow());
        let is_in_trouble = |asked: &Asked| troubles.get(&asked.number).is_some_and(|(_, times)| *times > 0);
        let may_hold = self.may_hold && !is_suspect && !asked.iter().any(is_in_trouble);
        match database.is_holding() {
            true if !may_hold => database.release(),
            false if may_hold && self.apart.u32(0..100) < self.plan.slow_commits => database.hold(),
            _ => return false,
        }
        !database.is_holding()
    }

    /// Restarts a key without a fault, with another retention.
    pub fn restart(&mut self, key: &str, retention_s: i64) {
        let is_halved = self.is_twin(Twin::IdleHalved);
        if let Some(keyed) = self.keys.get_mut(key) {
            keyed.retention_s = retention_s;
            keyed.world.restart_with(|config| {
                config.retention_s = if is_halved { retention_s / 2 } else { retention_s };
            });
            keyed.died();
        }
    }

    /// Lets the clock of a key's machine jump. Returns whether it goes back.
    pub fn jump(&mut self, key: &str, jump_ms: i64) -> bool {
        let Some(keyed) = self.keys.get_mut(key) else { return false };
        let before_ms = keyed.ahead_ms;
        keyed.ahead_ms = (before_ms + jump_ms).max(keyed.ahead_ms_max - BACK_MS_MAX);
        keyed.ahead_ms_max = keyed.ahead_ms_max.max(keyed.ahead_ms);
        keyed.ahead_ms < before_ms
    }

    /// Lets a key forget what was last used before an instant. Returns what it stored before and after.
    pub fn forget(&mut self, key: &str, before_s: i64, at_ms: i64) -> Option<(Rc<View>, Rc<View>)> {
        let keyed = self.keys.get_mut(key)?;
        keyed.world.wall_ms = START_MS + at_ms + keyed.ahead_ms;
        keyed.world.forget(before_s).ok()?;
        keyed.tell();
        let before = keyed.seen.clone();
        keyed.forgotten_s = keyed.forgotten_s.max(before_s);
        keyed.look();
        Some((before, keyed.seen.clone()))
    }

    /// Handles a message that arrives at `at_ms` of the run.
    pub fn deal(&mut self, rng: &mut Rng, at_ms: i64, message: &Message) -> Result<Dealt, Reply> {
        let mut call = Call::new(&message.method, &message.target).body(message.body.clone());
        for (name, value) in message.headers.iter() {
            call = call.header(name, value);
        }
        if message.is_administration() {
            let path = message.target.trim_start_matches("/semel/v1/admin/keys/");
            let key = path.split('/').next().unwrap_or_default().replace("%2F", "/");
            return Ok(self.ask(rng, at_ms, &key, message, (call.by("semel:admin"), "semel:admin")));
        }
        let gate = &mut Gate::new(Access::open_or_closed(true));
        let (handler, method) = (Deposits::default(), Method::new(&message.method));
        match router::route(&handler, &self.config, gate, &method, call.url(), &call.headers(), START_MS + at_ms) {
            Route::Answer(answer) => Err(Reply::checked(answer)),
            Route::Object { key, principal, .. } => {
                let call = call.by(principal.as_str());
                Ok(self.ask(rng, at_ms, key.as_str(), message, (call, principal.as_str())))
            }
            Route::Batch { key, asker, .. } => Ok(self.ask_batch(rng, at_ms, &key, message, (&asker, None))),
            other => panic!("nobody asks for that here: {other:?}"),
        }
    }

    fn begin(&mut self, key: &str, at_ms: i64) -> (Keyed, Rc<View>) {
        let keyed = self.keys.remove(key);
        let mut keyed = keyed.unwrap_or_else(|| Keyed::new(key, self.config.clone()));
        keyed.world.database.keeps_nested.set(self.is_twin(Twin::NestedKept));
        keyed.world.wall_ms = START_MS + at_ms + keyed.ahead_ms;
        let wall_ms = keyed.world.wall_ms;
        keyed.starts += u32::from(keyed.started_ms.is_none());
        keyed.started_ms.get_or_insert(wall_ms);
        keyed.world.handler.troubles.borrow_mut().append(&mut self.troubles);
        let seen = keyed.seen.clone();
        (keyed, seen)
    }

    fn ask(
        &mut self,
        rng: &mut Rng,
        at_ms: i64,
        key: &str,
        message: &Message,
        (call, principal): (Call, &str),
    ) -> Dealt {
        let (mut keyed, before) = self.begin(key, at_ms);
        keyed.tell();
        let asked = vec![Asked::of_message(message)];
        let is_suspect = keyed.is_suspect(call.method(), call.url().0, &call.headers());
        let has_released = self.settle(&keyed, &asked, is_suspect);
        let mut uncounted = None;
        if is_suspect {
            self.plan.break_key(rng, &keyed, &[], 1);
            let started = keyed.world.start(&call);
            keyed.world.database.calm();
            uncounted = Some(started).filter(|started| started.only("semel-status") == "unavailable");
        }
        let mut replies = Vec::new();
        let is_uncounted = uncounted.is_some();
        if !keyed.world.database.has_crashed() {
            let told = uncounted.filter(|_| !self.is_twin(Twin::UncountedRuns));
            replies.push(told.unwrap_or_else(|| {
                self.plan.break_key(rng, &keyed, &asked, 1);
                keyed.world.send(&call)
            }));
        }
        let is_administered = principal == "semel:admin" && message.method == "DELETE";
        let blank = blank(key, principal, &before);
        let dealt = Dealt { asked, replies, is_administered, has_released, is_uncounted, ..blank };
        self.end(keyed, at_ms, dealt)
    }

    fn end(&mut self, mut keyed: Keyed, at_ms: i64, dealt: Dealt) -> Dealt {
        let has_crashed = keyed.world.database.has_crashed();
        let was_holding = keyed.world.database.is_holding();
        keyed.world.database.calm();
        if has_crashed {
            keyed.world.restart();
            keyed.died();
        }
        stored::change(self.mutant, When::Session, &keyed.world.database);
        keyed.look();
        // Everything that was held back is lost with the object.
        let is_lost = has_crashed && was_holding;
        let dealt = if is_lost { Dealt { before: keyed.seen.clone(), ..dealt } } else { dealt };
        let is_held = keyed.world.database.is_holding();
        let (before, after) = (dealt.before.ids.effects, keyed.seen.clone());
        let effects =
            if after.ids.effects > before { effects_after(&keyed.world.database, None, before) } else { Vec::new() };
        let panicked = keyed.world.handler.panicked.take();
        if !panicked.is_empty() {
            // What the engine knew is lost with the module.
            keyed.told_ms = 0;
        }
        let key = dealt.key.clone();
        self.keys.insert(key.clone(), keyed);
        let replies = if has_crashed { Vec::new() } else { dealt.replies };
        let told = |(asked, reply): (&Asked, Reply)| lies::told(self.mutant, asked.aim.kind(), reply);
        let replies = dealt.asked.iter().zip(replies).map(told).collect();
        let (now_ms, retention_s) =
            (self.clock_ms(&key, at_ms), self.keys.get(&key).map_or(0, |keyed| keyed.retention_s));
        Dealt { replies, has_crashed, is_held, panicked, effects, after, now_ms, retention_s, ..dealt }
    }
}

fn blank(key: &str, principal: &str, before: &Rc<View>) -> Dealt {
    Dealt {
        key: key.to_owned(),
        principal: principal.to_owned(),
        asked: Vec::new(),
        replies: Vec::new(),
        refusal: None,
        acks: Vec::new(),
        is_batch: false,
        was_alone: false,
        has_crashed: false,
        is_held: false,
        has_released: false,
        is_closing: false,
        is_past_token: false,
        is_uncounted: false,
        panicked: Vec::new(),
        effects: Vec::new(),
        before: before.clone(),
        after: before.clone(),
        now_ms: 0,
        retention_s: 0,
        is_administered: false,
    }
}
