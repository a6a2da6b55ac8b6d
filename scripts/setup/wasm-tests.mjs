// Runs the SDK's wasm tests by wasm-pack: once in Node, once in headless Chromium.
//
// Which file runs where is said in the file itself: `wasm_bindgen_test_configure!(run_in_browser)` or nothing. The
// runner skips the other kind with a notice.
//
// Invariants:
// - A run without a test counts as failed, however it ends, and so does a test that never ends.
// - wasm-pack downloads nothing: what it needs is on PATH.

import { mkdir, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { delimiter, join } from "node:path";
import { ROOT, TARGET, bin } from "./paths.mjs";
import { rustForWasm } from "./rust-wasm.mjs";
import { step } from "./step.mjs";
import { testTools, toolsFolder, wasmBindgen } from "./tools.mjs";

const SDK = join(ROOT, "sdk");
const FOLDER = join(TARGET, "wasm-tests");
/** Of all tests of one file together. */
const TIMEOUT_SECONDS = 180;
const DRIVER_START_SECONDS = 60;

const RUNS = [
  { name: "wasm tests in Node", args: ["--node"] },
  { name: "wasm tests in Chromium", args: ["--headless", "--chrome"] },
];

/**
 * Sets up what is needed, a line a step, and runs the tests with their output shown. `browser`: of `findBrowser()`.
 * `shown(command, args, { cwd, env })` resolves to `{ code, output }`. `crate`: the folder of the crate.
 */
export async function runWasmTests({ shown, browser, crate = SDK }) {
  let rust;
  await step("Rust for wasm", async () => {
    rust = await rustForWasm();
    return rust.note;
  });
  await step("wasm-bindgen", wasmBindgen.build);
  await step("wasm-pack", testTools.build);
  const env = await environment(rust, browser, crate);
  const total = { passed: 0, failed: 0, skipped: 0 };
  for (const { name, args } of RUNS) {
    const { code, output } = await shown(testTools.wasmPack, ["test", "--mode", "no-install", ...args], { cwd: crate, env });
    const result = countTests(output, code);
    console.log(`${name}: ${result.passed} passed, ${result.failed} failed, ${result.skipped} skipped`);
    for (const key of Object.keys(total)) total[key] += result[key];
  }
  return total;
}

/** Adds up the results of a run's test files. A file that announces tests and ends without a result has failed them all. */
export function countTests(output, code) {
  const result = { passed: 0, failed: 0, skipped: 0 };
  for (const [, passed, failed, ignored] of output.matchAll(/^test result: .*? (\d+) passed; (\d+) failed; (\d+) ignored/gm)) {
    result.passed += Number(passed);
    result.failed += Number(failed);
    result.skipped += Number(ignored);
  }
  const told = result.passed + result.failed + result.skipped;
  // Node ends with 0 when a test awaits what never comes: the exit code alone would call that a success.
  const announced = [...output.matchAll(/^running (\d+) tests?$/gm)].reduce((all, match) => all + Number(match[1]), 0);
  result.failed += Math.max(announced - told, 0);
  // A run that died without a count of failures has failed all the same, and so has one that tested nothing.
  if (result.failed === 0 && (told === 0 || code !== 0)) result.failed = 1;
  return result;
}

async function environment(rust, browser, crate) {
  const folder = join(FOLDER, "bin");
  await rm(folder, { recursive: true, force: true });
  await mkdir(folder, { recursive: true });
  // The very programs that are meant, by the names that wasm-pack and its runner look for.
  await symlink(browser.chromedriver, join(folder, "chromedriver"));
  await symlink(process.execPath, join(folder, "node"));
  await symlink(bin("wasm-opt"), join(folder, "wasm-opt"));
  // In the browser the runner ends what hangs. In Node it waits for ever.
  const limit = join(FOLDER, "limit.cjs");
  await writeFile(limit, `setTimeout(() => { require("node:fs").writeSync(2, "no end after ${TIMEOUT_SECONDS} s\\n"); process.exit(1); }, ${TIMEOUT_SECONDS * 1000}).unref();\n`);
  const webdriver = join(FOLDER, "webdriver.json");
  await writeFile(webdriver, JSON.stringify(await capabilities(browser, crate)));
  return {
    PATH: [folder, toolsFolder, rust.env.PATH ?? process.env.PATH].join(delimiter),
    CARGO_TARGET_DIR: rust.target,
    WASM_PACK_CACHE: join(FOLDER, "cache"),
    NODE_ARGS: `--require=${limit}`,
    WASM_BINDGEN_TEST_WEBDRIVER_JSON: webdriver,
    WASM_BINDGEN_TEST_TIMEOUT: String(TIMEOUT_SECONDS),
    WASM_BINDGEN_TEST_DRIVER_TIMEOUT: String(DRIVER_START_SECONDS),
    // The runner talks to the driver on this machine. A proxy is for the rest.
    NO_PROXY: [process.env.NO_PROXY, "127.0.0.1", "localhost"].filter(Boolean).join(","),
    // Of the tools themselves: what failed stands above it, in the tests' own words.
    RUST_BACKTRACE: "0",
  };
}

/** The crate's own `webdriver.json`, with the browser that was found. */
async function capabilities({ chromium }, crate) {
  const asked = JSON.parse(await readFile(join(crate, "webdriver.json"), "utf8"));
  return { ...asked, "goog:chromeOptions": { ...asked["goog:chromeOptions"], binary: chromium } };
}
