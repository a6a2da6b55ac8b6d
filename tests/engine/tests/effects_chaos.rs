//! Transfers between accounts by `emit`, under faults that a seed decides: requests and answers are lost, late and doubled, and
//! objects die between any two statements and start again, on both sides.
//!
//! Invariants that are checked:
//! - Each credit of an answered transfer has arrived once. No money is made or lost. The credits from one account to another
//!   arrive in the order of the sender's commits. Refused credits are parked, and no others.
//! - If an administrator deletes the sending key: of what it had to send before, some of the first have arrived, each once and in
//!   order; of what it sends afterwards, everything.
//! - If an account is put back at times: nothing has arrived twice. Everything that was made since the last time has arrived or
//!   is parked as unknown. Only credits that went to that account before may be gone.

use semel_core::server::Config;
use semel_core::server::effects::{Heard, Sending};
use semel_core::server::storage::sql::{Row, Value};
use semel_support::carrying::{carried, heard};
use semel_support::{Bank, Call, World, delete, get, post};
use serde_json::json;

const ACCOUNTS: usize = 4;
const FIRST: i64 = 10_000;
const STEPS: usize = 400;

/// Pseudo-random numbers, the same for the same seed.
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

/// The account that may be deleted. It gets no credits, because those on their way to a deleted key may be parked.
const DELETED: usize = 0;
/// The numbers of its transfers begin this much higher after each deletion, to distinguish them.
const BEFORE_NEXT: i64 = 10_000;
/// The account that may be put back. It only receives.
const PUT_BACK: usize = ACCOUNTS - 1;

struct Run {
    chance: Chance,
    /// What [`DELETED`] had to send to each account before each of its deletions; `None`: it is not deleted.
    gone: Option<Vec<[Vec<i64>; ACCOUNTS]>>,
    /// An earlier state of [`PUT_BACK`], once there is a copy; `None`: it is not put back.
    copy: Option<Option<World<Bank>>>,
    /// The last transfer of each account to it when it was put back, for each time.
    put_back: Vec<[i64; ACCOUNTS]>,
    worlds: Vec<World<Bank>>,
    /// The requests under way, and who sent each.
    under_way: Vec<(usize, Sending)>,
    /// The requests that are under way once more.
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
    fn new(seed: u64, gone: Option<Vec<[Vec<i64>; ACCOUNTS]>>) -> Self {
        let config = || Config { open: true, ..Config::default() };
        let worlds =
            (0..ACCOUNTS).map(|each| World::at(&format!("accounts/{}", name(each)), Bank::default(), config()));
        let mut run = Self {
            chance: Chance(seed),
            gone,
            copy: None,
            put_back: Vec::new(),
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

    /// Calls an object. `None`: it died meanwhile, and nobody is answered.
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
        Some(heard(&reply))
    }

    fn transfer(&mut self) {
        let from = self.chance.below(if self.copy.is_some() { PUT_BACK } else { ACCOUNTS });
        let first = usize::from(self.gone.is_some());
        let to = (0..=self.chance.below(3)).map(|_| name(first + self.chance.below(ACCOUNTS - first)));
        let to: Vec<String> = to.collect();
        self.transfers += 1;
        let body = json!({ "to": to, "amount": 6 }).to_string();
        let call =
            post(&format!("/accounts/{}/transfer", name(from))).id(&format!("transfer {}", self.transfers)).body(body);
        // The client sends until it has an answer, and sometimes once more.
        while self.asked(from, &call).is_none() {}
        if self.chance.once_in(4) {
            self.asked(from, &call);
        }
    }

    /// An administrator deletes the key, which then begins anew.
    fn delete(&mut self) {
        let sent = std::array::from_fn(|to| self.sent_to(DELETED, to));
        let Some(gone) = &mut self.gone else { return };
        gone.push(sent);
        let generation = gone.len();
        let path = format!("/semel/v1/admin/keys/accounts%2F{}", name(DELETED));
        let call = delete(&path).id(&format!("deletion {generation}")).by("semel:admin");
        while self.asked(DELETED, &call).is_none() {}
        let deposit = post(&format!("/accounts/{}/deposit", name(DELETED))).id(&format!("deposit {generation}"));
        let world = &mut self.worlds[DELETED];
        assert_eq!(world.send(&deposit.body(json!({ "amount": FIRST }).to_string())).status(), 200);
        let number = generation as i64 * BEFORE_NEXT;
        world.database.tamper(&format!("INSERT INTO transfers VALUES ({number}, 'nobody')"));
    }

    /// Puts the account back to the copy, or sometimes makes a new copy. Nothing comes of the credits that were on their way to
    /// it.
    fn put_back(&mut self) {
        let is_new = self.chance.once_in(3);
        let Some(copy) = &mut self.copy else { return };
        let Some(was) = copy.take_if(|_| !is_new) else {
            *copy = Some(self.worlds[PUT_BACK].copy());
            return;
        };
        let wall_ms = std::mem::replace(&mut self.worlds[PUT_BACK], was).wall_ms;
        self.worlds[PUT_BACK].wall_ms = wall_ms;
        self.under_way.retain(|(_, sending)| account_of(sending) != PUT_BACK);
        self.late.retain(|sending| account_of(sending) != PUT_BACK);
        self.put_back
            .push(std::array::from_fn(|from| self.sent_to(from, PUT_BACK).last().copied().unwrap_or_default()));
    }

    fn sent_to(&self, from: usize, to: usize) -> Vec<i64> {
        let database = &self.worlds[from].database;
        let numbers = format!("SELECT number FROM transfers WHERE target = '{}' ORDER BY number", name(to));
        numbers_of(database.query(&numbers))
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
        self.asked(account_of(sending), &carried(sending))
    }

    /// One of the requests under way arrives, or is lost.
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
            // The sender dies with the answer in its hands, or while it writes what that means.
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
            15 if self.gone.is_some() && self.chance.once_in(4) => self.delete(),
            15 if self.copy.is_some() => self.put_back(),
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
            // An object that was started and that nobody has called looks for effects by itself.
            if !self.worlds.iter().any(World::has_to_send) {
                break;
            }
        }
        // The late requests arrive after all.
        for sending in std::mem::take(&mut self.late) {
            self.deliver(&sending);
        }
    }

    /// The credits of one account that arrived at another.
    fn credited(&self, from: usize, to: usize) -> Vec<i64> {
        let sender = format!("\"accounts/{}\"", name(from));
        let credits = format!("SELECT transfer FROM credits WHERE sender = '{sender}' ORDER BY at");
        numbers_of(self.worlds[to].database.query(&credits))
    }

    fn check_put_back(&mut self, seed: u64) {
        let last = self.put_back.last().copied().unwrap_or_default();
        for (from, before) in last.iter().enumerate() {
            let parked = "SELECT json_extract(CAST(body AS TEXT), '$.transfer'), executed FROM semel_effects_parked ORDER BY number";
            let has_any = !self.sent_to(from, PUT_BACK).is_empty();
            let parked = if has_any { self.worlds[from].database.query(parked) } else { Vec::new() };
            assert!(parked.iter().all(|row| row[1] == Value::Text("unknown".to_owned())), "seed {seed}: {parked:?}");
            let parked = numbers_of(parked);
            assert!(
                parked.len() <= self.put_back.len(),
                "seed {seed}: from {from}, the first of those that wait: {parked:?}"
            );
            for to in 0..ACCOUNTS {
                let (credited, sent) = (self.credited(from, to), self.sent_to(from, to));
                assert!(
                    credited.is_sorted_by(|one, next| one < next),
                    "seed {seed}: from {from} to {to}, once and in order: {credited:?}"
                );
                let first = if to == PUT_BACK { *before } else { 0 };
                let missing = sent.iter().filter(|number| **number > first && !credited.contains(number));
                assert!(
                    missing.clone().all(|number| parked.contains(number)),
                    "seed {seed}: from {from} to {to}: {missing:?}"
                );
            }
        }
    }

    fn check(&mut self, seed: u64) {
        if self.gone.is_none() {
            let total: i64 = self.worlds.iter().map(World::balance).sum();
            assert_eq!(total, ACCOUNTS as i64 * FIRST, "seed {seed}: money");
        }
        for from in 0..ACCOUNTS {
            for to in 0..ACCOUNTS {
                let mut credited = self.credited(from, to);
                for (generation, gone) in self.gone.iter().flatten().enumerate().filter(|_| from == DELETED) {
                    let next = (generation as i64 + 1) * BEFORE_NEXT;
                    let before: Vec<_> = credited.extract_if(.., |number| *number < next).collect();
                    let first = &gone[to][..before.len().min(gone[to].len())];
                    assert_eq!(
                        before, first,
                        "seed {seed}: before deletion {generation}, to {to}: the first, once each"
                    );
                }
                assert_eq!(
                    credited,
                    self.sent_to(from, to),
                    "seed {seed}: from {from} to {to}, each once and in order"
                );
            }
        }
        for (account, world) in self.worlds.iter_mut().enumerate() {
            let path = format!("/semel/v1/admin/keys/accounts%2F{}/effects", name(account));
            let told = world.send(&get(&path).by("semel:admin")).json();
            assert_eq!(told["count"], 0, "seed {seed}: {told}");
        }
    }
}

fn numbers_of(rows: Vec<Row>) -> Vec<i64> {
    rows.iter().flatten().filter_map(Value::as_integer).collect()
}

/// Runs a seed. Returns how many transfers and deletions there were.
fn run(seed: u64, gone: Option<Vec<[Vec<i64>; ACCOUNTS]>>) -> (usize, usize) {
    let mut run = Run::new(seed, gone);
    for _ in 0..STEPS {
        run.step();
    }
    run.end();
    run.check(seed);
    (run.transfers, run.gone.map_or(0, |gone| gone.len()))
}

#[test]
fn no_money_is_made_or_lost_under_random_crashes_and_lost_late_and_doubled_messages() {
    let transfers: usize = (0..15).map(|seed| run(seed, None).0).sum();
    assert!(transfers > 1_000, "{transfers} transfers");
}

#[test]
fn a_sender_deleted_at_random_sends_each_effect_at_most_once_and_all_after_the_last_deletion() {
    let deletions: usize = (0..15).map(|seed| run(seed, Some(Vec::new())).1).sum();
    assert!(deletions > 50, "{deletions} deletions");
}

#[test]
fn a_receiver_restored_at_random_gets_nothing_twice_and_each_later_effect_unless_it_is_parked() {
    let times: usize = (0..15)
        .map(|seed| {
            let mut run = Run::new(seed, None);
            run.copy = Some(None);
            (0..STEPS).for_each(|_| run.step());
            run.end();
            run.check_put_back(seed);
            run.put_back.len()
        })
        .sum();
    assert!(times > 30, "put back {times} times");
}
