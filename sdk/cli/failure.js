// Why a command ends early.

/** `kind`: "failed", "usage" or "interrupted". `lines` are printed; with `--json`, the members of `json` are instead. */
export class Failure extends Error {
  constructor(kind, lines, json = {}) {
    super(lines[0]);
    Object.assign(this, { kind, lines, json: { code: kind, message: lines[0], ...json } });
  }
}
