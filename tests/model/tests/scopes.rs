//! Explores every scope: no property is broken, everything that must happen sometimes does, and the scope has the expected number
//! of states.

use semel_model::batch_scopes;
use semel_model::batches::Batches;
use semel_model::effect_scopes;
use semel_model::effects::Effects;
use semel_model::group_scopes;
use semel_model::groups::Groups;
use semel_model::holder_scopes;
use semel_model::holders::Holders;
use semel_model::letters::Letters;
use semel_model::remote_scopes;
use semel_model::remotes::Remotes;
use semel_model::scopes;
use semel_model::tab_scopes;
use semel_model::tabs::Tabs;
use stateright::{Checker, Model};
use std::fmt::Debug;
use std::hash::Hash;

/// How many different states each scope has. If these numbers change, what is explored has changed. If that is intended, copy the
/// numbers from the failing test, and say in the commit why they changed.
const STATES: &[(&str, usize)] = &[
    ("fence", 2_845),
    ("careless", 6_536),
    ("forget", 10_750),
    ("administrator", 101_179),
    ("cancel", 5_587),
    ("principals", 1_217),
    ("turns", 18_018),
    ("packed", 16_910),
    ("deleted key", 2_085),
    ("handler", 720),
    ("suspects", 22_546),
    ("sessions", 12_578),
    ("session owner", 1_439),
    ("idle session", 25_378),
    ("deleted session", 1_794),
    ("sessions crash", 7_956),
    ("many epochs", 911),
    ("full session", 83),
    ("tabs", 20_057),
    ("reload", 17_747),
    ("between", 16_858),
    ("rides", 23_845),
    ("gives up", 19_311),
    ("in order", 109_457),
    ("overtaken", 6_306),
    ("two epochs", 12_070),
    ("left again", 15_817),
    ("waits no longer", 22_968),
    ("given up", 44_512),
    ("expired", 6_295),
    ("unheard", 7_079),
    ("failing store", 16_958),
    ("unaware", 1_465),
    ("two frames", 6_752),
    ("one of two frames given up", 1_844),
    ("batches", 721),
    ("frames", 2_622),
    ("session batches", 3_161),
    ("batches crash", 3_011),
    ("full batches", 746),
    ("groups", 7_157),
    ("groups crash", 29_195),
    ("session groups", 8_675),
    ("late groups", 24_532),
    ("suspect groups", 44_141),
    ("report", 8_801),
    ("resend", 21_218),
    ("probe", 11_242),
    ("resend and deleted", 9_542),
    ("restarted sender", 22_169),
    ("refused effects", 24_972),
    ("sender put back", 33_383),
    ("late take-overs", 8_193),
    ("taken closings", 524),
    ("forgotten sessions", 88_303),
];

fn hold_in<M>(name: &str, model: M)
where
    M: Model + Send + Sync + 'static,
    M::State: Hash + Clone + Debug + PartialEq + Send + Sync,
    M::Action: Debug + Clone + PartialEq,
{
    // With two threads, the largest scope uses the core that the others leave idle.
    let checker = model.checker().threads(2).spawn_bfs().join();
    checker.assert_properties();
    let states = checker.unique_state_count();
    println!("{name}: {states} states by {} steps", checker.state_count());
    assert!(STATES.contains(&(name, states)), "{name} has {states} states");
}

fn hold_in_letters(name: &str) {
    hold_in(name, Letters { scope: scopes::named(name).expect("a scope of that name"), without: None });
}

fn hold_in_tabs(name: &str) {
    hold_in(name, Tabs { scope: tab_scopes::named(name).expect("a scope of that name"), without: None });
}

fn hold_in_batches(name: &str) {
    hold_in(name, Batches { scope: batch_scopes::named(name).expect("a scope of that name"), without: None });
}

fn hold_in_groups(name: &str) {
    hold_in(name, Groups { scope: group_scopes::named(name).expect("a scope of that name"), flaw: None });
}

fn hold_in_holders(name: &str) {
    hold_in(name, Holders { scope: holder_scopes::named(name).expect("a scope of that name"), without: None });
}

fn hold_in_effects(name: &str) {
    hold_in(name, Effects { scope: effect_scopes::named(name).expect("a scope of that name"), without: None });
}

fn hold_in_remotes(name: &str) {
    hold_in(name, Remotes { scope: remote_scopes::named(name).expect("a scope of that name"), without: None });
}

#[test]
fn what_the_fence_has_passed_never_runs_again() {
    hold_in_letters("fence");
}

#[test]
fn of_a_careless_client_what_was_seen_is_protected() {
    hold_in_letters("careless");
}

#[test]
fn what_an_administrator_forgets_never_runs_again() {
    hold_in_letters("forget");
}

#[test]
fn what_an_administrator_deletes_is_gone_and_never_runs_again() {
    hold_in_letters("administrator");
}

#[test]
fn what_was_cancelled_never_runs_and_what_ran_is_never_called_cancelled() {
    hold_in_letters("cancel");
}

#[test]
fn a_record_answers_and_obeys_only_its_principal() {
    hold_in_letters("principals");
}

#[test]
fn an_execution_that_is_not_committed_leaves_nothing_and_who_waits_for_it_is_decided_anew() {
    hold_in_letters("turns");
}

#[test]
fn what_was_acknowledged_never_runs_again_wherever_its_tombstone_is_packed() {
    hold_in_letters("packed");
}

#[test]
fn what_was_acknowledged_never_runs_again_though_its_key_is_deleted() {
    hold_in_letters("deleted key");
}

#[test]
fn a_handler_that_fails_or_crashes_leaves_nothing_and_a_full_key_refuses() {
    hold_in_letters("handler");
}

#[test]
fn what_ends_the_process_again_and_again_never_runs_again_and_nobody_else_is_blamed() {
    hold_in_letters("suspects");
}

#[test]
fn two_holders_of_a_session_take_each_number_once_and_the_older_one_takes_none() {
    hold_in_letters("sessions");
}

#[test]
fn a_session_answers_and_obeys_its_owner_and_its_numbers_are_closed() {
    hold_in_letters("session owner");
}

#[test]
fn an_idle_session_runs_nothing_again_and_a_forgotten_one_nothing_at_all() {
    hold_in_letters("idle session");
}

#[test]
fn of_a_deleted_session_nothing_runs_again_and_no_epoch_comes_again() {
    hold_in_letters("deleted session");
}

#[test]
fn a_place_that_crashes_again_and_again_is_closed_and_no_other() {
    hold_in_letters("sessions crash");
}

#[test]
fn of_an_epoch_that_is_too_old_nobody_is_told_that_its_place_did_not_run() {
    hold_in_letters("many epochs");
}

#[test]
fn a_full_session_and_a_key_full_of_them_refuse() {
    hold_in_letters("full session");
}

#[test]
fn two_tabs_of_one_client_get_it_done_once_and_forget_it_in_time() {
    hold_in_tabs("tabs");
}

#[test]
fn what_a_tab_leaves_that_crashes_is_done_once_by_whoever_comes_after_it() {
    hold_in_tabs("reload");
}

#[test]
fn who_answers_in_the_servers_place_is_not_believed() {
    hold_in_tabs("between");
}

#[test]
fn an_acknowledgement_rides_on_another_request_and_is_taken_once_its_key_has_answered() {
    hold_in_tabs("rides");
}

#[test]
fn what_is_given_up_is_told_to_be_what_it_is() {
    hold_in_tabs("gives up");
}

#[test]
fn requests_to_one_key_take_effect_in_the_order_of_their_calls_also_when_their_tab_crashes() {
    hold_in_tabs("in order");
}

#[test]
fn what_is_executed_elsewhere_and_has_no_answer_is_sent_once_and_stays_in_doubt_until_it_is_resolved() {
    hold_in_remotes("report");
}

#[test]
fn what_is_sent_again_has_one_effect_where_the_other_side_knows_its_id() {
    hold_in_remotes("resend");
}

#[test]
fn what_is_probed_for_is_sent_again_only_where_it_is_not_and_never_will_be() {
    hold_in_remotes("probe");
}

#[test]
fn what_is_deleted_while_it_is_under_way_is_not_sent_again() {
    hold_in_remotes("resend and deleted");
}

#[test]
fn of_a_batch_all_is_committed_or_nothing_and_each_request_is_as_if_it_had_come_alone() {
    hold_in_batches("batches");
}

#[test]
fn a_frame_acknowledges_before_it_is_answered_and_none_runs_after_the_end_of_its_token() {
    hold_in_batches("frames");
}

#[test]
fn places_that_are_sent_together_are_taken_in_their_order_by_who_holds_the_session() {
    hold_in_batches("session batches");
}

#[test]
fn what_crashes_in_a_batch_is_counted_of_nobody_else() {
    hold_in_batches("batches crash");
}

#[test]
fn a_full_key_refuses_of_a_batch_what_has_no_room_and_nothing_else() {
    hold_in_batches("full batches");
}

#[test]
fn what_is_committed_together_is_worked_in_order_and_what_fails_of_it_is_undone_alone() {
    hold_in_groups("groups");
}

#[test]
fn a_request_that_crashes_among_others_leaves_what_they_did_or_all_are_lost() {
    hold_in_groups("groups crash");
}

#[test]
fn places_that_are_committed_together_are_taken_in_the_order_in_which_they_came() {
    hold_in_groups("session groups");
}

#[test]
fn what_is_late_once_it_is_its_turn_does_not_run_and_who_has_no_room_in_a_group_is_in_the_next() {
    hold_in_groups("late groups");
}

#[test]
fn what_ends_the_process_in_a_group_runs_alone_then_and_is_counted_of_nobody_else() {
    hold_in_groups("suspect groups");
}

#[test]
fn what_a_tab_leaves_of_a_session_is_done_once_and_in_order_by_the_one_that_overtakes_it() {
    hold_in_holders("overtaken");
}

#[test]
fn what_was_taken_over_comes_before_what_its_new_holder_is_asked_for() {
    hold_in_holders("two epochs");
}

#[test]
fn who_is_overtaken_while_it_goes_on_with_what_others_left_leaves_it_to_the_next() {
    hold_in_holders("left again");
}

#[test]
fn what_nobody_waits_for_goes_on_with_who_holds_the_session_though_its_tab_lives() {
    hold_in_holders("waits no longer");
}

#[test]
fn what_is_given_up_in_a_session_is_closed_or_comes_to_what_it_came_to() {
    hold_in_holders("given up");
}

#[test]
fn what_has_no_outcome_any_more_gets_no_other_place() {
    hold_in_holders("expired");
}

#[test]
fn a_full_session_frees_nothing_that_a_tab_that_lives_has_still_to_hear() {
    hold_in_holders("unheard");
}

#[test]
fn a_store_that_fails_loses_nothing_of_a_session_and_leaves_out_no_number() {
    hold_in_holders("failing store");
}

#[test]
fn where_nobody_can_tell_who_lives_nothing_of_a_session_runs_twice_and_no_is_the_truth() {
    hold_in_holders("unaware");
}

#[test]
fn of_two_frames_under_way_either_may_come_first_and_each_request_happens_once_and_in_order() {
    hold_in_holders("two frames");
}

#[test]
fn what_is_given_up_of_two_frames_under_way_is_closed_and_the_other_happens_once() {
    hold_in_holders("one of two frames given up");
}

#[test]
fn what_leaves_arrives_once_and_in_order_though_its_sender_ends_between_any_two_statements() {
    hold_in_effects("restarted sender");
}

#[test]
fn what_is_refused_for_good_is_parked_and_never_runs() {
    hold_in_effects("refused effects");
}

#[test]
fn what_a_sender_that_was_put_back_sends_is_taken_for_nothing_that_it_has_forgotten() {
    hold_in_effects("sender put back");
}

#[test]
fn a_take_over_that_comes_late_fences_its_own_sender_which_takes_over_again() {
    hold_in_effects("late take-overs");
}

#[test]
fn a_closing_whose_id_somebody_takes_is_no_news_of_what_it_closes() {
    hold_in_effects("taken closings");
}

#[test]
fn what_may_have_run_in_a_session_that_was_forgotten_does_not_run_in_another() {
    hold_in_effects("forgotten sessions");
}

#[test]
fn every_scope_is_explored() {
    let names: Vec<&str> = {
        let letters = scopes::all().into_iter().map(|scope| scope.name);
        let tabs = tab_scopes::all().into_iter().map(|scope| scope.name);
        let batches = batch_scopes::all().into_iter().map(|scope| scope.name);
        let groups = group_scopes::all().into_iter().map(|scope| scope.name);
        let holders = holder_scopes::all().into_iter().map(|scope| scope.name);
        let remotes = remote_scopes::all().into_iter().map(|scope| scope.name);
        let effects = effect_scopes::all().into_iter().map(|scope| scope.name);
        letters.chain(tabs).chain(holders).chain(batches).chain(groups).chain(remotes).chain(effects).collect()
    };
    assert_eq!(STATES.iter().map(|(name, _)| *name).collect::<Vec<_>>(), names);
}
