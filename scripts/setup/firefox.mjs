// Firefox, for the tests that run in a second browser.
//
// Invariant: what the machine has is used; where it has none, root gets it installed. A machine that can't have it runs everything else, unless it is asked for by name.

import { canInstall, install, printedBy } from "./programs.mjs";
import { StepError, run } from "./step.mjs";

const NAMES = ["firefox", "firefox-esr"];
const PACKAGE = "firefox-esr";

/** Resolves to the program: what SEMEL_FIREFOX says, else the first that runs; undefined where there is none. What is named has to be there. */
export async function findFirefox({ env = process.env, execute = run } = {}) {
  for (const name of env.SEMEL_FIREFOX ? [env.SEMEL_FIREFOX] : NAMES) {
    if (/\d+\.\d+/.test(await printedBy(execute(name, ["--version"], { timeoutMs: 30_000 })))) return name;
  }
  if (env.SEMEL_FIREFOX) throw new StepError(`SEMEL_FIREFOX: ${env.SEMEL_FIREFOX} is no Firefox that runs.`, "Install it, or leave the variable out.");
  return undefined;
}

/** The same, once it is installed where it can be. The options stand in for the machine in tests. */
export async function haveFirefox({ env = process.env, isRoot = process.getuid?.() === 0, execute = run } = {}) {
  const machine = { env, isRoot, execute };
  const found = await findFirefox(machine);
  if (found !== undefined || !(await canInstall(machine))) return found;
  await printedBy(install(machine, [PACKAGE]));
  return findFirefox(machine);
}
