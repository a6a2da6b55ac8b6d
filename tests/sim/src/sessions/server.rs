//! The keys that have sessions and take batches.
//!
//! Invariants:
//! - A batch is handled as in `batches.js`: in one commit, or one by one if that crashes, if the storage fails, or if
//!   one of its requests is a suspect.
//! - A crash happens between any two statements, and leaves what was committed. The next message starts the object
//!   again.

use super::asked::{Asked, Dealt};
use super::frame;
use super::view::View;
use crate::deposits::{Deposits, EFFECT, END, Trouble};
use crate::letter::Message;
use crate::lies;
use crate::mutant::{Mutant, Twin};
use crate::plan::Plan;
use crate::snapshot::effects_after;
use crate::stored::{self, When};
use fastrand::Rng;
use semel_core::id::Key;
use semel_core::message::{Headers, Method};
use semel_core::server::batch::{Batch, Element, first_frame};
use semel_core::server::edge::auth::Asker;
use semel_core::server::edge::router::{self, Route};
use semel_core::server::{Access, Answer, Config, Gate, attempt::suspicion};
use semel_support::{Call, Reply, START_MS, World};
use serde_json::Value;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

/// The most statements of a request. A fault happens at one of them.
const STATEMENTS_MAX: u64 = 14;
/// How many more statements there are for each further request in the same commit.
const STATEMENTS_OF_ONE_MORE: u64 = 3;
/// How far a clock goes back at most, in ms. This is less than a first-sent may be ahead: a client that took its
/// first-sent from an answer without a commit is not refused for it.
const BACK_MS_MAX: i64 = 100_000;

struct Keyed {
    world: World<Deposits>,
    ahead_ms: i64,
    ahead_ms_max: i64,
    /// The latest clock of the engine that lives. It does not go back, whatever the machine's clock does.
    told_ms: i64,
    /// `None` if it has died and nobody has asked since.
    started_ms: Option<i64>,
    starts: u32,
    forgotten_s: i64,
    /// In seconds.
    retention_s: i64,
    seen: Rc<View>,
}

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

/// The result of a batch's elements: their answers, or the refusal of the whole batch; and whether each ran by itself.
type Together = (Option<Result<Vec<Reply>, Reply>>, bool);

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

    fn is_twin(&self, twin: Twin) -> bool {
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

    /// Authenticates the first frame of a socket; `None` if it is refused.
    pub fn admit(&self, key: &str, first: &str, at_ms: i64) -> Option<Asker> {
        let headers = first_frame(first).ok()?;
        Gate::new(Access::open_or_closed(true)).admit(&headers, self.wall_ms(key, at_ms)).ok()
    }

    /// Handles a message that arrives as a frame of a socket.
    pub fn deal_frame(&mut self, rng: &mut Rng, at_ms: i64, message: &Message, on: (&Asker, i64)) -> Dealt {
        let key = message.target.trim_start_matches("/semel/v1/keys/").trim_end_matches("/batch").replace("%2F", "/");
        let key = Key::new(&key).expect("a key");
        self.ask_batch(rng, at_ms, &key, message, (on.0, Some(on.1)))
    }

    /// `frame`: the number of the frame, if it is one.
    fn ask_batch(
        &mut self,
        rng: &mut Rng,
        at_ms: i64,
        key: &Key,
        message: &Message,
        (asker, frame): (&Asker, Option<i64>),
    ) -> Dealt {
        let (mut keyed, before) = self.begin(key.as_str(), at_ms);
        let json: Value = serde_json::from_slice(&message.body).unwrap_or_default();
        let elements: Vec<Value> = json.as_array().cloned().unwrap_or_default();
        let asked: Vec<Asked> = elements.iter().map(Asked::of_element).collect();
        let wall_ms = keyed.world.wall_ms;
        let batch = match frame {
            None => Batch::parse(key, &message.headers, Some(&message.body)),
            Some(number) => {
                let text = frame::text(number, &elements, &message.acks());
                Batch::parse_frame(key, asker, wall_ms, Some(text.as_bytes()))
            }
        };
        let is_closing = frame.is_some() && batch.is_err();
        let is_past_token = asker.ends_ms.is_some_and(|ends_ms| ends_ms <= wall_ms);
        let suspects: Vec<bool> = match &batch {
            Ok(Batch { elements, .. }) => elements.iter().map(|element| keyed.is_suspect_element(element)).collect(),
            Err(_) => Vec::new(),
        };
        let has_released = self.settle(&keyed, &asked, suspects.contains(&true));
        let (answered, was_alone) = match batch {
            Ok(batch) => {
                keyed.tell();
                self.run_batch(rng, &mut keyed, (batch, &suspects), (asker, &elements), &asked)
            }
            // The engine is not asked, and its clock stays where it is.
            Err(problem) => {
                let answer = Answer::problem(&problem).stamped(wall_ms, None);
                (Some(Err(Reply::checked(answer))), false)
            }
        };
        let has_crashed = keyed.world.database.has_crashed();
        let (replies, refusal) = match answered.filter(|_| !has_crashed) {
            Some(Ok(replies)) => (replies, None),
            Some(Err(refusal)) => (Vec::new(), Some(refusal)),
            None => (Vec::new(), None),
        };
        let acks = message.acks().into_iter().map(|(id, _)| id).collect();
        let dealt = Dealt {
            asked,
            replies,
            refusal,
            acks,
            is_batch: true,
            was_alone,
            has_released,
            is_closing,
            is_past_token,
            ..blank(key.as_str(), asker.principal.as_str(), &before)
        };
        self.end(keyed, at_ms, dealt)
    }

    fn run_batch(
        &self,
        rng: &mut Rng,
        keyed: &mut Keyed,
        (batch, suspects): (Batch, &[bool]),
        (asker, elements): (&Asker, &[Value]),
        asked: &[Asked],
    ) -> Together {
        let refused = |wall_ms: i64| move |problem| Reply::checked(Answer::problem(&problem).stamped(wall_ms, None));
        let wall_ms = keyed.world.wall_ms;
        if !suspects.contains(&true) || self.is_twin(Twin::SuspectTogether) {
            self.plan.break_key(rng, keyed, asked, elements.len() as u64);
            let (world, all) = (&mut keyed.world, batch.clone());
            match catch_unwind(AssertUnwindSafe(|| world.in_one_commit(asker, all))) {
                Ok(Ok(None)) if !world.database.has_crashed() => {}
                Ok(answers) => return (answers.map_err(refused(wall_ms)).transpose(), false),
                Err(_) => keyed.world.restart(),
            }
        }
        if let (true, Some(first)) = (self.is_twin(Twin::CrashOfFrame), elements.first()) {
            // The first request gets the blame.
            let crashed = |n: usize| if n == 0 { keyed.world.crashed_by(asker, first) } else { unavailable(wall_ms) };
            return (Some(Ok((0..elements.len()).map(crashed).collect())), true);
        }
        keyed.world.database.calm();
        // This has one commit, and whether the acknowledgements count depends on it.
        self.plan.break_key(rng, keyed, &[], 4);
        let mut shell = batch;
        shell.elements.clear();
        match keyed.world.in_one_commit(asker, shell) {
            _ if keyed.world.database.has_crashed() => return (None, true),
            Ok(_) => {}
            Err(problem) => return (Some(Err(refused(wall_ms)(problem))), true),
        }
        let mut replies = Vec::new();
        for (n, element) in elements.iter().enumerate() {
            keyed.world.database.calm();
            self.plan.break_key(rng, keyed, &asked[n..=n], 1);
            let reply =
                keyed.world.alone_by(asker, element, (n, suspects[n])).expect("an element that was read before");
            if keyed.world.database.has_crashed() {
                return (None, true);
            }
            replies.push(reply);
        }
        (Some(Ok(replies)), true)
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

fn unavailable(wall_ms: i64) -> Reply {
    Reply::checked(Answer::unavailable("the object died").stamped(wall_ms, None))
}

impl Plan {
    /// Chooses the fault of the next call, or lets a request end the object that should.
    fn break_key(&self, rng: &mut Rng, keyed: &Keyed, asked: &[Asked], requests: u64) {
        let database = &keyed.world.database;
        let most = STATEMENTS_MAX + STATEMENTS_OF_ONE_MORE * requests.saturating_sub(1);
        let (n, die) = (rng.u64(0..most), rng.u32(0..100));
        let troubles = keyed.world.handler.troubles.borrow();
        let kills = |asked: &Asked| matches!(troubles.get(&asked.number), Some((Trouble::Kills, times)) if *times > 0);
        if asked.iter().any(kills) {
            database.crash_at(END);
        } else if die < self.crash_server {
            database.crash_before(n);
        } else if rng.u32(0..100) < self.full_disk {
            database.full(n);
        } else if rng.u32(0..100) < self.fail_statements * requests.clamp(1, 4) as u32 {
            // A batch has few commits, and many requests depend on each.
            match rng.u32(0..6) {
                0 | 1 => database.fail_at("COMMIT", 2),
                2 | 3 => database.fail_at("COMMIT", 1),
                // After a failure, a batch in one commit runs again, one by one. Then something else fails.
                4 => database.fail_again(EFFECT, rng.u64(1..10)),
                _ => database.fail(n),
            }
        }
    }
}

impl Keyed {
    fn new(key: &str, config: Config) -> Self {
        let retention_s = config.retention_s;
        let world = World::in_memory(key, Deposits::default(), config);
        Self {
            retention_s,
            world,
            ahead_ms: 0,
            ahead_ms_max: 0,
            told_ms: 0,
            started_ms: None,
            starts: 0,
            forgotten_s: 0,
            seen: Rc::default(),
        }
    }

    fn is_suspect_element(&self, element: &Element) -> bool {
        self.is_suspect(&element.method, &element.url.0, &element.headers)
    }

    fn is_suspect(&self, method: &Method, pathname: &str, headers: &Headers) -> bool {
        let started_ms = self.started_ms.unwrap_or(self.world.wall_ms);
        suspicion::is_suspect(method, pathname, headers, started_ms, self.world.wall_ms)
            && !self.world.has_outcome(headers)
    }

    /// Asks the engine, which takes the clock of its machine if that is later.
    fn tell(&mut self) {
        self.told_ms = self.told_ms.max(self.world.wall_ms);
    }

    /// The object has died. The next one has the clock of its machine, and of what was committed.
    fn died(&mut self) {
        (self.started_ms, self.told_ms) = (None, 0);
    }

    fn look(&mut self) {
        self.seen = Rc::new(View::of(&self.world.database, self.forgotten_s));
    }
}
