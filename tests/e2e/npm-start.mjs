// Runs `npm start` for a test, as a person does.

import { spawn } from "node:child_process";
import { ROOT } from "../../scripts/setup/paths.mjs";

/** Runs `npm start` in its own process group, which is killed after `t`. Resolves once it serves, or once it has ended. */
export async function npmStart(t, env) {
  const child = spawn("npm", ["start"], { cwd: ROOT, env: { ...process.env, ...env }, stdio: ["ignore", "pipe", "pipe"], detached: true });
  let output = "";
  let isOver = false;
  const ended = new Promise((resolve) => child.on("close", resolve)).finally(() => (isOver = true));
  const serving = new Promise((resolve) => {
    const read = (chunk) => {
      output += chunk;
      const url = /serving on (\S+)\n/.exec(output)?.[1];
      if (url) resolve(url);
    };
    child.stdout.on("data", read);
    child.stderr.on("data", read);
  });
  const killGroup = async () => {
    // npm may be gone and have left processes.
    if (!isOver) process.kill(-child.pid, "SIGKILL");
    await ended;
  };
  t.after(killGroup);
  const url = await Promise.race([serving, ended.then(() => undefined)]);
  /** Does what Ctrl-C does. */
  const interrupt = () => process.kill(-child.pid, "SIGINT");
  /** Ends `npm` alone. What it has started learns of it from npm. */
  const terminate = () => child.kill("SIGTERM");
  /** Stops reading the output, like a pager that was quit. */
  const leave = () => [child.stdout, child.stderr].forEach((stream) => stream.destroy());
  return { url, ended, leave, killGroup, interrupt, terminate, output: () => output };
}
