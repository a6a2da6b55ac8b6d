// A lock among processes. A folder has an empty file for each process that holds something or wants to, and one of them gets it at a time.
//
// Invariants:
// - Only Node's built-ins: this runs before anything is installed.
// - Two never hold it at once: each process adds its own file before it looks for others, so the one that looks later finds the other's file. A
//   process that finds another removes its own file, and looks again after a random pause.
// - A dead process holds nothing. A file is named after the process's number and start time, because numbers are used again, and has a random part.
//   So anybody may delete the file of a dead process, without deleting a file that another process has added meanwhile.
// - Between adding a file and looking, nothing is awaited.

import { randomUUID } from "node:crypto";
import { mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";

const LOOK_MS = 100;
const NAME = /^[1-9]\d*-\w+-/;
/** Fields of `/proc/PID/stat` after the name: the state, and the start time. */
const STATE = 0;
const STARTED = 19;

/**
 * Takes `folder` for this process, once no other process holds it. Each look that finds others calls `onOthers` with their numbers and the count of
 * looks before. If that throws, the wait ends.
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

  /** Makes another process hold it as well. Until that process is dead, too, nobody else gets it. */
  add(pid) {
    const name = `${pid}-${startOf(pid)}-${randomUUID()}`;
    mkdirSync(this.#folder, { recursive: true });
    writeFileSync(join(this.#folder, name), "");
    this.#own.push(name);
  }

  /** The numbers of the other processes that hold it or try to. */
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

/** The start time of a process; "unknown" if the system does not tell; undefined if there is no such process. */
function startOf(pid) {
  try {
    process.kill(pid, 0);
  } catch (error) {
    if (error.code !== "EPERM") return undefined;
  }
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    // A zombie: the process has ended, and waits for its parent to notice.
    return fields[STATE] === "Z" ? undefined : fields[STARTED];
  } catch {
    return "unknown";
  }
}
