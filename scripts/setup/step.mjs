// Steps, which print one line each, and the one way to run a command.
//
// Invariants:
// - Only Node's built-ins: this runs before anything is installed.
// - A step that fails says which one it is, what was printed, and what to do. Nothing goes on after it.
// - Child processes stay in the caller's process group, so that killing the group ends them all.
// - A command that takes too long is killed with all processes that it has started. One that was left would hold the output open, and be waited for.

import { spawn, spawnSync } from "node:child_process";

/** A failure whose message is for the person at the terminal. `advice` says what to do. */
export class StepError extends Error {
  constructor(message, advice) {
    super(message);
    this.advice = advice;
  }
}

/** Runs `work`, and prints one line with the step's name, result and time. */
export async function step(name, work) {
  const started = Date.now();
  process.stdout.write(`  ${name} ... `);
  try {
    const note = await work();
    const seconds = ((Date.now() - started) / 1000).toFixed(1);
    process.stdout.write(`${note ?? "done"} (${seconds} s)\n`);
  } catch (error) {
    process.stdout.write("FAILED\n");
    throw error;
  }
}

/** Runs a command. Resolves to its standard output; a non-zero exit is a `StepError`. */
export function run(command, args, { cwd, env, advice, timeoutMs, stdio } = {}) {
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, {
      cwd,
      env: { ...process.env, ...env },
      stdio: stdio ?? ["ignore", "pipe", "pipe"],
    });
    if (timeoutMs !== undefined) endAfter(child, timeoutMs);
    let stdout = "";
    let all = "";
    child.stdout?.on("data", (chunk) => {
      stdout += chunk;
      all += chunk;
    });
    child.stderr?.on("data", (chunk) => {
      all += chunk;
    });
    child.on("error", (error) => {
      const why = error.code === "ENOENT" ? `${command} was not found on PATH` : error.message;
      reject(new StepError(why, advice));
    });
    child.on("close", (code, signal) => {
      if (code === 0) return resolve(stdout);
      const tail = all.trim().split("\n").slice(-40).join("\n");
      const how = signal ? `was ended by ${signal}` : `ended with ${code}`;
      reject(new StepError(`\`${[command, ...args].join(" ")}\` ${how}\n${tail}`, advice));
    });
  });
}

/** Kills a child process and all that it has started, unless it ends within `ms`. */
export function endAfter(child, ms) {
  const timer = setTimeout(() => endAll(child.pid), ms);
  child.on("error", () => clearTimeout(timer));
  child.on("close", () => clearTimeout(timer));
}

function endAll(pid) {
  const { stdout } = spawnSync("ps", ["-A", "-o", "pid=,ppid="], { encoding: "utf8" });
  const processes = (stdout ?? "").split("\n").map((line) => line.trim().split(/\s+/).map(Number));
  const all = [pid];
  for (const parent of all) all.push(...processes.filter(([, ppid]) => ppid === parent).map(([child]) => child));
  for (const each of all) {
    try {
      process.kill(each, "SIGKILL");
    } catch (error) {
      // It has ended by itself.
      if (error.code !== "ESRCH") throw error;
    }
  }
}

/** Resolves to whether a command ends with 0. For probes, whose failure is an answer. */
export async function succeeds(command, args, options = {}) {
  try {
    await run(command, args, options);
    return true;
  } catch (error) {
    if (error instanceof StepError) return false;
    throw error;
  }
}

/** Runs a script. If a step fails, prints what failed and what to do, and sets the exit code to 1. */
export async function main(work) {
  try {
    await work();
  } catch (error) {
    if (!(error instanceof StepError)) throw error;
    console.error(`\n${error.message}`);
    if (error.advice) console.error(`\nWhat to do: ${error.advice}`);
    process.exitCode = 1;
  }
}
