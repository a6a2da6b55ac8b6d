// What a caller gets where there is no outcome.

/** An answer that is no outcome. `executed` is `"no"` only where the request never ran and never will. */
export class SemelError extends Error {
  constructor(requestId, failure, problem) {
    const [code, executed, retry, ...detail] = failure.split("\t");
    super(`${code}: ${detail.join("\t")}`);
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

/** The codes of the client that leave open whether the request ran. */
const UNKNOWN = new Set(["gave-up", "closed", "outcome-lost"]);

/** The error of a failure: code, executed, retry and detail, with tabs between. `problem`: the body of the answer, if any. */
export function errorOf(requestId, failure, problem) {
  return new (UNKNOWN.has(failure.split("\t", 1)[0]) ? OutcomeUnknownError : SemelError)(requestId, failure, problem);
}

function parsed(problem) {
  try {
    return JSON.parse(new TextDecoder().decode(problem));
  } catch {
    // There is none, or it is cut short.
    return undefined;
  }
}
