// Runs `npx semel`, packed and installed, against a made-up deployment.

import { spawn } from "node:child_process";
import { join } from "node:path";
import { installApp } from "../runtimes/packed.mjs";
import { TOKEN, startFake } from "./fake.mjs";
import { SMALL, idOf, numberOf, stateOf } from "./world.mjs";

/** Starts a deployment, and installs the command, for a test file. `after` is the one of node:test. */
export async function installed(after) {
  const fake = await startFake(after);
  const { folder } = await installApp(after);
  const COMMAND = join(folder, "node_modules/.bin/semel");

  /** Starts the command. `env` is added to the variables that name the deployment. */
  function begin(args, { env = {}, node } = {}) {
    const settings = { PATH: process.env.PATH, SEMEL_URL: fake.url, SEMEL_ADMIN_TOKEN: TOKEN, ...env };
    const child = node ? spawn(node, [COMMAND, ...args], { env: settings }) : spawn(COMMAND, args, { env: settings });
    const ran = { child, stdout: "", stderr: "" };
    for (const name of ["stdout", "stderr"]) child[name].on("data", (chunk) => (ran[name] += chunk));
    ran.ended = new Promise((resolve) => child.on("close", (code) => resolve({ code, stdout: ran.stdout, stderr: ran.stderr })));
    child.stdin.end();
    return ran;
  }

  return { fake, folder, COMMAND, begin, semel: (args, options) => begin(args, options).ended };
}

/** The id of a record of the small key that is in this state. */
export const idIn = (state, isRight = () => true) => {
  for (let n = 0; ; n += 1) if (stateOf(n) === state && isRight(n)) return idOf(numberOf(SMALL), n);
};
export const linesOf = (text) => text.trimEnd().split("\n");
export const jsonOf = (text) => linesOf(text).map((line) => JSON.parse(line));
