//! A request that is executed elsewhere, with routes that change with deployments, under faults that a seed decides: calls are
//! lost, late, or last too long, or their object ends.
//!
//! Invariants that are checked, if each route is true of what was sent under it: the request has its effect at most once, nobody
//! is told an outcome that had no effect, and nothing is sent after somebody was told that nobody will find out.

use fastrand::Rng;
use semel_core::server::engine::remote::{Call as Sent, Ended};
use semel_core::server::handler::Policy;
use semel_support::elsewhere::{Elsewhere, answered, lost, order, refused, remote};
use semel_support::{Reply, World, look_up};

const SEEDS: u64 = 300;
const STEPS: usize = 30;
/// How long a call may be under way, and how long after that it may have its effect.
const TIMEOUT_MS: i64 = 20_000;
const AFTER_MS: i64 = 10_000;

fn policy(rng: &mut Rng) -> Policy {
    match rng.usize(0..5) {
        0 => Policy::Report,
        1 | 2 => Policy::Resend { dedup_s: rng.i64(10..150) },
        _ => {
            let settle_s = (TIMEOUT_MS + AFTER_MS) / 1000;
            Policy::Probe { path: "/orders/1".to_owned(), timeout_s: TIMEOUT_MS / 1000, settle_s }
        }
    }
}

/// A request that reaches the service, which then knows its id until `known_ms`, if at all.
struct Arrival {
    at_ms: i64,
    known_ms: Option<i64>,
}

struct Run {
    rng: Rng,
    world: World<Elsewhere>,
    /// The requests that have yet to arrive, and when the service knows the id: from when, and until when.
    coming: Vec<Arrival>,
    known: Vec<(i64, i64)>,
    effects: usize,
    is_unknown: bool,
    told: Vec<String>,
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let world = remote(policy(&mut rng));
        let told = vec![format!("seed {seed}, {:?}", world.handler.policy.borrow())];
        Self { rng, world, coming: Vec::new(), known: Vec::new(), effects: 0, is_unknown: false, told }
    }

    fn tell(&mut self, what: impl std::fmt::Debug) {
        self.told.push(format!("{} {what:?}", self.world.wall_ms));
    }

    #[track_caller]
    fn check(&self, holds: bool, what: &str) {
        assert!(holds, "{what}\n{}", self.told.join("\n"));
    }

    fn pass(&mut self, ms: i64) {
        self.world.pass_ms(ms);
        self.arrive();
    }

    /// The requests that are due have their effects, unless their id is known.
    fn arrive(&mut self) {
        self.coming.sort_by_key(|arrival| arrival.at_ms);
        let due = self.coming.partition_point(|arrival| arrival.at_ms <= self.world.wall_ms);
        for Arrival { at_ms, known_ms } in self.coming.drain(..due) {
            let is_known = self.known.iter().any(|(from_ms, until_ms)| (*from_ms..=*until_ms).contains(&at_ms));
            if known_ms.is_some() && is_known {
                continue;
            }
            self.effects += 1;
            self.known.extend(known_ms.map(|known_ms| (at_ms, at_ms + known_ms)));
        }
        self.check(self.effects <= 1, "it had its effect twice");
    }

    fn step(&mut self) {
        match self.rng.usize(0..9) {
            0 => {
                let policy = policy(&mut self.rng);
                self.tell(&policy);
                *self.world.handler.policy.borrow_mut() = policy;
                self.world.restart();
            }
            1 | 2 => {
                let ms = self.rng.i64(0..40_000);
                self.pass(ms);
            }
            3 => self.world.restart(),
            4 => drop(self.world.send(&look_up("a"))),
            _ => self.attempt(),
        }
    }

    fn attempt(&mut self) {
        let mut reply = self.world.send(&order("a"));
        while let Some(sent) = self.world.take_call() {
            self.tell(&sent);
            let ended = match sent {
                Sent::Dispatch { .. } => self.dispatched(),
                Sent::Probe { .. } => self.probed(),
            };
            self.tell(&ended);
            let Some(ended) = ended else { return self.world.restart() };
            reply = self.world.settle(&order("a"), &sent, ended);
        }
        self.heard(&reply);
    }

    fn heard(&mut self, reply: &Reply) {
        let status = reply.only("semel-status").to_owned();
        self.is_unknown |= status == "outcome-unknown";
        self.check(status != "executed" || self.effects == 1, "an outcome of nothing");
        self.tell(status);
    }

    /// The result of a call; `None`: its object ends meanwhile.
    fn dispatched(&mut self) -> Option<Ended> {
        self.check(!self.is_unknown, "it is sent though somebody was told that nobody finds out");
        let (now_ms, is_probed_for) =
            (self.world.wall_ms, matches!(*self.world.handler.policy.borrow(), Policy::Probe { .. }));
        let known_ms = match *self.world.handler.policy.borrow() {
            Policy::Resend { dedup_s } => Some(dedup_s * 1000 + TIMEOUT_MS),
            _ => None,
        };
        // If the request is sent again by its id, the time after its call is part of how long the id is known.
        let after_ms = if is_probed_for { self.rng.i64(0..=AFTER_MS) } else { 0 };
        let case = self.rng.usize(0..6);
        let lasts_ms = match case {
            0 | 1 => 0,
            // Only a probe waits for a call that lasted too long.
            2 if is_probed_for => self.rng.i64(0..100_000),
            _ => self.rng.i64(0..=TIMEOUT_MS),
        };
        match case {
            0 => {
                self.coming.push(Arrival { at_ms: now_ms, known_ms });
                self.arrive();
                Some(answered(201, "made"))
            }
            1 => Some(refused()),
            2 | 3 => {
                self.coming.push(Arrival { at_ms: now_ms + lasts_ms + after_ms, known_ms });
                self.pass(lasts_ms);
                Some(lost())
            }
            4 => Some(lost()),
            _ => {
                self.coming.push(Arrival { at_ms: now_ms + lasts_ms + after_ms, known_ms });
                None
            }
        }
    }

    fn probed(&mut self) -> Option<Ended> {
        match self.rng.usize(0..4) {
            0 => Some(lost()),
            1 => None,
            _ if self.effects == 0 => Some(answered(404, "")),
            _ => Some(answered(200, "it is there")),
        }
    }
}

#[test]
fn a_remote_request_has_its_effect_at_most_once_under_random_faults_and_route_changes() {
    for seed in 0..SEEDS {
        let mut run = Run::new(seed);
        for _ in 0..STEPS {
            run.step();
        }
    }
}
