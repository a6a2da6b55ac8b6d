// Chromium and its driver, for the tests that run in a browser.
//
// Invariants:
// - What the machine has is used. Only root, and only where apt-get is, gets anything installed.
// - Both are run before they are handed out, and their major versions agree: a driver refuses any other browser.

import { resolve } from "node:path";
import { StepError, run } from "./step.mjs";

const CHROMIUM_NAMES = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
const DRIVER_NAMES = ["chromedriver"];
const PACKAGES = ["chromium", "chromium-driver"];
const INSTALL = `apt-get install -y --no-install-recommends ${PACKAGES.join(" ")}`;

/**
 * Resolves to the paths of both, and a word on where they came from. The options stand in for the machine in tests:
 * `env` for the variables, `isRoot`, and `execute` for the one way to run a command.
 */
export async function findBrowser({ env = process.env, isRoot = process.getuid?.() === 0, execute = run } = {}) {
  const look = async () => ({
    chromium: await first(execute, env, env.SEMEL_CHROMIUM, CHROMIUM_NAMES),
    driver: await first(execute, env, env.SEMEL_CHROMEDRIVER, DRIVER_NAMES),
  });
  let found = await look();
  let note = "";
  if (!found.chromium || !found.driver) {
    await install(execute, env, isRoot, missing(found, env));
    found = await look();
    note = ", installed";
    if (!found.chromium || !found.driver) throw new StepError(`apt-get installed ${PACKAGES.join(" and ")}, but ${missing(found, env)}.`, advice());
  }
  const { chromium, driver } = found;
  if (chromium.major !== driver.major) {
    throw new StepError(
      `${chromium.path} has version ${chromium.version}, ${driver.path} has ${driver.version}: the major versions must agree.`,
      "Install both from one source, or set SEMEL_CHROMIUM and SEMEL_CHROMEDRIVER to two that belong together.",
    );
  }
  return { chromium: chromium.path, chromedriver: driver.path, note: `Chromium ${chromium.version}${note}` };
}

/**
 * The first that runs, of the names on PATH. What a variable asks for, by path or by name, is the only candidate.
 * Some systems have a stub by the name of chromium that only says how to install it: existing is not enough.
 */
async function first(execute, env, asked, names) {
  for (const name of asked ? [asked] : names) {
    const path = await which(execute, env, name);
    const version = path ? await versionOf(execute, env, path) : undefined;
    if (version) return { path, version, major: version.split(".")[0] };
  }
  return undefined;
}

async function which(execute, env, name) {
  const printed = await orNothing(execute("/bin/sh", ["-c", 'command -v "$0"', name], { env: { PATH: env.PATH } }));
  return printed.trim() ? resolve(printed.trim()) : undefined;
}

async function versionOf(execute, env, path) {
  const printed = await orNothing(execute(path, ["--version"], { env: { PATH: env.PATH }, timeoutMs: 30_000 }));
  return /\d+(\.\d+)+/.exec(printed)?.[0];
}

/** What a probe printed: its failure is an answer, not an error. */
async function orNothing(printed) {
  try {
    return await printed;
  } catch (error) {
    if (error instanceof StepError) return "";
    throw error;
  }
}

function missing({ chromium, driver }, env) {
  const names = [];
  if (!chromium) names.push(env.SEMEL_CHROMIUM ? `SEMEL_CHROMIUM=${env.SEMEL_CHROMIUM}` : "Chromium");
  if (!driver) names.push(env.SEMEL_CHROMEDRIVER ? `SEMEL_CHROMEDRIVER=${env.SEMEL_CHROMEDRIVER}` : "its chromedriver");
  return `${names.join(" and ")} can't be found, or won't run`;
}

async function install(execute, env, isRoot, why) {
  // Whoever names a program wants that one, and what belongs to it: nothing else is installed beside it.
  const named = env.SEMEL_CHROMIUM || env.SEMEL_CHROMEDRIVER;
  if (named || !isRoot || !(await which(execute, env, "apt-get"))) throw new StepError(`The browser tests cannot run: ${why}.`, advice());
  const options = { env: { PATH: env.PATH, DEBIAN_FRONTEND: "noninteractive" }, advice: advice() };
  const wait = ["-o", "DPkg::Lock::Timeout=120"];
  await execute("apt-get", [...wait, "update"], { ...options, timeoutMs: 180_000 });
  await execute("apt-get", [...wait, "install", "-y", "--no-install-recommends", ...PACKAGES], { ...options, timeoutMs: 600_000 });
}

const advice = () =>
  `Run \`sudo apt-get update && sudo ${INSTALL}\` (Debian; elsewhere install Chromium or Chrome and the chromedriver of its version), or set SEMEL_CHROMIUM and SEMEL_CHROMEDRIVER to their paths.`;
