// Checks what every command that builds needs from the machine, and npm can't install.
//
// Invariant: only Node's built-ins, and no syntax that an older Node can't read, because this file says that Node is too old.

import { StepError, run } from "./step.mjs";

const NODE_MIN = 20;

/** Resolves to a word on the machine. Throws if something is missing, with advice on what to install. */
export async function checkMachine() {
  const [major] = process.versions.node.split(".").map(Number);
  if (major < NODE_MIN) throw new StepError(`Node is ${process.versions.node}; ${NODE_MIN} or newer is needed.`, "Install a newer Node from https://nodejs.org.");
  await run("cc", ["--version"], { advice: "Install a C compiler: `apt-get install gcc`, or `xcode-select --install`." });
  return `Node ${process.versions.node}`;
}
