// The errors of the SDK: `SemelError` for a request without an outcome, `StoreError` for a store that can't be used.
//
// Invariant: `instanceof` compares a brand and the code, not the constructor. So it works between two copies of the package.

import { textOf } from "./bytes.js";

const BRAND = Symbol.for("semel.error");

/** A request ended without an outcome. `executed` is `"no"` only if the request never ran and never will. */
export class SemelError extends Error {
  // Minifying shortens the class's own name, and Node prints that beside the error's.
  static name = "SemelError";

  constructor(requestId, [code, executed, retry, detail, problem], cause) {
    super(`${code}: ${detail}`, cause && { cause });
    Object.assign(this, { name: nameOf(code), code, executed, retry, requestId, problem: parsed(problem) });
  }

  static [Symbol.hasInstance](error) {
    return error?.[BRAND] === 1 && (this.codes?.includes(error.code) ?? true);
  }
}

SemelError.prototype[BRAND] = 1;

/** The store can't be used, or did not make a change: `code` says why. */
export class StoreError extends Error {
  static name = "StoreError";

  constructor(code, message, cause) {
    super(`${code}: ${message}`, cause && { cause });
    Object.assign(this, { name: "StoreError", code });
  }

  static [Symbol.hasInstance](error) {
    return error?.[BRAND] === 2;
  }
}

StoreError.prototype[BRAND] = 2;

const kind = /* @__NO_SIDE_EFFECTS__ */ (...codes) =>
  class extends SemelError {
    static codes = codes;
  };

/** Nobody can tell whether the request ran. */
export const OutcomeUnknownError = kind("outcome-unknown", "gave-up", "closed", "outcome-lost");
export const KeyMissingError = kind("key-missing");
export const KeyInvalidError = kind("key-invalid");
export const BodyInvalidError = kind("body-invalid");
export const KeyMismatchError = kind("key-mismatch");
export const UnauthorizedError = kind("unauthorized");
export const ForbiddenError = kind("forbidden");
export const NotFoundError = kind("not-found");
export const CancelledError = kind("cancelled");
export const PoisonedError = kind("poisoned");
export const AcknowledgedError = kind("acknowledged");
export const OutcomeExpiredError = kind("outcome-expired");
export const FencedError = kind("fenced");
export const SessionUnknownError = kind("session-unknown");
export const ForgottenError = kind("forgotten");
export const OutsideWindowError = kind("outside-window");
export const TooLargeError = kind("too-large");
export const FingerprintMismatchError = kind("fingerprint-mismatch");
export const OutboxFullError = kind("outbox-full");
export const StoreFailedError = kind("store-failed");
export const GaveUpError = kind("gave-up");
export const ClosedError = kind("closed");
export const OutcomeLostError = kind("outcome-lost");

/** The name of the error for a code: `GaveUpError` for `gave-up`. */
const nameOf = (code) => `${code.replace(/(?:^|-)(.)/g, (_, first) => first.toUpperCase())}Error`;

function parsed(problem) {
  try {
    return JSON.parse(textOf(problem));
  } catch {
    // There is no problem, or it is cut off.
    return undefined;
  }
}
