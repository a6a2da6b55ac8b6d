// What every room of the file store does with files.
//
// Invariants:
// - What resolves is done in full: short writes and short reads are gone on with.
// - Files are their user's alone: rows may hold private requests.

import { dirname, join } from "node:path";
import { StoreError } from "semel";

export const FILE_MODE = 0o600;
const FOLDER_MODE = 0o700;
const IS_WINDOWS = process.platform === "win32";

/** Whether a name is not there. On Windows a name that is being deleted answers like one that may not be touched. */
export const isGone = ({ code }) => code === "ENOENT" || (IS_WINDOWS && ["EPERM", "EACCES", "EBUSY"].includes(code));

/** Whether a name is surely not there. */
export const isMissing = (fs, path) => fs.stat(path).then(() => false, ({ code }) => code === "ENOENT");

/** Gives a file another name. False where the name is taken. */
export async function linkAs(fs, from, to) {
  try {
    await fs.link(from, to);
    return true;
  } catch (error) {
    if (error.code === "EEXIST") return false;
    // A name that is being deleted.
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

/** The bytes from `position` on, at most `length`: fewer where the file ends before. */
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

/** The text of a file, or undefined where there is none. */
export async function textOf(fs, path) {
  try {
    return await fs.readFile(path, "utf8");
  } catch (error) {
    if (isGone(error)) return undefined;
    throw error;
  }
}

/** Removes a name that may be gone already. */
export async function removeName(fs, path) {
  try {
    await fs.unlink(path);
  } catch (error) {
    if (!isGone(error)) throw error;
  }
}

/** A new file, whole and durable before anybody can know its name: it is given one by `link` or `rename`. */
export async function writeDurable(fs, path, text) {
  const handle = await fs.open(path, "w", FILE_MODE);
  try {
    await writeAll(handle, Buffer.from(text), 0);
    await handle.sync();
  } finally {
    await handle.close();
  }
}

/** Makes the names of a folder durable. Windows has no way to, and keeps a journal of names. */
export async function syncFolder(fs, folder) {
  if (IS_WINDOWS) return;
  const handle = await fs.open(folder, "r");
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

/** Makes a folder and those above it that are missing, durably. */
export async function makeFolder(fs, folder) {
  const first = await fs.mkdir(folder, { recursive: true, mode: FOLDER_MODE });
  if (first === undefined) return;
  for (let made = folder; ; made = dirname(made)) {
    await syncFolder(fs, dirname(made));
    if (join(made) === join(first) || made === dirname(made)) return;
  }
}
