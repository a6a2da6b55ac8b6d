// A request and its answer as the module takes and gives them: heads as lines of text, bodies as bytes.
//
// Invariant: an answer is `[status, header lines, body or undefined, log line or undefined]` wherever it goes, and a `Response` only where
// it leaves the Worker: each that is made costs as much as a statement of SQL.

/** The largest request body that is read. The engine has the same number, and answers 413 beyond it. */
const BODY_BYTES_MAX = 1 << 20;
/** So much of a larger body is read and thrown away: a client that is still sending would not see its 413. */
const DRAINED_BYTES_MAX = 16 << 20;

/** One `name:value` a line: headers cross the boundary in one piece. */
export function linesOf(headers) {
  let lines = "";
  headers.forEach((value, name) => {
    lines += `${name}:${value}\n`;
  });
  return lines;
}

/** The value of a header that is there once at most; undefined where it isn't. */
export function valueIn(lines, name) {
  const at = `\n${lines}`.indexOf(`\n${name}:`);
  return at < 0 ? undefined : lines.slice(at + name.length + 1, lines.indexOf("\n", at));
}

/** Names and values, each header by itself. Every line ends with a line feed. */
export function pairsOf(lines) {
  const pairs = [];
  forEach(lines, (name, value) => pairs.push([name, value]));
  return pairs;
}

function forEach(lines, take) {
  for (let at = 0, end; (end = lines.indexOf("\n", at)) >= 0; at = end + 1) {
    const colon = lines.indexOf(":", at);
    if (colon > at && colon < end) take(lines.slice(at, colon), lines.slice(colon + 1, end));
  }
}

/** What the module answers. Its memory is not to be held on to. */
export const answered = (status, lines, body, line) => [status, lines, body?.slice(), line];

/** Where the module says that a request goes: the key, what the router says of it, how many ms its answer is waited for, and who asks in a batch. */
export const routedTo = (key, says, waitMs, asker) => [key, says, waitMs, asker];

/** Makes a response of an answer, with `more` headers. */
export function responseOf([status, lines, body], more = "") {
  // What the handler encoded is encoded: the runtime must not do it again.
  const response = new Response(body ?? null, { status, encodeBody: "manual" });
  // Headers that are made before are copied, which takes half as long again; and a list of them takes four times as long.
  const { headers } = response;
  forEach(lines + more, (name, value) => headers.append(name, value));
  return response;
}

/** Of what `new URL` would find the path as it is written, and no query. */
const PLAIN_URL = /^https?:\/\/[\w.:[\]-]+((?:\/[\w~-]+)+)$/;

/** The path of a URL as `new URL` has it, and its query. */
export function pathOf(url) {
  // An object of the runtime's takes ten times as long, and has to be collected.
  const path = PLAIN_URL.exec(url)?.[1];
  if (path !== undefined) return { pathname: path, search: "" };
  const { pathname, search } = new URL(url);
  return { pathname, search };
}

const asBytes = (buffer) => new Uint8Array(buffer);

/** Resolves to the bytes of a body; to undefined where it has more than allowed. */
export function bodyOf(request) {
  const length = request.headers.get("content-length");
  // A stream costs several times as much, were it only looked at.
  return length !== null && Number(length) <= BODY_BYTES_MAX ? request.arrayBuffer().then(asBytes) : streamed(request, length);
}

/** The same of what the runtime may decode on the way, whose length then says nothing of how much it becomes. */
export const decodedBodyOf = (response) => streamed(response, null);

async function streamed(request, length) {
  if (Number(length) > DRAINED_BYTES_MAX) return undefined;
  if (request.body === null) return new Uint8Array();
  const chunks = [];
  let bytes = 0;
  for await (const chunk of request.body) {
    bytes += chunk.byteLength;
    if (bytes > DRAINED_BYTES_MAX) return undefined;
    if (bytes <= BODY_BYTES_MAX) chunks.push(chunk);
    else chunks.length = 0;
  }
  if (bytes > BODY_BYTES_MAX) return undefined;
  if (chunks.length === 1) return chunks[0];
  const body = new Uint8Array(bytes);
  let at = 0;
  for (const chunk of chunks) {
    body.set(chunk, at);
    at += chunk.byteLength;
  }
  return body;
}
