// The folder with the state of a run: on a small tmpfs that can be filled up, if the system allows to mount one.
//
// Invariants:
// - Only the objects' files are on the small disk. What workerd needs to start is beside it, because a full disk must not prevent a start.
// - `release` leaves nothing behind: no mount, no file.

import { mkdir, open, readdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { run, StepError } from "../../scripts/setup/step.mjs";
import { stateFolder } from "../e2e/folders.mjs";

const CHUNK = Buffer.alloc(64 * 1024, 1);
/** Several times what the clients write in a minute. The disk must be full only when `fill` fills it. */
const BYTES_A_MINUTE = 64 << 20;
const BYTES_MAX = 1 << 30;

/** Makes the folder. `after`: gets what removes it. */
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
  /** Why it is not, although that was asked for. */
  leftOut;

  constructor(folder) {
    this.folder = folder;
    this.objects = join(folder, "objects");
  }

  /** Puts it on a small disk that is large enough for a run of this length, if the system allows that. */
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

  /** Takes all free room, to the last byte that a small write can get. */
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

  /**
   * Deletes what SQLite has committed since its last checkpoint, as if the server answered before it stored. Call it while the server is not running.
   */
  async loseLogs() {
    const logs = (await readdir(this.objects, { recursive: true })).filter((name) => /-(wal|shm)$/.test(name));
    for (const name of logs) await rm(join(this.objects, name));
  }

  async release() {
    // A process that was just killed may still hold it.
    if (this.isSmall) await run("umount", [this.objects]).catch(() => run("umount", ["-l", this.objects]));
    this.isSmall = false;
    await rm(this.folder, { recursive: true, force: true, maxRetries: 10 });
  }
}
