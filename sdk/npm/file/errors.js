// The errors of the file store that are its own. What the system says (ENOSPC, EIO) is passed on as it is.

/** `code` is one of those that file.d.ts lists. */
export class StoreError extends Error {
  name = "StoreError";

  constructor(code, message, options) {
    super(`semel: ${message}`, options);
    this.code = code;
  }
}
