// What every command that builds needs of the machine, and npm can't bring.
//
// Invariant: only Node's built-ins, and nothing that an older Node could not read: this says that it is too old.

import { StepError, run } from "./step.mjs";

const NODE_MIN = 20;

/** Resolves to a word on it; what is missing is an error that says what to install. */
export async function checkMachine() {
  const [major] = process.versions.node.split(".").map(Number);
  if (major < NODE_MIN) throw new StepError(`Node is ${process.versions.node}; ${NODE_MIN} or newer is needed.`, "Install a newer Node from https://nodejs.org.");
  await run("cc", ["--version"], { advice: "Install a C compiler: `apt-get install gcc`, or `xcode-select --install`." });
  return `Node ${process.versions.node}`;
}
