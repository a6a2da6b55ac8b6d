// The durable store for Node: a log on disk.

import type { Presence, Store } from "semel";

/**
 * Opens a store in `folder`, and creates the folder if it is missing. Any number of processes, and of stores in one process, may share a folder.
 *
 * - A change that resolved survives a crash of the process at any moment. It survives a crash of the system if the disk keeps what it has synced.
 * - Files and folders are readable by their user only (modes 0600 and 0700). Their content is not encrypted.
 * - The folder must be on a local file system that has hard links: no network share, no FAT. Containers that share a folder must run on one machine.
 *   They notice each other's death only if the folder's path is at most 63 bytes long.
 * - All rows are held in memory. Limits: 16 MiB a row, 1,024 bytes an id, 512 MiB in all.
 * - A row that a crash has cut off was never reported as stored, and is skipped. Any other damage is an error with the code `store-damaged`, and
 *   nothing is skipped.
 * - After a failed write or sync, `change` rejects and has changed nothing, and a restart finds nothing of it. If the write can't be undone, on a broken disk for example, `change` stays pending
 *   while the store tries again each second; other calls reject meanwhile.
 * - No other program may remove its files while it is open. If the lock or the whole folder is removed nevertheless, a call under way resolves if its
 *   change is in the log that is there afterwards. Otherwise it rejects, and if somebody may still find the change (another store has written the log anew,
 *   or the folder is moved away or can't be read), the error's name is `UnknownError`, and the SDK says `unknown` of the request.
 *
 * Errors are `StoreError`s of the package:
 * - `store-unavailable`: the file system has no hard links
 * - `store-blocked`: others hold the folder for longer than `busyMs`; the message names the process
 * - `store-newer`: a newer version of this package wrote the log
 * - `store-damaged`: a file is not what was written; the message names file and place
 * - `store-full`: a row, an id or all rows together are too long, or the disk is full
 * - `store-failed`: anything else; `cause` is the system's error, if there was one
 */
export function fileStore(folder: string, options?: FileOptions): FileStore;

export interface FileOptions {
  /**
   * How long a call waits for another process that holds the folder, in ms. Default 10,000, at most 3,600,000. The SDK's `open`, `session` and `pending`
   * wait at most 30 s.
   */
  busyMs?: number | undefined;
}

export interface FileStore extends Store {
  /**
   * Announces that `owner` is alive for as long as this store is open, and returns an object that lists the owners that are. An owner is an id that is
   * never used again, such as a UUID: up to 64 letters, digits, `_` and `-`. The announcement takes effect before any later call does. So if a row's
   * owner is not in `alive`, that owner is gone for good.
   */
  presence(owner: string): Presence;
  close(): Promise<void>;
}
