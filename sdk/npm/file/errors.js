// What the system says, as an error of the store: whoever has a store meets one class, whatever the store is made of.

import { StoreError } from "semel";

/** Codes of the system that say that there is no room. */
const FULL = ["ENOSPC", "EDQUOT"];

export const storeErrorOf = (error) =>
  error instanceof StoreError ? error : new StoreError(FULL.includes(error.code) ? "store-full" : "store-failed", error.message, error);
