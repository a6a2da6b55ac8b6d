// Chromium, for the tests that run in a browser.
//
// Invariants:
// - What the machine has is used; where it has none, root gets it installed.
// - It is run before it is handed out.

import { canInstall, install, printedBy, which } from "./programs.mjs";
import { StepError, run } from "./step.mjs";

const NAMES = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
const PACKAGE = "chromium";
const INSTALL = `apt-get install -y --no-install-recommends ${PACKAGE}`;

/**
 * Resolves to its path, and a word on where it came from. The options stand in for the machine in tests: `env` for the
 * variables, `isRoot`, and `execute` for the one way to run a command.
 */
export async function findBrowser({ env = process.env, isRoot = process.getuid?.() === 0, execute = run } = {}) {
  const machine = { env, isRoot, execute };
  const found = await first(machine);
  if (found) return { chromium: found.path, note: `Chromium ${found.version}` };
  // Whoever names a program wants that one: nothing else is installed beside it.
  if (env.SEMEL_CHROMIUM || !(await canInstall(machine))) throw new StepError(`The browser tests cannot run: ${missing(env)}.`, advice());
  await install(machine, [PACKAGE], advice());
  const installed = await first(machine);
  if (!installed) throw new StepError(`apt-get installed ${PACKAGE}, but ${missing(env)}.`, advice());
  return { chromium: installed.path, note: `Chromium ${installed.version}, installed` };
}

/**
 * The first that runs, of the names on PATH. What the variable asks for, by path or by name, is the only candidate.
 * Some systems have a stub by the name of chromium that only says how to install it: existing is not enough.
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
