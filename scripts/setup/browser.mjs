// Chromium, for the tests that run in a browser.
//
// Invariants:
// - What the machine has is used. Only root, and only where apt-get is, gets anything installed.
// - It is run before it is handed out.

import { resolve } from "node:path";
import { StepError, run } from "./step.mjs";

const NAMES = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
const PACKAGE = "chromium";
const INSTALL = `apt-get install -y --no-install-recommends ${PACKAGE}`;

/**
 * Resolves to its path, and a word on where it came from. The options stand in for the machine in tests: `env` for the
 * variables, `isRoot`, and `execute` for the one way to run a command.
 */
export async function findBrowser({ env = process.env, isRoot = process.getuid?.() === 0, execute = run } = {}) {
  const found = await first(execute, env);
  if (found) return { chromium: found.path, note: `Chromium ${found.version}` };
  await install(execute, env, isRoot);
  const installed = await first(execute, env);
  if (!installed) throw new StepError(`apt-get installed ${PACKAGE}, but ${missing(env)}.`, advice());
  return { chromium: installed.path, note: `Chromium ${installed.version}, installed` };
}

/**
 * The first that runs, of the names on PATH. What the variable asks for, by path or by name, is the only candidate.
 * Some systems have a stub by the name of chromium that only says how to install it: existing is not enough.
 */
async function first(execute, env) {
  for (const name of env.SEMEL_CHROMIUM ? [env.SEMEL_CHROMIUM] : NAMES) {
    const path = await which(execute, env, name);
    const version = path ? await versionOf(execute, env, path) : undefined;
    if (version) return { path, version };
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

const missing = (env) => `${env.SEMEL_CHROMIUM ? `SEMEL_CHROMIUM=${env.SEMEL_CHROMIUM}` : "Chromium"} can't be found, or won't run`;

async function install(execute, env, isRoot) {
  // Whoever names a program wants that one: nothing else is installed beside it.
  if (env.SEMEL_CHROMIUM || !isRoot || !(await which(execute, env, "apt-get"))) throw new StepError(`The browser tests cannot run: ${missing(env)}.`, advice());
  const options = { env: { PATH: env.PATH, DEBIAN_FRONTEND: "noninteractive" }, advice: advice() };
  const wait = ["-o", "DPkg::Lock::Timeout=120"];
  await execute("apt-get", [...wait, "update"], { ...options, timeoutMs: 180_000 });
  await execute("apt-get", [...wait, "install", "-y", "--no-install-recommends", PACKAGE], { ...options, timeoutMs: 600_000 });
}

const advice = () =>
  `Run \`sudo apt-get update && sudo ${INSTALL}\` (Debian; elsewhere install Chromium or Chrome), or set SEMEL_CHROMIUM to its path.`;
