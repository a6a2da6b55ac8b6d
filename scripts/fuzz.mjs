// `npm run fuzz`: runs the checks of tests/properties under libFuzzer, with AddressSanitizer, for as long as you like.
//
//   npm run fuzz -- [--target NAME]... [--minutes M]
//
// Invariants:
// - Everything that is built, found and kept is below target/fuzz/. The input that made a check fail stays there, and its path is printed.
// - The exit code is 0 only if every target ran for its time without a finding.

import { mkdir, readdir } from "node:fs/promises";
import { existsSync } from "node:fs";
import { basename, join } from "node:path";
import { parseArgs } from "node:util";
import { ROOT, TARGET } from "./setup/paths.mjs";
import { StepError, main, run, step } from "./setup/step.mjs";

const VERSION = "0.13.2";
const FOLDER = join(ROOT, "tests/fuzz");
const HOME = join(TARGET, "fuzz");
const CARGO_FUZZ = join(HOME, "tool", VERSION, "bin", "cargo-fuzz");
/** cargo-fuzz needs flags that stable Rust reserves. */
const ENV = { RUSTC_BOOTSTRAP: "1" };
/** An input that takes longer than this counts as a hang. */
const INPUT_SECONDS_MAX = 20;
const MEMORY_MB_MAX = 2048;
const INPUT_BYTES_MAX = 1024;

await main(async () => {
  const all = (await readdir(join(FOLDER, "fuzz_targets"))).map((name) => basename(name, ".rs")).sort();
  const { targets, minutes } = options(all);
  await step("cargo-fuzz", installTool);
  const folders = ["--fuzz-dir", FOLDER, "--target-dir", HOME];
  const advice = "It needs a C++ compiler, as `c++`, and the crates registry.";
  await step("fuzz targets", async () => {
    await run(CARGO_FUZZ, ["build", ...folders], { cwd: ROOT, env: ENV, advice });
  });
  for (const target of targets) await fuzz(target, minutes, folders);
});

function options(all) {
  const usage = `npm run fuzz -- [--target NAME]... [--minutes M]   targets: ${all.join(", ")}`;
  let values;
  try {
    ({ values } = parseArgs({ options: { target: { type: "string", multiple: true }, minutes: { type: "string", default: "10" } } }));
  } catch (error) {
    throw new StepError(error.message, usage);
  }
  const { target: targets = all, minutes } = values;
  const unknown = targets.find((target) => !all.includes(target));
  if (unknown !== undefined) throw new StepError(`there is no target ${unknown}`, usage);
  if (!/^[1-9]\d{0,3}$/.test(minutes)) throw new StepError(`--minutes is ${minutes}; it must be an integer from 1 to 9999`, usage);
  return { targets, minutes: Number(minutes) };
}

async function installTool() {
  if (existsSync(CARGO_FUZZ)) return "unchanged";
  const root = join(HOME, "tool", VERSION);
  await run("cargo", ["install", "cargo-fuzz", "--version", VERSION, "--locked", "--root", root], { cwd: ROOT });
  return "built";
}

async function fuzz(target, minutes, folders) {
  const corpus = join(HOME, "corpus", target);
  const findings = join(HOME, "findings", target);
  for (const folder of [corpus, findings]) await mkdir(folder, { recursive: true });
  console.log(`\n${target}, ${minutes} minutes`);
  const limits = [`-max_total_time=${minutes * 60}`, `-timeout=${INPUT_SECONDS_MAX}`, `-rss_limit_mb=${MEMORY_MB_MAX}`];
  // Inputs are long from the start: one byte encodes less than one request of a sequence.
  limits.push("-len_control=0", `-max_len=${INPUT_BYTES_MAX}`);
  const options = [...limits, `-artifact_prefix=${findings}/`, "-print_final_stats=1"];
  await run(CARGO_FUZZ, ["run", ...folders, target, corpus, "--", ...options], {
    cwd: ROOT,
    env: ENV,
    stdio: "inherit",
    advice: `The input is in ${findings}. Fix the cause, with a test that failed before.`,
  });
}
