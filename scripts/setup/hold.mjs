// A folder says which processes have something, by an empty file for each, and one of them takes it at a time.
//
// Invariants:
// - Only Node's built-ins: this runs before anything is installed.
// - Two never have it at once: each puts its file there before it looks for others', so of two the later look finds the other's. Who finds one takes
//   back its own, and looks again after a while of random length.
// - Whoever dies has nothing any more. A file is named after its process and when that was started, since numbers are given again, and at random: so
//   anybody may delete it once that is dead, and deletes nothing that somebody else has put there meanwhile.
// - From putting a file there to the look nothing is awaited.

import { randomUUID } from "node:crypto";
import { mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";

const LOOK_MS = 100;
const NAME = /^[1-9]\d*-\w+-/;
/** Of the fields of `/proc/PID/stat` after the name: the state, and when it was started. */
const STATE = 0;
const STARTED = 19;

/**
 * Takes `folder` for this process, once no other has it. `onOthers` is called for each look that finds others, with their numbers and the count of
 * looks before; what it throws ends the wait.
 */
export async function hold(folder, onOthers) {
  for (let looks = 0; ; looks += 1) {
    const taken = new Hold(folder);
    const others = taken.others();
    if (others.length === 0) return taken;
    taken.release();
    onOthers(others, looks);
    await delay(LOOK_MS * (0.5 + Math.random()));
  }
}

class Hold {
  #folder;
  #own = [];

  constructor(folder) {
    this.#folder = folder;
    this.add(process.pid);
  }

  /** Has it held by another process as well, at once: until that is dead too, nobody else takes it. */
  add(pid) {
    const name = `${pid}-${startOf(pid)}-${randomUUID()}`;
    mkdirSync(this.#folder, { recursive: true });
    writeFileSync(join(this.#folder, name), "");
    this.#own.push(name);
  }

  /** The numbers of the processes that have it, or try to, besides. */
  others() {
    const others = [];
    for (const name of readdirSync(this.#folder)) {
      if (this.#own.includes(name) || !NAME.test(name)) continue;
      if (isLiving(name)) others.push(Number.parseInt(name, 10));
      else this.#remove(name);
    }
    return others;
  }

  release() {
    for (const name of this.#own) this.#remove(name);
  }

  #remove(name) {
    rmSync(join(this.#folder, name), { force: true });
  }
}

function isLiving(name) {
  const [pid, start] = name.split("-");
  const now = startOf(Number(pid));
  return now === start || now === "unknown";
}

/** When a process was started, or "unknown" where the system doesn't tell; undefined if there is none. */
function startOf(pid) {
  try {
    process.kill(pid, 0);
  } catch (error) {
    if (error.code !== "EPERM") return undefined;
  }
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    // One that has ended is there until whoever started it has heard of it.
    return fields[STATE] === "Z" ? undefined : fields[STARTED];
  } catch {
    return "unknown";
  }
}
