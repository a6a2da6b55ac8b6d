// As much of HTTP/1.1 as the proxy needs: where a message ends, what it is about, and that its connection ends with it.
//
// Invariant: requests here have a Content-Length or no body. Chromium and Node send the SDK's so.

const END_OF_HEAD = Buffer.from("\r\n\r\n");

/** The first message in `bytes`: its head as text, and how long head and message are; undefined before the head is there. */
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

/** The same request with `Connection: close`: whoever resends on a connection that it has used before would hide faults. */
export function closing(bytes, { head }) {
  const kept = head.split("\r\n").filter((line) => !/^connection:/i.test(line));
  return Buffer.concat([Buffer.from(`${[...kept, "Connection: close"].join("\r\n")}`, "latin1"), bytes.subarray(head.length)]);
}

/** The number of the deposit that a request is about; undefined where it is about none, or about several. */
export function numberOf(head) {
  const n = /^\S+ \S*[?&]n=(\d+)\b/.exec(head)?.[1];
  return n === undefined ? undefined : Number(n);
}
