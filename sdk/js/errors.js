// What a caller gets where there is no outcome, and whoever opens an outbox where there is no store.

/** An answer that is no outcome. `executed` is `"no"` only where the request never ran and never will. */
export class SemelError extends Error {
  constructor(requestId, [code, executed, retry, detail, problem], cause) {
    super(`${code}: ${detail}`, { cause });
    this.code = code;
    this.executed = executed;
    this.retry = retry;
    this.requestId = requestId;
    this.problem = parsed(problem);
  }

  get name() {
    return "SemelError";
  }
}

/** Whether the request ran can't be told by this client. */
export class OutcomeUnknownError extends SemelError {
  get name() {
    return "OutcomeUnknownError";
  }
}

/** The store can't be used, or has not made a change: `code` says why. */
export class StoreError extends Error {
  constructor(code, message, cause) {
    super(`${code}: ${message}`, { cause });
    this.code = code;
  }

  get name() {
    return "StoreError";
  }
}

/** The codes of the client that leave open whether the request ran. */
const UNKNOWN = new Set(["gave-up", "closed", "outcome-lost"]);

/** The error of a failure: code, executed, retry, detail, and the body of the answer, if there was any. `cause`: what the store threw. */
export const errorOf = (requestId, failure, cause) => new (UNKNOWN.has(failure[0]) ? OutcomeUnknownError : SemelError)(requestId, failure, cause);

function parsed(problem) {
  try {
    return JSON.parse(new TextDecoder().decode(problem));
  } catch {
    // There is none, or it is cut short.
    return undefined;
  }
}
