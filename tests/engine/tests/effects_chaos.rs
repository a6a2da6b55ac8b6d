//! Transfers between accounts by `emit`, under faults that a seed makes: requests and answers that are lost, late and doubled, objects that
//! die between any two statements and start again, on both sides.
//!
//! Invariants that are checked: of what was answered, each credit is there once; no money is made or lost; those of one account at another are
//! in the order of its commits; and what was refused is parked, and nothing else.

use semel_core::header::unquoted;
use semel_core::server::Config;
use semel_core::server::effects::{Heard, Sending};
use semel_support::{Bank, Call, World, get, post};
use serde_json::json;

const ACCOUNTS: usize = 4;
const FIRST: i64 = 10_000;
const STEPS: usize = 400;

/// Numbers that look as if they came by chance, the same for a seed.
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % limit as u64) as usize
    }

    fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }
}

struct Run {
    chance: Chance,
    worlds: Vec<World<Bank>>,
    /// What is under way: who sent it, and what.
    under_way: Vec<(usize, Sending)>,
    /// What is under way once more.
    late: Vec<Sending>,
    transfers: usize,
}

fn name(account: usize) -> String {
    format!("account-{account}")
}

fn account_of(sending: &Sending) -> usize {
    let key = sending.key.as_ref().expect("all goes to keys").as_str();
    key.rsplit('-').next().and_then(|number| number.parse().ok()).expect("an account")
}

impl Run {
    fn new(seed: u64) -> Self {
        let config = || Config { open: true, ..Config::default() };
        let worlds =
            (0..ACCOUNTS).map(|each| World::at(&format!("accounts/{}", name(each)), Bank::default(), config()));
        let mut run = Self {
            chance: Chance(seed),
            worlds: worlds.collect(),
            under_way: Vec::new(),
            late: Vec::new(),
            transfers: 0,
        };
        for account in 0..ACCOUNTS {
            let deposit = post(&format!("/accounts/{}/deposit", name(account))).id("first");
            run.worlds[account].send(&deposit.body(json!({ "amount": FIRST }).to_string()));
        }
        run
    }

    /// Asks an object; it may die meanwhile, and then there is no answer.
    fn asked(&mut self, account: usize, call: &Call) -> Option<Heard> {
        let world = &mut self.worlds[account];
        if self.chance.once_in(12) {
            world.database.crash_before(self.chance.below(30) as u64);
        }
        let reply = world.send(call);
        if world.database.has_crashed() {
            world.restart();
            return None;
        }
        world.database.fail(u64::MAX);
        let semel = reply.only("semel-status").to_owned();
        Some(Heard::Answered { status: reply.status(), semel, body: reply.body().to_vec() })
    }

    fn transfer(&mut self) {
        let from = self.chance.below(ACCOUNTS);
        let to: Vec<String> = (0..=self.chance.below(3)).map(|_| name(self.chance.below(ACCOUNTS))).collect();
        self.transfers += 1;
        let body = json!({ "to": to, "amount": 6 }).to_string();
        let call =
            post(&format!("/accounts/{}/transfer", name(from))).id(&format!("transfer {}", self.transfers)).body(body);
        // The client sends until it knows; now and then once more.
        while self.asked(from, &call).is_none() {}
        if self.chance.once_in(4) {
            self.asked(from, &call);
        }
    }

    fn send_some(&mut self, account: usize) {
        let world = &mut self.worlds[account];
        while let Some(sending) = world.send_next() {
            self.under_way.push((account, sending));
        }
        if world.database.has_crashed() {
            world.restart();
        }
    }

    fn deliver(&mut self, sending: &Sending) -> Option<Heard> {
        let mut call = Call::new(&sending.method, &sending.url).body(sending.body.clone());
        for (name, value) in sending.headers.iter() {
            call = call.header(name, value);
        }
        let principal = sending.headers.get("semel-principal").and_then(unquoted).expect("a principal");
        self.asked(account_of(sending), &call.by(&principal))
    }

    /// One of those that are under way arrives, or is lost.
    fn arrive(&mut self, may_fail: bool) {
        if self.under_way.is_empty() {
            return;
        }
        let (from, sending) = self.under_way.swap_remove(self.chance.below(self.under_way.len()));
        if may_fail && self.chance.once_in(6) {
            self.late.push(sending.clone());
        }
        let is_lost = may_fail && self.chance.once_in(6);
        let heard = if is_lost { None } else { self.deliver(&sending) };
        let is_unheard = may_fail && self.chance.once_in(6);
        let heard = heard.filter(|_| !is_unheard).unwrap_or(Heard::Nothing("lost".to_owned()));
        let world = &mut self.worlds[from];
        if may_fail && self.chance.once_in(10) {
            // It dies with the answer in its hands, or while it writes what that means.
            world.database.crash_before(self.chance.below(8) as u64);
        }
        world.sent(&sending, heard);
        if world.database.has_crashed() {
            world.restart();
        }
        world.database.fail(u64::MAX);
    }

    fn step(&mut self) {
        let account = self.chance.below(ACCOUNTS);
        match self.chance.below(16) {
            0..4 => self.transfer(),
            4..7 => self.send_some(account),
            7..13 => self.arrive(true),
            13 if !self.late.is_empty() => {
                let sending = self.late.swap_remove(self.chance.below(self.late.len()));
                self.deliver(&sending);
            }
            14 if self.chance.once_in(4) => self.worlds[account].restart(),
            _ => self.worlds.iter_mut().for_each(|world| world.pass_ms(500)),
        }
    }

    fn end(&mut self) {
        for _ in 0..2_000 {
            (0..ACCOUNTS).for_each(|account| self.send_some(account));
            while !self.under_way.is_empty() {
                self.arrive(false);
            }
            self.worlds.iter_mut().for_each(|world| world.pass_ms(1_000));
            if self.worlds.iter().all(|world| world.wakes_to_send_at().is_none()) {
                break;
            }
            // An object that was started and that nobody has asked looks by itself.
        }
        // What is still on its way arrives after all.
        for sending in std::mem::take(&mut self.late) {
            self.deliver(&sending);
        }
    }

    fn check(&mut self, seed: u64) {
        let total: i64 = self.worlds.iter().map(World::balance).sum();
        assert_eq!(total, ACCOUNTS as i64 * FIRST, "seed {seed}: money");
        for (from, world) in self.worlds.iter().enumerate() {
            for (to, other) in self.worlds.iter().enumerate() {
                let sent = world
                    .database
                    .query(&format!("SELECT number FROM transfers WHERE target = '{}' ORDER BY number", name(to)));
                let sender = format!("\"accounts/{}\"", name(from));
                let credited = other
                    .database
                    .query(&format!("SELECT transfer FROM credits WHERE sender = '{sender}' ORDER BY at"));
                assert_eq!(credited, sent, "seed {seed}: from {from} to {to}, each once and in order");
            }
        }
        for (account, world) in self.worlds.iter_mut().enumerate() {
            let path = format!("/semel/v1/admin/keys/accounts%2F{}/effects", name(account));
            let told = world.send(&get(&path).by("semel:admin")).json();
            assert_eq!(told["count"], 0, "seed {seed}: {told}");
        }
    }
}

#[test]
fn no_money_is_made_or_lost_whatever_dies_and_whatever_is_lost() {
    let mut transfers = 0;
    for seed in 0..15 {
        let mut run = Run::new(seed);
        for _ in 0..STEPS {
            run.step();
        }
        run.end();
        run.check(seed);
        transfers += run.transfers;
    }
    assert!(transfers > 1_000, "{transfers} transfers");
}
