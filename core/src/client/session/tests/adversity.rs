//! Many tabs, a bad network and a failing store, all at once. The tests check what must hold whatever happens.

use super::*;
use std::collections::BTreeSet;

/// A source of numbers that look random, and are the same for the same seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }
}

struct World {
    server: Server,
    rows: Rows,
    tabs: Vec<Tab>,
    /// Transmissions that are under way twice. The copy may arrive at any time.
    copies: Vec<Transmission>,
    /// The calls of each tab, in order.
    calls: Vec<Vec<String>>,
    /// The answers in tabs that are gone.
    heard: Vec<(String, Answered)>,
    /// The ids that had a row after any step.
    stored: BTreeSet<String>,
    dice: Dice,
    /// Whether some tabs can't tell who lives when they are opened.
    may_be_blind: bool,
    has_been_blind: bool,
}

impl World {
    fn alive(&self) -> Vec<String> {
        self.tabs.iter().map(|tab| tab.session.settings.owner.clone()).collect()
    }

    fn open(&mut self) {
        let owner = format!("tab{}", self.calls.len());
        // One in four of these tabs takes the rows of all others, since it can't tell who lives.
        let is_blind = self.may_be_blind && self.dice.below(4) == 0;
        let alive = if is_blind { Vec::new() } else { self.alive() };
        // From then on, rows of living tabs may have been taken.
        self.has_been_blind |= is_blind && !self.tabs.is_empty();
        let alive: Vec<_> = alive.iter().map(String::as_str).collect();
        // Opening fences the other tabs. Those of their rows that no caller waits for are taken.
        self.tabs.iter_mut().for_each(|tab| tab.shares = true);
        self.tabs.push(Tab::open(&owner, &mut self.server, &mut self.rows, &alive));
        self.calls.push(Vec::new());
        self.tabs.iter_mut().for_each(|tab| tab.shares |= self.has_been_blind);
    }

    fn owner_number(tab: &Tab) -> usize {
        tab.session.settings.owner.trim_start_matches("tab").parse().unwrap()
    }

    fn step(&mut self) {
        if self.tabs.is_empty() || (self.tabs.len() < 4 && self.dice.below(40) == 0) {
            return self.open();
        }
        let at = self.dice.below(self.tabs.len());
        let what = self.dice.below(100);
        let (server, rows, tab) = (&mut self.server, &mut self.rows, &mut self.tabs[at]);
        match what {
            0..25 => {
                let calls = &mut self.calls[Self::owner_number(tab)];
                let id = format!("{}-{}", tab.session.settings.owner, calls.len());
                calls.push(id.clone());
                tab.call(rows, &id);
            }
            25..60 if !tab.sent.is_empty() => tab.arrives(server, rows),
            60..70 if !tab.sent.is_empty() => drop(tab.lose(rows)),
            70..80 if !tab.sent.is_empty() => {
                let made = tab.lose(rows);
                server.serve(&made);
                self.copies.push(made);
            }
            80..84 if !self.copies.is_empty() => {
                let late = self.copies.swap_remove(self.dice.below(self.copies.len()));
                server.serve(&late);
            }
            84..86 => tab.is_broken = !tab.is_broken,
            86..88 => {
                if let Some((ticket, _)) = tab.ids.iter().nth(self.dice.below(tab.ids.len().max(1))) {
                    tab.session.give_up(tab.now_ms, *ticket);
                    tab.drive(rows);
                }
            }
            88 => {
                tab.session.resume(tab.now_ms);
                tab.drive(rows);
            }
            89 => self.leave(at),
            90..92 => {
                let calls: Vec<_> = self.calls.iter().flatten().cloned().collect();
                if let Some(id) = calls.last() {
                    let says = [
                        (503, "unavailable", "unknown", "same-id"),
                        (500, "rolled-back", "no", "same-id"),
                        (503, "capacity", "no", "same-id"),
                        (404, "not-found", "no", "after-fix"),
                    ];
                    server.says.entry(id.clone()).or_default().push(says[self.dice.below(says.len())]);
                }
            }
            _ => tab.pass(rows, INTERVAL_MS),
        }
    }

    /// A tab dies. Answers to what it has sent are lost, but the requests may still arrive.
    fn leave(&mut self, at: usize) {
        let Tab { answers, recovered, sent, .. } = self.tabs.swap_remove(at);
        self.copies.extend(sent);
        self.heard.extend(answers.into_iter().chain(recovered));
    }

    /// At the end one tab is opened and everything arrives, so that no row is left.
    fn settle(&mut self) {
        while !self.tabs.is_empty() {
            self.leave(0);
        }
        self.open();
        for _ in 0..200 {
            let tab = &mut self.tabs[0];
            tab.arrives_all(&mut self.server, &mut self.rows);
            tab.pass(&mut self.rows, INTERVAL_MS);
            // Everything that the session pauses at has been fixed by now.
            tab.session.resume(tab.now_ms);
            tab.drive(&mut self.rows);
        }
        self.leave(0);
    }
}

fn play(seed: u64, may_be_blind: bool) -> World {
    let dice = Dice(seed);
    let (server, rows) = Default::default();
    let mut world = World {
        server,
        rows,
        tabs: vec![],
        copies: vec![],
        calls: vec![],
        heard: vec![],
        stored: BTreeSet::new(),
        dice,
        may_be_blind,
        has_been_blind: false,
    };
    for _ in 0..400 {
        world.step();
        world.stored.extend(world.rows.keys().cloned());
    }
    world.settle();
    world
}

#[test]
fn every_request_runs_at_most_once_and_executed_no_is_always_true() {
    for seed in 0..300 {
        let world = play(seed, seed % 2 == 0);
        let effects: BTreeSet<_> = world.server.effects.iter().collect();
        assert_eq!(effects.len(), world.server.effects.len(), "seed {seed}: something ran twice");
        assert!(world.rows.is_empty(), "seed {seed}: {:?} is left", world.rows.keys());
        for (id, answered) in &world.heard {
            match answered {
                Answered::Outcome(response) => {
                    assert_eq!(response.body, format!("ran {id}").into_bytes(), "seed {seed}");
                    assert!(effects.contains(id), "seed {seed}: {id}");
                }
                Answered::Failure(failure) if failure.executed == Executed::No => {
                    assert!(!effects.contains(id), "seed {seed}: {id} ran, and {}", failure.code);
                }
                Answered::Failure(_) => {}
            }
        }
    }
}

#[test]
fn the_requests_of_a_tab_run_in_the_order_of_its_calls() {
    for seed in 0..300 {
        // No blind tabs: a request that several tabs have in hand at once has no order.
        let World { server, calls, .. } = play(seed, false);
        for calls in calls {
            let places: Vec<_> =
                calls.iter().filter_map(|id| server.effects.iter().position(|effect| effect == id)).collect();
            assert!(places.is_sorted(), "seed {seed}: {calls:?} took effect at {places:?}");
        }
    }
}

#[test]
fn every_request_that_was_stored_or_ran_gets_an_answer() {
    let mut outcomes = 0;
    for seed in 0..300 {
        let world = play(seed, seed % 2 == 0);
        let heard: BTreeSet<_> = world.heard.iter().map(|(id, _)| id).collect();
        let all = world.stored.iter().chain(&world.server.effects);
        let unheard: Vec<_> = all.filter(|id| !heard.contains(id)).collect();
        assert!(unheard.is_empty(), "seed {seed}: nobody heard of {unheard:?}");
        outcomes += world.heard.iter().filter(|(_, answered)| matches!(answered, Answered::Outcome(_))).count();
    }
    assert!(outcomes > 1_000, "the worlds are too bad to tell anything: {outcomes} outcomes");
}
