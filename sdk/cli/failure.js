// Why a command ends early.

/** `kind`: "failed", "usage" or "interrupted"; `lines` are told, and `json` where JSON is wanted. */
export class Failure extends Error {
  constructor(kind, lines, json = {}) {
    super(lines[0]);
    Object.assign(this, { kind, lines, json: { code: kind, message: lines[0], ...json } });
  }
}
