// Turns errors into StoreErrors, so that callers meet one class of errors, whatever the store is made of.

import { StoreError } from "semel";

/** The system's codes for "no room left". */
const FULL = ["ENOSPC", "EDQUOT"];

/** The same error for a change that may have been made: see `Store` in index.d.ts. */
export const inDoubt = ({ code, message, cause }) => Object.assign(new StoreError(code, message.slice(`${code}: `.length), cause), { name: "UnknownError" });

export const storeErrorOf = (error) =>
  error instanceof StoreError ? error : new StoreError(FULL.includes(error.code) ? "store-full" : "store-failed", error.message, error);
