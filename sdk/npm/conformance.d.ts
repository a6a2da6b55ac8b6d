// Checks for a store of your own. `Store` in index.d.ts says what a store must do.

import type { Store } from "semel";

export interface Check {
  /** The rule that is checked, as a sentence. */
  readonly name: string;
  /** Resolves if the rule holds; otherwise rejects with an error that says what went wrong. */
  run(): Promise<void>;
}

/**
 * The checks, for any test runner:
 *
 * ```js
 * for (const { name, run } of conformance(open)) test(name, run);
 * ```
 *
 * `open(name)` must open the storage of that name, and create it if it does not exist. Each check uses a name of its own; opening a name again must give
 * the same storage. You clean up yourself.
 *
 * - `reopens`: whether rows are still there after closing and opening again. Default true; set it to false for a store in memory.
 * - `shares`: whether a storage can be opened twice at the same time. Default: the value of `reopens`.
 */
export function conformance(open: (name: string) => Store | Promise<Store>, options?: { reopens?: boolean | undefined; shares?: boolean | undefined }): Check[];
