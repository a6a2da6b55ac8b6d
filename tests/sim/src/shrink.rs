//! Finds a smaller run that fails in the same way.
//!
//! Invariants:
//! - The result is a plan like any other, and runs the same each time.
//! - It fails for the same reason, and its trace is not longer. A plan with less in it that takes longer to fail is not
//!   used.

use crate::mutant::Mutant;
use crate::plan::Plan;
use crate::{Failure, go, trace};

/// The most plans that are tried.
const TRIES_MAX: usize = 90;

/// Returns the smallest plan found that fails as `failure` did, and its failure.
pub fn shrink(plan: &Plan, mutant: Option<Mutant>, failure: Failure) -> (Plan, Failure) {
    let mut length = trace(plan, mutant).len();
    let (mut smallest, mut found) = (plan.clone(), failure);
    let mut tries = 0;
    loop {
        let Some((plan, failure, shorter)) = smaller(&smallest).into_iter().find_map(|plan| {
            tries += 1;
            if tries > TRIES_MAX {
                return None;
            }
            let (ended, lines) = go(&plan, mutant, true);
            let failure = ended.err().filter(|failure| failure.kind == found.kind && lines.len() <= length)?;
            Some((plan, failure, lines.len()))
        }) else {
            return (smallest, found);
        };
        (smallest, found, length) = (plan, failure, shorter);
    }
}

/// All plans with less of one thing.
fn smaller(plan: &Plan) -> Vec<Plan> {
    let mut all = Vec::new();
    let mut offer = |change: &dyn Fn(&mut Plan)| {
        let mut plan_with_less = plan.clone();
        change(&mut plan_with_less);
        if plan_with_less != *plan {
            all.push(plan_with_less);
        }
    };
    let shares: [fn(&mut Plan) -> &mut u32; 45] = [
        |plan| &mut plan.lose_requests,
        |plan| &mut plan.lose_answers,
        |plan| &mut plan.repeat,
        |plan| &mut plan.gateway,
        |plan| &mut plan.crash_server,
        |plan| &mut plan.fail_statements,
        |plan| &mut plan.full_disk,
        |plan| &mut plan.slow_commits,
        |plan| &mut plan.troubles,
        |plan| &mut plan.fail_store,
        |plan| &mut plan.give_up,
        |plan| &mut plan.impatient,
        |plan| &mut plan.ordered,
        |plan| &mut plan.share,
        |plan| &mut plan.elsewhere,
        |plan| &mut plan.sessions.sockets,
        |plan| &mut plan.sessions.deadlines,
        |plan| &mut plan.sessions.troubles,
        |plan| &mut plan.sessions.impatient,
        |plan| &mut plan.remote.lose,
        |plan| &mut plan.remote.lose_answers,
        |plan| &mut plan.remote.fail,
        |plan| &mut plan.remote.refuse,
        |plan| &mut plan.remote.unreachable,
        |plan| &mut plan.remote.slow,
        |plan| &mut plan.remote.dies,
        |plan| &mut plan.remote.along,
        |plan| &mut plan.effects.lose,
        |plan| &mut plan.effects.lose_answers,
        |plan| &mut plan.effects.repeat,
        |plan| &mut plan.effects.slow,
        |plan| &mut plan.effects.crash,
        |plan| &mut plan.effects.fail,
        |plan| &mut plan.together.give_up,
        |plan| &mut plan.together.lose_answers,
        |plan| &mut plan.together.repeat,
        |plan| &mut plan.together.gather,
        |plan| &mut plan.together.deadlines,
        |plan| &mut plan.together.troubles,
        |plan| &mut plan.together.crash,
        |plan| &mut plan.together.fail,
        |plan| &mut plan.together.full,
        |plan| &mut plan.together.fail_commits,
        |plan| &mut plan.together.batches,
        |plan| &mut plan.together.survives,
    ];
    let counts: [fn(&mut Plan) -> &mut usize; 52] = [
        // These are first: if the run of the outbox fails, a few tries remove them.
        |plan| &mut plan.together.wishes,
        |plan| &mut plan.together.reads,
        |plan| &mut plan.together.ends,
        |plan| &mut plan.together.others,
        |plan| &mut plan.together.forgets,
        |plan| &mut plan.together.jumps,
        |plan| &mut plan.together.restores,
        |plan| &mut plan.together.deployments,
        |plan| &mut plan.together.deletions,
        |plan| &mut plan.effects.transfers,
        |plan| &mut plan.effects.ends,
        |plan| &mut plan.effects.renewals,
        |plan| &mut plan.effects.refusals,
        |plan| &mut plan.effects.restores,
        |plan| &mut plan.effects.administrations,
        |plan| &mut plan.effects.clock_backs,
        |plan| &mut plan.effects.forgets,
        |plan| &mut plan.effects.deletions,
        |plan| &mut plan.remote.wishes,
        |plan| &mut plan.remote.again,
        |plan| &mut plan.remote.outages,
        |plan| &mut plan.remote.ends,
        |plan| &mut plan.remote.deployments,
        |plan| &mut plan.remote.jumps,
        |plan| &mut plan.remote.restores,
        |plan| &mut plan.remote.administrations,
        |plan| &mut plan.sessions.holders,
        |plan| &mut plan.sessions.contentions,
        |plan| &mut plan.sessions.calls,
        |plan| &mut plan.sessions.batches,
        |plan| &mut plan.sessions.probes,
        |plan| &mut plan.sessions.hoards,
        |plan| &mut plan.sessions.administrations,
        |plan| &mut plan.sessions.restores,
        |plan| &mut plan.requests,
        |plan| &mut plan.curls,
        |plan| &mut plan.strangers,
        |plan| &mut plan.administrations,
        |plan| &mut plan.malformed,
        |plan| &mut plan.reads,
        |plan| &mut plan.partitions,
        |plan| &mut plan.restarts,
        |plan| &mut plan.jumps,
        |plan| &mut plan.restores,
        |plan| &mut plan.curl_crashes,
        |plan| &mut plan.reloads,
        |plan| &mut plan.freezes,
        |plan| &mut plan.more_tabs,
        |plan| &mut plan.storage_losses,
        |plan| &mut plan.logins,
        |plan| &mut plan.offlines,
        |plan| &mut plan.hurries,
    ];
    for count in counts {
        offer(&|plan| *count(plan) = 0);
        offer(&|plan| *count(plan) /= 2);
        offer(&|plan| *count(plan) = count(plan).saturating_sub(1));
    }
    for share in shares {
        offer(&|plan| *share(plan) = 0);
    }
    offer(&|plan| plan.browsers = 1);
    offer(&|plan| plan.keys = 1);
    offer(&|plan| plan.delay_ms_max = 5);
    offer(&|plan| plan.busy_ms = (plan.busy_ms / 2).max(1_000));
    offer(&|plan| plan.sessions.names = 1);
    offer(&|plan| plan.sessions.busy_ms = (plan.sessions.busy_ms / 2).max(1_000));
    offer(&|plan| plan.sessions.sessions_max = plan.sessions.sessions_max.max(100_000));
    offer(&|plan| plan.remote.busy_ms = (plan.remote.busy_ms / 2).max(1_000));
    offer(&|plan| plan.jump_ms_max = 0);
    offer(&|plan| plan.keys_ahead_ms = 0);
    offer(&|plan| plan.has_locks = true);
    offer(&|plan| plan.retentions_s[1] = plan.retentions_s[0]);
    all
}
