// Checks for a store of your own. See `Store` in index.d.ts for what it promises.

import type { Store } from "semel";

export interface Check {
  /** What must hold, as a sentence. */
  readonly name: string;
  /** Rejects with an error that says what did not hold. */
  run(): Promise<void>;
}

/**
 * The checks, for any test runner:
 *
 * ```js
 * for (const { name, run } of conformance(open)) test(name, run);
 * ```
 *
 * `open` opens the storage of that name, and makes it where it is new. Each check has a name of its own; one that is opened again
 * under its name is the same storage. Cleaning up is yours.
 *
 * - `reopens`: whether what was stored is still there after closing and opening again. Default true; false of a store in memory.
 * - `shares`: whether a storage can be opened twice at a time. Default: as `reopens`.
 */
export function conformance(open: (name: string) => Store | Promise<Store>, options?: { reopens?: boolean | undefined; shares?: boolean | undefined }): Check[];
