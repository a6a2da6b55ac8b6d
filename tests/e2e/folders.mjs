// Chooses where tests keep the state of servers and browsers: in memory, if the system has a file system there with enough room.
//
// Each commit waits for the disk, and workerd waits in the thread that runs everything. On a slow disk, the tests' time limits would measure the disk.
// A `kill -9` leaves the same behind in memory.

import { mkdtemp, statfs } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

const MEMORY = "/dev/shm";
const ROOM = 2 ** 31;

/** Makes a folder whose name begins with `name`. The caller removes it. */
export async function stateFolder(name) {
  const { bavail = 0, bsize = 0 } = await statfs(MEMORY).catch(() => ({}));
  return mkdtemp(join(bavail * bsize >= ROOM ? MEMORY : tmpdir(), name));
}
