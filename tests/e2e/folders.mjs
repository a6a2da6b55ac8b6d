// Where tests keep the state of servers and browsers: in memory, where the system has a file system there with room.
//
// Each commit waits for the disk, on workerd in the thread that runs everything. On a slow disk the tests' limits would be limits of
// the disk; what a `kill -9` leaves behind is the same in memory.

import { mkdtemp, statfs } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

const MEMORY = "/dev/shm";
const ROOM = 2 ** 31;

/** Makes a folder whose name begins with `name`. Whoever asks removes it. */
export async function stateFolder(name) {
  const { bavail = 0, bsize = 0 } = await statfs(MEMORY).catch(() => ({}));
  return mkdtemp(join(bavail * bsize >= ROOM ? MEMORY : tmpdir(), name));
}
