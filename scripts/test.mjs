// `npm test`: sets up everything that is needed, and runs all checks and tests.
//
// Invariants:
// - Nothing is skipped: what can't run fails, and says what to do. One test of alarms is only registered if asked for, because it waits five minutes.
// - The last line is `N passed, N failed`, and the exit code agrees with it.

import { mkdtemp, readFile, readdir, rm } from "node:fs/promises";
import { spawn } from "node:child_process";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { cargoDeny } from "./audit/cargo-deny.mjs";
import { checksWith } from "./audit/checks.mjs";
import { findBrowser } from "./setup/browser.mjs";
import { haveFirefox } from "./setup/firefox.mjs";
import { haveWebKit } from "./setup/webkit.mjs";
import { checkMachine } from "./setup/machine.mjs";
import { ROOT, TARGET } from "./setup/paths.mjs";
import { DEPLOY, RUNTIMES, installPackages } from "./setup/packages.mjs";
import { rustForWasm } from "./setup/rust-wasm.mjs";
import { StepError, endAfter, main, run, step } from "./setup/step.mjs";

/** After this time, a run counts as hung. All tests in Node take ten minutes, and longer on a busy machine. */
const TIMEOUT_MS = 40 * 60_000;
/** After this time, one test counts as hung: it fails by name, and the others go on. */
const TEST_TIMEOUT_MS = 15 * 60_000;

/** How many test files run at a time. Many of them wait for a browser or a timer, so two cores have two files to compute. */
const FILES = 3;

/** Compiling the fuzz targets needs no real libFuzzer, so the check also runs without a C++ compiler. */
const NO_LIBFUZZER = "/nowhere/libfuzzer.a";

/** The folders of the files for `node --test`. */
const NODE_TESTS = ["tests/docs", "tests/bench", "tests/sdk", "tests/runtimes", "tests/www", "tests/admin", "tests/e2e", "tests/e2e/scenarios", "tests/chaos"];
/** Tests that measure milliseconds. They run before the others, and alone. */
const TIMED = ["tests/runtimes/opening.test.mjs"];

const total = { passed: 0, failed: 0 };

// Unset, so that tests see the same whoever runs them: with these, programs print colours into pipes.
for (const name of ["CI", "FORCE_COLOR"]) delete process.env[name];

await main(async () => {
  try {
    await step("this machine", checkMachine);
    await step("npm packages", installPackages);
    await step("npm packages of the runtimes", () => installPackages(RUNTIMES));
    await step("wrangler", () => installPackages(DEPLOY));
    await check("formatting", ["fmt", "--all", "--check"]);
    await check("clippy", ["clippy", "--workspace", "--all-targets", "--locked", "--quiet", "--", "-D", "warnings"]);
    await checkForWasm();
    await check("the fuzz targets compile", ["check", "--manifest-path", "tests/fuzz/Cargo.toml", "--locked", "--quiet"], { CARGO_TARGET_DIR: join(TARGET, "fuzz-check"), CUSTOM_LIBFUZZER_PATH: NO_LIBFUZZER });
    await audit();
    const browser = await browserStep();
    const firefox = await otherBrowser("Firefox", haveFirefox);
    const webkit = await otherBrowser("WebKit", haveWebKit);
    const built = build();
    await nativeTests();
    console.log(await built);
    await nodeTests(browser, firefox, webkit);
  } catch (error) {
    total.failed += 1;
    throw error;
  } finally {
    process.exitCode = total.failed === 0 && total.passed > 0 ? 0 : 1;
    process.on("exit", () => console.log(`${total.passed} passed, ${total.failed} failed`));
  }
});

/** Checks the code that exists only for wasm, in the SDK and the Worker, and the code that only a session's module has. */
async function checkForWasm() {
  const { env, target } = await rustForWasm();
  const packages = ["semel-sdk", "semel-worker"].flatMap((name) => ["-p", name]);
  for (const features of [[], ["--features", "semel-sdk/session"]]) {
    await check(["clippy for wasm", ...features].join(" "), ["clippy", "--target", "wasm32-unknown-unknown", ...packages, ...features, "--locked", "--quiet", "--", "-D", "warnings"], { ...env, CARGO_TARGET_DIR: target });
  }
}

/**
 * Builds what ships, and what only tests need, while the next steps run: the last step of each build uses one core only. Resolves to what it printed.
 */
function build() {
  const built = run(process.execPath, ["scripts/build.mjs", "probe", "orders-rust"], { cwd: ROOT, timeoutMs: TIMEOUT_MS });
  // Handled here, because nobody awaits the build if a step in between fails.
  built.catch(() => {});
  return built;
}

/** Checks the code that comes from elsewhere. If a source can't be reached, that is printed and is no failure: not every machine reaches it. */
async function audit() {
  let program;
  await step("cargo-deny", async () => {
    program = await cargoDeny();
  });
  for (const { name, run } of checksWith(program)) {
    const { failed, unasked } = (await run()) ?? {};
    if (!unasked) total[failed ? "failed" : "passed"] += 1;
    console.log(`${name}: ${failed ? `FAILED\n${failed}` : unasked ? `NOT CHECKED, ${unasked}` : "passed"}`);
  }
}

/** Looks for the browser before the long steps, so that a missing one is reported at once. */
async function browserStep() {
  let browser;
  await step("browser", async () => {
    browser = await findBrowser();
    return browser.note;
  });
  return browser;
}

/** Looks for another browser. If it can't be had, prints so, and its tests are left out. */
async function otherBrowser(name, have) {
  let found;
  await step(name, async () => {
    found = await have();
    return found ?? `not here: tests/e2e/${name.toLowerCase()} is left out`;
  });
  return found;
}

/** Runs a command and shows its output. Resolves to its exit code and what it printed. */
function shown(command, args, { cwd = ROOT, env } = {}) {
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, { cwd, env: { ...process.env, ...env }, stdio: ["ignore", "pipe", "inherit"] });
    endAfter(child, TIMEOUT_MS);
    let output = "";
    child.stdout.on("data", (chunk) => {
      output += chunk;
      process.stdout.write(chunk);
    });
    child.on("error", (error) => reject(new StepError(`${command}: ${error.message}`)));
    child.on("close", (code) => resolve({ code, output }));
  });
}

async function check(name, args, env) {
  const { code } = await shown("cargo", args, { env });
  total[code === 0 ? "passed" : "failed"] += 1;
  console.log(`${name}: ${code === 0 ? "passed" : `FAILED (cargo ${args.join(" ")}; \`rustup component add clippy rustfmt\` if it is missing)`}`);
}

async function nativeTests() {
  const { code, output } = await shown("cargo", ["test", "--workspace", "--locked", "--no-fail-fast"]);
  const results = [...output.matchAll(/^test result: .*? (\d+) passed; (\d+) failed; (\d+) ignored/gm)];
  count({ passed: sum(results, 1), failed: sum(results, 2), skipped: sum(results, 3), code });
}

async function nodeTests({ chromium }, firefox, webkit) {
  const files = [];
  for (const folder of [...NODE_TESTS, ...(firefox ? ["tests/e2e/firefox"] : []), ...(webkit ? ["tests/e2e/webkit"] : [])]) {
    const names = (await readdir(join(ROOT, folder))).filter((name) => name.endsWith(".test.mjs"));
    files.push(...names.sort().map((name) => `${folder}/${name}`));
  }
  const env = { SEMEL_CHROMIUM: chromium, ...(firefox && { SEMEL_FIREFOX: firefox }) };
  await inNode(TIMED, 1, env);
  await inNode(files.filter((file) => !TIMED.includes(file)), FILES, env);
}

/** Runs test files in Node, `concurrency` of them at a time. */
async function inNode(files, concurrency, env) {
  const scratch = await mkdtemp(join(tmpdir(), "semel-test-"));
  const report = join(scratch, "report.tap");
  try {
    const reporters = ["--test-reporter=spec", "--test-reporter-destination=stdout", "--test-reporter=tap", `--test-reporter-destination=${report}`];
    const { code } = await shown(process.execPath, ["--test", `--test-concurrency=${concurrency}`, `--test-timeout=${TEST_TIMEOUT_MS}`, ...reporters, ...files], { env });
    const tap = await readFile(report, "utf8");
    const number = (name) => sum([...tap.matchAll(new RegExp(`^# ${name} (\\d+)`, "gm"))], 1);
    count({ passed: number("pass"), failed: number("fail") + number("cancelled"), skipped: number("skipped") + number("todo"), code });
  } finally {
    await rm(scratch, { recursive: true, force: true });
  }
}

function count({ passed, failed, skipped, code }) {
  total.passed += passed;
  total.failed += failed + skipped;
  if (skipped > 0) console.log(`${skipped} skipped: that counts as failed`);
  // A runner that died without reporting a failure has failed.
  if (code !== 0 && failed + skipped === 0) total.failed += 1;
}

function sum(matches, group) {
  return matches.reduce((all, match) => all + Number(match[group]), 0);
}
