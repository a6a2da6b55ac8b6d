// Firefox, for the tests that run in a second browser where it is installed.
//
// Invariant: nothing is installed. A machine without it runs everything else, unless it is asked for by name.

import { StepError, run } from "./step.mjs";

const NAMES = ["firefox", "firefox-esr"];

/** Resolves to the program: what SEMEL_FIREFOX says, else the first that runs; undefined where there is none. What is named has to be there. */
export async function findFirefox({ env = process.env, execute = run } = {}) {
  for (const name of env.SEMEL_FIREFOX ? [env.SEMEL_FIREFOX] : NAMES) {
    if (/\d+\.\d+/.test(await printed(execute(name, ["--version"], { timeoutMs: 30_000 })))) return name;
  }
  if (env.SEMEL_FIREFOX) throw new StepError(`SEMEL_FIREFOX: ${env.SEMEL_FIREFOX} is no Firefox that runs.`, "Install it, or leave the variable out.");
  return undefined;
}

/** A probe that fails has printed nothing. */
async function printed(output) {
  try {
    return await output;
  } catch (error) {
    if (error instanceof StepError) return "";
    throw error;
  }
}
