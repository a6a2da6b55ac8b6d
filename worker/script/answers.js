// Converts a handler's answer to what the module takes: `[status, header lines, text or bytes or undefined]`.
//
// Invariant: an answer that can't be sent as it is meant throws an error that says why; it is never changed. The engine decides which statuses make an outcome
// and how large it may be.

import { jsonOf } from "./json.js";

const NAME = /^[\w!#$%&'*+.^`|~-]+$/;
const BREAKS = /[\0\r\n]/;

export function answerOf(answer) {
  if (typeof answer !== "object") throw new TypeError(`handle gave ${answer === undefined ? "nothing" : `a ${typeof answer}`}: an answer is { status, headers?, body? }, or null where nothing handles the request`);
  if (answer instanceof Response) throw new TypeError("handle gave a Response, whose body can't be read at once: an answer is { status, headers?, body? }");
  const { status, headers, body } = answer;
  if (!Number.isInteger(status) || status < 100 || status > 599) throw new TypeError(`handle gave the status ${typeof status === "string" ? JSON.stringify(status) : String(status)}: it is a number, such as 200`);
  const lines = linesOf(headers);
  const [type, content] = contentOf(body);
  const isTyped = type === undefined || /^content-type:/im.test(lines);
  return [status, isTyped ? lines : `${lines}content-type:${type}\n`, content];
}

function linesOf(headers) {
  if (headers === undefined || headers === null) return "";
  if (typeof headers !== "object") throw new TypeError(`handle gave headers that are a ${typeof headers}`);
  let lines = "";
  for (const [name, value] of typeof headers[Symbol.iterator] === "function" ? headers : Object.entries(headers)) {
    if (typeof name !== "string" || !NAME.test(name)) throw new TypeError(`handle gave a header with the name ${JSON.stringify(name)}, which is none`);
    if (typeof value !== "string" && typeof value !== "number") throw new TypeError(`handle gave the header ${name} a ${typeof value}: it is a text`);
    if (BREAKS.test(value)) throw new TypeError(`handle gave the header ${name} a line break`);
    lines += `${name}:${value}\n`;
  }
  return lines;
}

/** `[default content type, body]`. */
function contentOf(body) {
  if (body === undefined || body === null) return [undefined, undefined];
  if (typeof body === "string") return ["text/plain; charset=utf-8", body];
  if (body instanceof Uint8Array) return [undefined, body];
  return ["application/json", jsonOf(body)];
}
