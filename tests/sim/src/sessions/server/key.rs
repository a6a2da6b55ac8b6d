//! One key, its clock, and the faults of its storage.

use crate::deposits::{Deposits, EFFECT, END, Trouble};
use crate::plan::Plan;
use crate::sessions::asked::Asked;
use crate::sessions::view::View;
use fastrand::Rng;
use semel_core::message::{Headers, Method};
use semel_core::server::batch::Element;
use semel_core::server::{Config, attempt::suspicion};
use semel_support::World;
use std::rc::Rc;

/// The most statements of a request. A fault happens at one of them.
const STATEMENTS_MAX: u64 = 14;
/// How many more statements there are for each further request in the same commit.
const STATEMENTS_OF_ONE_MORE: u64 = 3;

pub(super) struct Keyed {
    pub(super) world: World<Deposits>,
    pub(super) ahead_ms: i64,
    pub(super) ahead_ms_max: i64,
    /// The latest clock of the engine that lives. It does not go back, whatever the machine's clock does.
    pub(super) told_ms: i64,
    /// `None` if it has died and nobody has asked since.
    pub(super) started_ms: Option<i64>,
    pub(super) starts: u32,
    pub(super) forgotten_s: i64,
    /// In seconds.
    pub(super) retention_s: i64,
    pub(super) seen: Rc<View>,
}

impl Keyed {
    pub(super) fn new(key: &str, config: Config) -> Self {
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

    pub(super) fn is_suspect_element(&self, element: &Element) -> bool {
        self.is_suspect(&element.method, &element.url.0, &element.headers)
    }

    pub(super) fn is_suspect(&self, method: &Method, pathname: &str, headers: &Headers) -> bool {
        let started_ms = self.started_ms.unwrap_or(self.world.wall_ms);
        suspicion::is_suspect(method, pathname, headers, started_ms, self.world.wall_ms)
            && !self.world.has_outcome(headers)
    }

    /// Asks the engine, which takes the clock of its machine if that is later.
    pub(super) fn tell(&mut self) {
        self.told_ms = self.told_ms.max(self.world.wall_ms);
    }

    /// The object has died. The next one has the clock of its machine, and of what was committed.
    pub(super) fn died(&mut self) {
        (self.started_ms, self.told_ms) = (None, 0);
    }

    pub(super) fn look(&mut self) {
        self.seen = Rc::new(View::of(&self.world.database, self.forgotten_s));
    }
}

impl Plan {
    /// Chooses the fault of the next call, or lets a request end the object that should.
    pub(super) fn break_key(&self, rng: &mut Rng, keyed: &Keyed, asked: &[Asked], requests: u64) {
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
