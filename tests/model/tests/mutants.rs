//! A model is worth what it finds. For each rule that is switched off, and for each flaw of the host, the named property must be
//! broken.
//!
//! `cargo test -p semel-model -- --nocapture` shows the traces.

use semel_core::rules::Rule;
use semel_model::effect_scopes;
use semel_model::groups::Flaw;
use semel_model::holder_scopes;
use semel_model::letters::{Letters, Scope};
use semel_model::mutants::{caught, counter_example, flawed_example, found};
use semel_model::properties::Never;
use semel_model::scopes;
use semel_model::tab_scopes;
use stateright::{Checker, Model};

fn are_caught(is_chosen: impl Fn(&str) -> bool) {
    let mut missed = Vec::new();
    for &rule in Rule::ALL {
        let (scope, property) = caught(rule);
        if !is_chosen(scope) {
            continue;
        }
        match counter_example(rule, scope, property) {
            Some(steps) => {
                println!("\nwithout {} ({scope}), {}:\n  {}", rule.name(), property.name(), steps.join("\n  "));
            }
            None => missed.push(rule.name()),
        }
    }
    assert!(missed.is_empty(), "nobody finds out that these rules do not hold: {missed:?}");
}

fn is_of_sessions(scope: &str) -> bool {
    holder_scopes::named(scope).is_some()
}

fn is_of_effects(scope: &str) -> bool {
    effect_scopes::named(scope).is_some()
}

#[test]
fn each_rule_of_effects_yields_a_counter_example_when_it_is_switched_off() {
    are_caught(is_of_effects);
}

#[test]
fn each_rule_of_the_server_yields_a_counter_example_when_it_is_switched_off() {
    are_caught(|scope| tab_scopes::named(scope).is_none() && !is_of_sessions(scope) && !is_of_effects(scope));
}

#[test]
fn each_rule_of_the_clients_sessions_yields_a_counter_example_when_it_is_switched_off() {
    are_caught(is_of_sessions);
}

#[test]
fn each_rule_of_the_client_yields_a_counter_example_when_it_is_switched_off() {
    are_caught(|scope| tab_scopes::named(scope).is_some());
}

#[test]
fn each_flaw_of_a_host_that_commits_together_yields_a_counter_example() {
    for &flaw in Flaw::ALL {
        let (scope, property) = found(flaw);
        let steps = flawed_example(flaw, scope, property);
        assert!(steps.is_some(), "nobody finds out about {}", flaw.name());
        println!("\n{} ({scope}), {}:\n  {}", flaw.name(), property.name(), steps.unwrap_or_default().join("\n  "));
    }
}

/// No known rule keeps a session from going on, so here the key itself does: another session may take the only room that there
/// is.
#[test]
fn the_model_checker_finds_a_session_that_nobody_can_go_on_with() {
    let full = scopes::named("full session").expect("a scope of that name");
    let letters = Letters { scope: Scope { before: Vec::new(), ..full }, without: None };
    let checker = letters.checker().spawn_bfs().join();
    assert!(checker.discovery(Never::Wedged.name()).is_some());
}
