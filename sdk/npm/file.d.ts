// The durable store for Node.

import type { Presence, Store } from "semel";

/**
 * A store in `folder`, which is made where it is missing. Any number of processes, and stores in one process, may share a folder.
 *
 * - What resolved survives the end of the process at any moment, and of the system as far as the disk keeps what it has synced.
 * - Files and folders are for their user alone (modes 0600 and 0700). What is in them is not encrypted.
 * - The folder must be on a file system of this machine that has hard links: no network share, no FAT. Containers that share a
 *   folder must run on one machine; for them to see that others have died, its path must be at most 63 bytes long.
 * - All rows are held in memory. A row has at most 16 MiB, an id 1,024 bytes, all of them 512 MiB.
 * - A row that is cut off by a crash was never reported as stored, and is left out. Anything else that is damaged is an error
 *   with the code `store-damaged`, and nothing is left out. After a failed write, `change` rejects and has changed nothing. Where what was
 *   written can't be taken back, on a broken disk say, it settles once it can, which is tried each second; all that is called meanwhile rejects.
 * - Nobody else may remove any of its files while it is open. Where the lock or the whole folder is removed all the same, what was under way
 *   resolves if it is in the log that is there then, and rejects with `store-failed` if it is not.
 *
 * What goes wrong is a `StoreError` of the package:
 * - `store-unavailable`: the file system has no hard links
 * - `store-blocked`: others hold the folder for longer than `busyMs`; the message names the process
 * - `store-newer`: a newer version of this package wrote the log
 * - `store-damaged`: a file is not what was written; the message names file and place
 * - `store-full`: a row, an id or all of them are too long, or the disk is full
 * - `store-failed`: anything else; `cause` is what the system said, if it said anything
 */
export function fileStore(folder: string, options?: FileOptions): FileStore;

export interface FileOptions {
  /** How long a call waits for another process that holds the folder, in ms. Default 10,000. At most 3,600,000. `open`, `session` and `pending` wait 30 s at most. */
  busyMs?: number | undefined;
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
