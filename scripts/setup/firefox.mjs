// Finds Firefox, for the tests that run in a second browser.
//
// Invariant: a Firefox of the machine is used. If there is none and the user is root, it is installed. Without it, all other tests run; but it must be
// there if SEMEL_FIREFOX names it.

import { canInstall, install, printedBy } from "./programs.mjs";
import { StepError, run } from "./step.mjs";

const NAMES = ["firefox", "firefox-esr"];
const PACKAGE = "firefox-esr";

/** Resolves to the program: SEMEL_FIREFOX if set, otherwise the first that runs; undefined if there is none. Throws if SEMEL_FIREFOX does not run. */
export async function findFirefox({ env = process.env, execute = run } = {}) {
  for (const name of env.SEMEL_FIREFOX ? [env.SEMEL_FIREFOX] : NAMES) {
    if (/\d+\.\d+/.test(await printedBy(execute(name, ["--version"], { timeoutMs: 30_000 })))) return name;
  }
  if (env.SEMEL_FIREFOX) throw new StepError(`SEMEL_FIREFOX: ${env.SEMEL_FIREFOX} is no Firefox that runs.`, "Install it, or leave the variable out.");
  return undefined;
}

/** The same, after installing it where that is possible. Options replace the machine in tests. */
export async function haveFirefox({ env = process.env, isRoot = process.getuid?.() === 0, execute = run } = {}) {
  const machine = { env, isRoot, execute };
  const found = await findFirefox(machine);
  if (found !== undefined || !(await canInstall(machine))) return found;
  await printedBy(install(machine, [PACKAGE]));
  return findFirefox(machine);
}
