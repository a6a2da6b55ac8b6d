// A request and its answer as the module takes and gives them: heads as lines of text, bodies as bytes.
//
// Invariant: an answer is `[status, header lines, body or undefined, log line or undefined]` wherever it goes, and a `Response` only where
// it leaves the Worker: each that is made costs as much as a statement of SQL.

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
