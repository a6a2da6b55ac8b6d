// Finds Chromium, for the tests that run in a browser.
//
// Invariants:
// - A browser of the machine is used. If there is none and the user is root, Chromium is installed.
// - The program is run once before its path is returned.

import { canInstall, install, printedBy, which } from "./programs.mjs";
import { StepError, run } from "./step.mjs";

const NAMES = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
const PACKAGE = "chromium";
const INSTALL = `apt-get install -y --no-install-recommends ${PACKAGE}`;

/**
 * Resolves to `{ chromium, note }`: its path, and a word on where it came from. Options replace the machine in tests: `env` its variables, `isRoot`,
 * and `execute` the way to run a command.
 */
export async function findBrowser({ env = process.env, isRoot = process.getuid?.() === 0, execute = run } = {}) {
  const machine = { env, isRoot, execute };
  const found = await first(machine);
  if (found) return { chromium: found.path, note: `Chromium ${found.version}` };
  // A program that was named must be that one: nothing else is installed instead.
  if (env.SEMEL_CHROMIUM || !(await canInstall(machine))) throw new StepError(`The browser tests cannot run: ${missing(env)}.`, advice());
  await install(machine, [PACKAGE], advice());
  const installed = await first(machine);
  if (!installed) throw new StepError(`apt-get installed ${PACKAGE}, but ${missing(env)}.`, advice());
  return { chromium: installed.path, note: `Chromium ${installed.version}, installed` };
}

/**
 * The first name on PATH that runs. If SEMEL_CHROMIUM is set, by path or by name, it is the only candidate. A file alone is not enough: some systems
 * have a `chromium` that only says how to install it.
 */
async function first(machine) {
  const { env } = machine;
  for (const name of env.SEMEL_CHROMIUM ? [env.SEMEL_CHROMIUM] : NAMES) {
    const path = await which(machine, name);
    const version = path ? await versionOf(machine, path) : undefined;
    if (version) return { path, version };
  }
  return undefined;
}

async function versionOf({ env, execute }, path) {
  const printed = await printedBy(execute(path, ["--version"], { env: { PATH: env.PATH }, timeoutMs: 30_000 }));
  return /\d+(\.\d+)+/.exec(printed)?.[0];
}

const missing = (env) => `${env.SEMEL_CHROMIUM ? `SEMEL_CHROMIUM=${env.SEMEL_CHROMIUM}` : "Chromium"} can't be found, or won't run`;

const advice = () =>
  `Run \`sudo apt-get update && sudo ${INSTALL}\` (Debian; elsewhere install Chromium or Chrome), or set SEMEL_CHROMIUM to its path.`;
