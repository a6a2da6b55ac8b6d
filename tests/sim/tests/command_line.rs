//! The simulator's command line: its exit codes and its last line.

use semel_sim::Mutant;
use std::process::{Command, Stdio};

/// Runs the simulator. Returns the exit code and the lines that it printed.
fn sim(arguments: &[&str]) -> (Option<i32>, Vec<String>) {
    let output = Command::new(env!("CARGO_BIN_EXE_sim")).args(arguments).output().expect("it starts");
    let text = String::from_utf8(output.stdout).expect("text");
    (output.status.code(), text.lines().map(str::to_owned).collect())
}

fn last(lines: &[String]) -> &str {
    lines.last().map_or("", String::as_str)
}

#[test]
fn seeds_that_pass_exit_with_0_and_the_last_line_counts_them() {
    let (code, lines) = sim(&["--seeds", "3", "--from", "40"]);
    assert_eq!((code, last(&lines)), (Some(0), "seeds 40..43: 3 passed, 0 failed"));
}

#[test]
fn the_simulator_makes_no_files() {
    let mut sim = Command::new(env!("CARGO_BIN_EXE_sim"));
    // Nothing can be created below a file.
    sim.env("TMPDIR", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml/nothing"));
    let output = sim.args(["--seeds", "20"]).output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!((output.status.code(), text.trim_end()), (Some(0), "seeds 0..20: 20 passed, 0 failed"));
}

#[test]
fn arguments_that_it_does_not_understand_exit_with_2_and_print_nothing() {
    let wrong: [&[&str]; 8] = [
        &["--seeds", "0"],
        &["--seeds", "-1"],
        &["--seeds", "many"],
        &["--seeds"],
        &["--fast"],
        &["7"],
        &["--mutant", "nobody"],
        &["--seeds", "2", "--from", "18446744073709551615"],
    ];
    for arguments in wrong {
        assert_eq!(sim(arguments), (Some(2), Vec::new()), "{arguments:?}");
    }
}

#[test]
fn a_mutant_that_is_found_exits_with_1_and_prints_its_seed_a_smaller_run_and_a_trace() {
    let (code, lines) = sim(&["--seeds", "100", "--mutant", "deadline"]);
    assert_eq!(code, Some(1));
    assert!(lines[0].starts_with("deadline is found out by seed "), "{lines:?}");
    assert!(last(&lines).ends_with(", 1 failed"), "{lines:?}");
    assert!(lines[1].starts_with("a smaller run fails as well: "), "{lines:?}");
    let again = &lines[lines.len() - 2];
    let (command, seed) = again.split_once(" --from ").expect("how to run it again");
    assert_eq!(command, "again: npm run sim -- --seeds 1");
    assert!(seed.ends_with(" --mutant deadline"), "{again}");
    assert!(
        lines.iter().any(|line| line.contains("the application wants ") || line.contains("Curl ")),
        "no trace: {lines:?}"
    );
}

#[test]
fn a_reader_may_close_the_pipe_before_the_end() {
    let mut sim = Command::new(env!("CARGO_BIN_EXE_sim"));
    let mut child = sim.arg("--list-mutants").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    // The reader leaves before anything is written, or while it is.
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(0), ""));
}

#[test]
fn the_mutants_are_listed_one_per_line() {
    let names: Vec<String> = Mutant::all().map(|mutant| mutant.name().to_owned()).collect();
    assert_eq!(sim(&["--list-mutants"]), (Some(0), names));
}
