// The folder with the state of the run: on a small tmpfs that can be filled up, where the system lets us mount one.
//
// Invariants:
// - Only the objects' files are on the small disk. What starts a workerd is beside it: a full disk must not stop that.
// - `release` leaves nothing behind: no mount, no file.

import { mkdir, open, readdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { run, StepError } from "../../scripts/setup/step.mjs";
import { stateFolder } from "../e2e/folders.mjs";

const CHUNK = Buffer.alloc(64 * 1024, 1);
/** So much a minute is enough for what the clients make in it, several times over. The disk must be full only when told. */
const BYTES_A_MINUTE = 64 << 20;
const BYTES_MAX = 1 << 30;

/** Makes the folder. `after`: is given what removes it. */
export async function makeState(after) {
  const state = new State(await stateFolder("semel-chaos-"));
  after(() => state.release());
  await mkdir(state.objects);
  return state;
}

class State {
  fills = 0;
  /** Whether it is on a small disk. */
  isSmall = false;
  /** Why it is not, though that was asked for. */
  leftOut;

  constructor(folder) {
    this.folder = folder;
    this.objects = join(folder, "objects");
  }

  /** Puts it on a small disk, large enough for so long a run, if the system lets us. */
  async mount(durationMs) {
    const bytes = Math.min(BYTES_MAX, Math.ceil((BYTES_A_MINUTE * Math.max(60_000, durationMs)) / 60_000));
    try {
      await run("mount", ["-t", "tmpfs", "-o", `size=${bytes},mode=700`, "semel-chaos", this.objects]);
      this.isSmall = true;
    } catch (error) {
      if (!(error instanceof StepError)) throw error;
      this.leftOut = error.message.split("\n").at(-1);
    }
  }

  get #filler() {
    return join(this.objects, "filler");
  }

  /** Takes all that is free, to the last byte that a small write can get. */
  async fill() {
    this.fills += 1;
    const file = await open(this.#filler, "a");
    try {
      for (let size = CHUNK.length; size >= 1; ) {
        const isWritten = await file.write(CHUNK, 0, size).then(
          ({ bytesWritten }) => bytesWritten === size,
          (error) => {
            if (error.code !== "ENOSPC") throw error;
            return false;
          },
        );
        if (!isWritten) size = Math.floor(size / 2);
      }
    } finally {
      await file.close();
    }
  }

  async free() {
    await rm(this.#filler, { force: true });
  }

  /** Takes what SQLite has committed since it last tidied up: what a server leaves that answers before it has stored. It must not run. */
  async loseLogs() {
    const logs = (await readdir(this.objects, { recursive: true })).filter((name) => /-(wal|shm)$/.test(name));
    for (const name of logs) await rm(join(this.objects, name));
  }

  async release() {
    // A process that was killed a moment ago may still hold it.
    if (this.isSmall) await run("umount", [this.objects]).catch(() => run("umount", ["-l", this.objects]));
    this.isSmall = false;
    await rm(this.folder, { recursive: true, force: true, maxRetries: 10 });
  }
}
