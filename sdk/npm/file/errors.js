// Turns an error of the system into a StoreError, so that callers meet one class of errors, whatever the store is made of.

import { StoreError } from "semel";

/** The system's codes for "no room left". */
const FULL = ["ENOSPC", "EDQUOT"];

export const storeErrorOf = (error) =>
  error instanceof StoreError ? error : new StoreError(FULL.includes(error.code) ? "store-full" : "store-failed", error.message, error);
