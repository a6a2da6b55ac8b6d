// Converts requests and answers between the runtime and the module, which takes headers as lines of text and bodies as bytes.
//
// Invariant: inside the Worker an answer is always `[status, header lines, body or undefined, log line or undefined]`. It becomes a `Response` only when it
// leaves, because making one costs as much as a statement of SQL.

/** Headers as text, one `name:value` a line, so that they cross the boundary in one piece. */
export function linesOf(headers) {
  let lines = "";
  headers.forEach((value, name) => {
    lines += `${name}:${value}\n`;
  });
  return lines;
}

/** The value of a header that occurs at most once; undefined if it is missing. */
export function valueIn(lines, name) {
  const at = `\n${lines}`.indexOf(`\n${name}:`);
  return at < 0 ? undefined : lines.slice(at + name.length + 1, lines.indexOf("\n", at));
}

/** Header lines as a list of `[name, value]`. Every line ends with a line feed. */
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

/** Called by the module to make an answer. The body is copied, because it is a view of the module's memory. */
export const answered = (status, lines, body, line) => [status, lines, body?.slice(), line];

/** Called by the module to say where a request goes: the key, header lines to add, how many ms to wait for the answer, and who asks, for a batch. */
export const routedTo = (key, says, waitMs, asker) => [key, says, waitMs, asker];

/** Makes a `Response` of an answer and of `more` header lines. */
export function responseOf([status, lines, body], more = "") {
  // "manual": if the handler has encoded the body, the runtime must not do it again.
  const response = new Response(body, { status, encodeBody: "manual" });
  // Appended one by one: passing a `Headers` makes a copy, which takes half as long again, and a list takes four times as long.
  const { headers } = response;
  forEach(lines + more, (name, value) => headers.append(name, value));
  return response;
}

/** URLs whose path `new URL` would leave as it is, and that have no query. */
const PLAIN_URL = /^https?:\/\/[\w.:[\]-]+((?:\/[\w~-]+)+)$/;

/** The path and the query of a URL, as `new URL` gives them. */
export function pathOf(url) {
  // A `URL` is an object of the runtime: it takes ten times as long, and must be collected.
  const path = PLAIN_URL.exec(url)?.[1];
  if (path !== undefined) return { pathname: path, search: "" };
  const { pathname, search } = new URL(url);
  return { pathname, search };
}
