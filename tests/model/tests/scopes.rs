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
    ("overtaken", 9_972),
    ("two epochs", 14_991),
    ("left again", 15_817),
    ("waits no longer", 32_519),
    ("given up", 66_723),
    ("expired", 6_295),
    ("unheard", 8_913),
    ("failing store", 25_547),
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
    ("probe", 11_421),
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
fn a_request_that_is_older_than_the_fence_never_runs_again_even_if_the_clock_falls_back() {
    hold_in_letters("fence");
}

#[test]
fn attempts_that_the_key_has_seen_protect_a_client_that_breaks_its_first_sent_and_deadline() {
    hold_in_letters("careless");
}

#[test]
fn a_request_with_a_first_sent_that_an_administrator_has_forgotten_never_runs_again() {
    hold_in_letters("forget");
}

#[test]
fn nothing_that_an_administrator_deletes_or_cancels_runs_again_and_others_are_refused() {
    hold_in_letters("administrator");
}

#[test]
fn a_cancelled_request_never_runs_and_one_that_ran_is_never_reported_as_cancelled() {
    hold_in_letters("cancel");
}

#[test]
fn a_record_answers_only_its_principal_and_only_its_principal_can_acknowledge_it() {
    hold_in_letters("principals");
}

#[test]
fn an_uncommitted_execution_leaves_nothing_and_a_duplicate_that_waits_is_decided_anew() {
    hold_in_letters("turns");
}

#[test]
fn an_acknowledged_request_never_runs_again_whether_its_tombstone_is_packed_or_not() {
    hold_in_letters("packed");
}

#[test]
fn an_acknowledged_request_never_runs_again_after_its_key_is_deleted() {
    hold_in_letters("deleted key");
}

#[test]
fn a_handler_that_fails_or_crashes_leaves_no_effect_and_a_full_key_refuses() {
    hold_in_letters("handler");
}

#[test]
fn a_request_that_keeps_ending_the_process_is_poisoned_and_no_other_is_blamed() {
    hold_in_letters("suspects");
}

#[test]
fn each_number_of_a_session_is_taken_once_and_a_fenced_holder_takes_none() {
    hold_in_letters("sessions");
}

#[test]
fn only_the_owner_of_a_session_uses_it_and_a_closed_place_never_runs() {
    hold_in_letters("session owner");
}

#[test]
fn an_idle_session_runs_nothing_again_and_a_forgotten_session_runs_nothing() {
    hold_in_letters("idle session");
}

#[test]
fn after_its_key_is_deleted_a_session_runs_nothing_again_and_gives_no_epoch_twice() {
    hold_in_letters("deleted session");
}

#[test]
fn a_place_that_keeps_crashing_is_poisoned_and_no_other_place_is_blamed() {
    hold_in_letters("sessions crash");
}

#[test]
fn a_place_of_an_epoch_that_is_no_longer_known_is_never_answered_as_not_executed() {
    hold_in_letters("many epochs");
}

#[test]
fn a_full_session_refuses_a_place_and_a_key_full_of_sessions_refuses_another() {
    hold_in_letters("full session");
}

#[test]
fn two_tabs_of_one_client_get_a_request_executed_once_and_finally_forget_it() {
    hold_in_tabs("tabs");
}

#[test]
fn a_request_of_a_tab_that_reloads_or_crashes_is_executed_once_by_the_next_tab() {
    hold_in_tabs("reload");
}

#[test]
fn a_client_takes_no_answer_of_a_proxy_or_a_captive_portal_for_the_servers() {
    hold_in_tabs("between");
}

#[test]
fn an_acknowledgement_rides_on_another_request_and_is_done_once_its_key_has_answered() {
    hold_in_tabs("rides");
}

#[test]
fn a_caller_that_gives_a_request_up_is_told_the_truth_even_if_the_client_guesses_the_key() {
    hold_in_tabs("gives up");
}

#[test]
fn ordered_requests_to_one_key_take_effect_in_the_order_of_their_calls_even_if_a_tab_crashes() {
    hold_in_tabs("in order");
}

#[test]
fn under_report_an_unanswered_request_is_sent_once_and_in_doubt_until_it_is_resolved() {
    hold_in_remotes("report");
}

#[test]
fn under_resend_a_request_has_one_effect_if_the_upstream_knows_its_id() {
    hold_in_remotes("resend");
}

#[test]
fn under_probe_a_request_is_resent_only_if_it_is_absent_and_can_no_longer_arrive() {
    hold_in_remotes("probe");
}

#[test]
fn a_request_that_is_deleted_while_it_is_under_way_upstream_is_not_sent_again() {
    hold_in_remotes("resend and deleted");
}

#[test]
fn a_batch_is_committed_whole_or_not_at_all_and_answers_each_request_as_if_sent_alone() {
    hold_in_batches("batches");
}

#[test]
fn a_frame_acknowledges_before_it_is_answered_and_runs_nothing_after_its_token_expires() {
    hold_in_batches("frames");
}

#[test]
fn places_of_a_batch_are_taken_in_order_and_only_under_the_epoch_that_holds_the_session() {
    hold_in_batches("session batches");
}

#[test]
fn a_crash_in_a_batch_is_counted_for_no_other_request() {
    hold_in_batches("batches crash");
}

#[test]
fn a_full_key_refuses_only_those_requests_of_a_batch_that_have_no_room() {
    hold_in_batches("full batches");
}

#[test]
fn requests_of_a_group_run_in_order_and_a_failed_one_is_undone_alone() {
    hold_in_groups("groups");
}

#[test]
fn a_crash_in_a_group_leaves_what_the_others_did_or_the_whole_group_is_lost() {
    hold_in_groups("groups crash");
}

#[test]
fn places_of_a_session_in_a_group_are_taken_in_the_order_in_which_they_arrived() {
    hold_in_groups("session groups");
}

#[test]
fn a_request_late_by_its_turn_does_not_run_and_one_beyond_a_full_group_is_in_the_next() {
    hold_in_groups("late groups");
}

#[test]
fn a_request_that_ends_the_process_in_a_group_runs_alone_next_and_only_it_is_blamed() {
    hold_in_groups("suspect groups");
}

#[test]
fn a_tab_that_takes_a_session_over_gets_the_requests_left_in_it_executed_once_and_in_order() {
    hold_in_holders("overtaken");
}

#[test]
fn requests_that_a_holder_took_over_take_effect_before_its_own() {
    hold_in_holders("two epochs");
}

#[test]
fn a_holder_that_loses_the_session_leaves_the_requests_it_took_over_to_the_next_holder() {
    hold_in_holders("left again");
}

#[test]
fn a_request_whose_caller_waits_no_longer_is_continued_by_the_holder_though_its_tab_lives() {
    hold_in_holders("waits no longer");
}

#[test]
fn a_request_that_is_given_up_in_a_session_is_closed_or_gets_its_outcome() {
    hold_in_holders("given up");
}

#[test]
fn a_request_whose_outcome_has_expired_gets_no_other_place() {
    hold_in_holders("expired");
}

#[test]
fn a_full_session_frees_no_outcome_that_a_living_tab_has_still_to_hear() {
    hold_in_holders("unheard");
}

#[test]
fn a_failing_store_loses_no_request_of_a_session_and_skips_no_number() {
    hold_in_holders("failing store");
}

#[test]
fn if_tabs_cannot_tell_who_lives_no_request_runs_twice_and_no_means_it_never_runs() {
    hold_in_holders("unaware");
}

#[test]
fn two_frames_under_way_may_arrive_in_either_order_and_each_request_runs_once_in_order() {
    hold_in_holders("two frames");
}

#[test]
fn if_one_of_two_frames_under_way_is_given_up_it_is_closed_and_the_other_request_runs_once() {
    hold_in_holders("one of two frames given up");
}

#[test]
fn an_effect_arrives_once_and_in_order_though_its_sender_ends_between_any_two_statements() {
    hold_in_effects("restarted sender");
}

#[test]
fn an_effect_that_is_refused_for_good_is_parked_and_never_runs() {
    hold_in_effects("refused effects");
}

#[test]
fn an_effect_of_a_restored_sender_is_not_taken_for_one_that_it_has_forgotten() {
    hold_in_effects("sender put back");
}

#[test]
fn a_late_take_over_fences_its_own_sender_which_takes_over_again() {
    hold_in_effects("late take-overs");
}

#[test]
fn a_closing_whose_id_somebody_else_took_tells_the_sender_nothing_about_the_place() {
    hold_in_effects("taken closings");
}

#[test]
fn an_effect_that_may_have_run_in_a_forgotten_session_does_not_run_in_another() {
    hold_in_effects("forgotten sessions");
}

#[test]
fn every_scope_has_an_expected_number_of_states_and_a_test() {
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
    let tests = include_str!("scopes.rs");
    let unexplored: Vec<_> = names.iter().filter(|name| !tests.contains(&format!("(\"{name}\");"))).collect();
    assert!(unexplored.is_empty(), "{unexplored:?}");
}
