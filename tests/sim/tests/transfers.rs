//! Ten thousand transfers between accounts by `emit`: only the run of effects, with the faults of as many seeds as that
//! takes.

use semel_sim::{Plan, effects};

const TRANSFERS: i64 = 10_000;
/// The most requests of a seed. Each sends one to three credits.
const REQUESTS: usize = 20;

#[test]
fn ten_thousand_transfers_pass_all_checks_of_the_oracle() {
    let mut transfers = 0;
    for seed in 0.. {
        let mut plan = Plan::of(seed);
        plan.effects.transfers = REQUESTS;
        let mut run = effects::Run::new(&plan, None, false);
        if let Err(violation) = run.run() {
            panic!("seed {seed}: {violation:?}");
        }
        transfers += run.credits();
        if transfers >= TRANSFERS {
            println!("{transfers} transfers in {} seeds", seed + 1);
            return;
        }
    }
}
