// As much of HTTP/1.1 as the proxy needs: where a message ends, what it is about, and that its connection ends with it.
//
// Invariant: requests here have a Content-Length or no body. That is how Chromium and Node send the SDK's requests.

const END_OF_HEAD = Buffer.from("\r\n\r\n");

/** The first message in `bytes`: its head as text, and the lengths of head and message; undefined until the head is complete. */
export function messageIn(bytes) {
  const end = bytes.indexOf(END_OF_HEAD);
  if (end < 0) return undefined;
  const head = bytes.toString("latin1", 0, end);
  const headLength = end + END_OF_HEAD.length;
  return { head, headLength, length: headLength + Number(fieldOf(head, "content-length") ?? 0) };
}

export function fieldOf(head, name) {
  return new RegExp(`\r\n${name}: *([^\r\n]*)`, "i").exec(head)?.[1];
}

/** Whether a request asks for a WebSocket. */
export const isUpgrade = (head) => /^websocket$/i.test(fieldOf(head, "upgrade") ?? "");

/** The same request with `Connection: close`. On a connection that it has used before, a client resends on its own, which would hide faults. */
export function closing(bytes, { head }) {
  const kept = head.split("\r\n").filter((line) => !/^connection:/i.test(line));
  return Buffer.concat([Buffer.from(`${[...kept, "Connection: close"].join("\r\n")}`, "latin1"), bytes.subarray(head.length)]);
}

/** The changes that a request asks for, in order: `{ n, id }`, the number of the deposit and the request id, if it has any. */
export function changesIn({ head, body }) {
  if (!head.startsWith("POST ")) return [];
  const target = head.split(" ", 2)[1];
  if (!target.endsWith("/batch")) return [{ n: numberOf(target), id: fieldOf(head, "idempotency-key") }];
  return JSON.parse(body).map(({ path, id }) => ({ n: numberOf(path), id }));
}

/** The `Semel-Status` of each change that a complete answer is about, in order. */
export function statusesIn({ head, body }, isBatch) {
  const semel = fieldOf(head, "semel-status") ?? "none";
  if (!isBatch || semel !== "executed") return [semel];
  return JSON.parse(body).map(({ headers }) => headers["semel-status"]);
}

/** The number of the deposit that a target is about; undefined if it is about none. */
function numberOf(target) {
  const n = /[?&]n=(\d+)\b/.exec(target)?.[1];
  return n === undefined ? undefined : Number(n);
}
