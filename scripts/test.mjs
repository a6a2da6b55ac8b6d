// `npm test`: sets up all it needs and runs every check and test there is.
//
// Invariants:
// - Nothing is skipped: what can't run fails, and says what to do. One test of alarms is not registered unless asked for: it waits five minutes.
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

/** Past this, what runs hangs: all tests in Node take ten minutes, and more where others work too. */
const TIMEOUT_MS = 40 * 60_000;
/** Past this, one test hangs: it fails by name, and the others go on. */
const TEST_TIMEOUT_MS = 15 * 60_000;

/** So many files of tests at a time: many wait, for a browser or a timer, where two cores have two that compute. */
const FILES = 3;

/** To check what uses it takes none: where there is no compiler of C++ either. */
const NO_LIBFUZZER = "/nowhere/libfuzzer.a";

/** Where `node --test` finds its files. */
const NODE_TESTS = ["tests/docs", "tests/bench", "tests/sdk", "tests/runtimes", "tests/www", "tests/admin", "tests/e2e", "tests/e2e/scenarios", "tests/chaos"];
/** What measures a time in milliseconds: it runs before the others, with none beside it. */
const TIMED = ["tests/runtimes/opening.test.mjs"];

const total = { passed: 0, failed: 0 };

// What a test sees is the same whoever calls it: where these are set, programs print colours into pipes.
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

/** Some of the SDK and of the Worker is there for wasm alone, and some for a session's module. */
async function checkForWasm() {
  const { env, target } = await rustForWasm();
  const packages = ["semel-sdk", "semel-worker"].flatMap((name) => ["-p", name]);
  for (const features of [[], ["--features", "semel-sdk/session"]]) {
    await check(["clippy for wasm", ...features].join(" "), ["clippy", "--target", "wasm32-unknown-unknown", ...packages, ...features, "--locked", "--quiet", "--", "-D", "warnings"], { ...env, CARGO_TARGET_DIR: target });
  }
}

/** Builds what ships, and what only tests take, beside what follows: the last step of each takes one core alone. Resolves to what that printed. */
function build() {
  const built = run(process.execPath, ["scripts/build.mjs", "probe", "orders-rust"], { cwd: ROOT, timeoutMs: TIMEOUT_MS });
  // Where what follows fails, nobody asks for it any more.
  built.catch(() => {});
  return built;
}

/** Checks what comes from elsewhere. Who could not be asked is said, and is no failure: not every machine reaches them. */
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

/** Looks for the browser before the long steps: where it is missing, that is said at once. */
async function browserStep() {
  let browser;
  await step("browser", async () => {
    browser = await findBrowser();
    return browser.note;
  });
  return browser;
}

/** Looks for another browser. Where it can't be had, what it adds is left out, and that is said. */
async function otherBrowser(name, have) {
  let found;
  await step(name, async () => {
    found = await have();
    return found ?? `not here: tests/e2e/${name.toLowerCase()} is left out`;
  });
  return found;
}

/** Runs a command with its output shown, and resolves to its exit code and what it printed. */
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

/** Runs files of tests in Node, so many at a time. */
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
  // A runner that died without a count of failures has failed all the same.
  if (code !== 0 && failed + skipped === 0) total.failed += 1;
}

function sum(matches, group) {
  return matches.reduce((all, match) => all + Number(match[group]), 0);
}
