// What the tests of pauses, of giving up and of aborting share: an outbox that tells its pauses, how a server answers changes, and what a cancelled
// call rejects with.

import assert from "node:assert/strict";
import { SemelError } from "../../sdk/npm/node.js";
import { outbox, until } from "./stub.mjs";

export const refuse = (server, call, status = 400, code = "key-mismatch") => server.problem(call.key, status, code, { executed: "no", retry: "after-fix" });

/** An outbox, and the pauses that `onpaused` was told of. */
export async function pausing(t, options) {
  const told = [];
  const { semel, server } = await outbox(t, { onpaused: (paused) => told.push(paused), ...options });
  const next = (count = 1) => until(() => told.length >= count && told[count - 1], `it is told of ${count} pauses`);
  return { semel, server, told, next };
}

/** Has `treat` answer changes, and the stub everything else. */
export function changes(server, treat) {
  server.each = (call, serve) => (call.kind === "change" ? treat(call, serve) : serve());
}

export function isCancelled(error, requestId) {
  assert.ok(error instanceof SemelError, String(error));
  const { name, code, executed, retry } = error;
  assert.deepEqual({ name, code, executed, retry, id: error.requestId }, { name: "CancelledError", code: "cancelled", executed: "no", retry: "never", id: requestId });
}
