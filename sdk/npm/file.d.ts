// The durable store for Node.

import type { Store } from "./index.js";

/**
 * A store in `folder`, which is made where it is missing. Any number of processes, and stores in one process, may share a folder.
 *
 * - What resolved survives the end of the process at any moment, and of the system as far as the disk keeps what it has synced.
 * - Files and folders are for their user alone (modes 0600 and 0700). What is in them is not encrypted.
 * - The folder must be on a file system of this machine that has hard links: no network share, no FAT. Containers that share a
 *   folder must run on one machine; for them to see that others have died, its path must be at most 63 bytes long.
 * - All rows are held in memory. A row has at most 16 MiB, an id 1,024 bytes, all of them 512 MiB.
 * - A row that is cut off by a crash was never reported as stored, and is left out. Anything else that is damaged is an error
 *   with the code `damaged`, and nothing is left out. After a failed write, `change` rejects and has changed nothing.
 */
export function fileStore(folder: string, options?: FileOptions): FileStore;

export interface FileOptions {
  /** How long a call waits for another process that holds the folder, in ms. Default 10,000. At most 3,600,000. */
  busyMs?: number;
}

export interface FileStore extends Store {
  /**
   * Says that `owner` lives for as long as this store is open, and gives what tells which owners do. An owner is an id that is never
   * used again, such as a UUID: up to 64 letters, digits, `_` and `-`. It is announced before any call that comes later has its
   * effect: so whoever finds a row of an owner who is not in `alive`, knows that the owner is gone for good.
   */
  presence(owner: string): Presence;
  close(): Promise<void>;
}

export interface Presence {
  /** The owners that live: in this process and others. One that is stopped or slow lives. */
  alive(): Promise<string[]>;
  /** Says that this owner is gone. Works while the process exits, too. */
  leave(): void;
}

/**
 * What the store itself refuses. What the system says, such as `ENOSPC`, comes as it is. Codes:
 * - `busy`: others hold the folder; the message names the process
 * - `damaged`: a file is not what was written; the message names file and place
 * - `newer-version`: a newer version of this package wrote the log
 * - `too-large`: a row or an id is too long
 * - `full`: the rows together would be too long
 * - `closed`: the store is closed
 * - `unsupported`: the file system has no hard links
 * - `owner-taken`: an owner of that name lives, or did
 */
export class StoreError extends Error {
  readonly code: "busy" | "damaged" | "newer-version" | "too-large" | "full" | "closed" | "unsupported" | "owner-taken";
}
