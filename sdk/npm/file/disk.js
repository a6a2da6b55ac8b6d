// The file operations that the parts of the file store share.
//
// Invariants:
// - An operation that resolves is complete: short writes and short reads are continued.
// - Only the user who made a file can read it, because rows may hold private requests.

import { dirname, join } from "node:path";
import { StoreError } from "semel";

export const FILE_MODE = 0o600;
const FOLDER_MODE = 0o700;
const IS_WINDOWS = process.platform === "win32";

/** Whether an error says that a name is not there. On Windows, a name that is being deleted gives the same errors as one without permission. */
export const isGone = ({ code }) => code === "ENOENT" || (IS_WINDOWS && ["EPERM", "EACCES", "EBUSY"].includes(code));

/** Resolves to whether a name is certainly not there. */
export const isMissing = (fs, path) => fs.stat(path).then(() => false, ({ code }) => code === "ENOENT");

/** Gives a file another name. Resolves to false if that name is taken. */
export async function linkAs(fs, from, to) {
  try {
    await fs.link(from, to);
    return true;
  } catch (error) {
    if (error.code === "EEXIST") return false;
    // On Windows, a name that is being deleted is still taken.
    if (IS_WINDOWS && ["EPERM", "EACCES", "EBUSY"].includes(error.code)) return false;
    if (["EPERM", "ENOTSUP", "EOPNOTSUPP", "ENOSYS"].includes(error.code)) throw new StoreError("store-unavailable", "the folder's file system has no hard links", error);
    throw error;
  }
}

export async function writeAll(handle, bytes, position) {
  for (let done = 0; done < bytes.length; ) {
    const { bytesWritten } = await handle.write(bytes, done, bytes.length - done, position + done);
    done += bytesWritten;
  }
}

/** Resolves to up to `length` bytes from `position` on: fewer if the file ends before. */
export async function readAll(handle, position, length) {
  const bytes = Buffer.allocUnsafe(length);
  let done = 0;
  while (done < length) {
    const { bytesRead } = await handle.read(bytes, done, length - done, position + done);
    if (bytesRead === 0) break;
    done += bytesRead;
  }
  return bytes.subarray(0, done);
}

/** Resolves to the text of a file, or to undefined if there is none. */
export async function textOf(fs, path) {
  try {
    return await fs.readFile(path, "utf8");
  } catch (error) {
    if (isGone(error)) return undefined;
    throw error;
  }
}

/** Removes a name. It is no error if the name is gone already. */
export async function removeName(fs, path) {
  try {
    await fs.unlink(path);
  } catch (error) {
    if (!isGone(error)) throw error;
  }
}

/** Writes a new file and makes it durable. It gets its real name only afterwards, by `link` or `rename`, so nobody ever sees half of it. */
export async function writeDurable(fs, path, text) {
  const handle = await fs.open(path, "w", FILE_MODE);
  try {
    await writeAll(handle, Buffer.from(text), 0);
    await handle.sync();
  } finally {
    await handle.close();
  }
}

/** Makes the names of a folder durable. Windows offers no call for that, and journals names itself. */
export async function syncFolder(fs, folder) {
  if (IS_WINDOWS) return;
  const handle = await fs.open(folder, "r");
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

/** Makes a folder and its missing parents, durably. */
export async function makeFolder(fs, folder) {
  const first = await fs.mkdir(folder, { recursive: true, mode: FOLDER_MODE });
  if (first === undefined) return;
  for (let made = folder; ; made = dirname(made)) {
    await syncFolder(fs, dirname(made));
    if (join(made) === join(first) || made === dirname(made)) return;
  }
}
