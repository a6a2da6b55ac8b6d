// The forms in which the body of an outcome can be read.
//
// Invariants:
// - Whatever the body contains, it is text here, never markup or script.
// - Each form shows what was recorded, and all of it unless `cutTo` is set.

/** Not more than this is drawn: nobody reads a megabyte of hexadecimal. */
const SHOWN_BYTES_MAX = 65_536;
const LINE_BYTES = 16;

/** The forms of an outcome's body: `{ bytes, cutTo, forms: { name: text } }`, the most readable first. */
export function formsOf({ headers, body }) {
  const content = bytesOf(body);
  const shown = content.subarray(0, SHOWN_BYTES_MAX);
  const forms = {};
  if (content.length === 0) return { bytes: 0, forms };
  const text = textOf(content);
  const isSaidBinary = /^(image|audio|video|font)\/|octet-stream|protobuf|wasm/.test(typeOf(headers));
  const json = text === undefined || content.length > SHOWN_BYTES_MAX ? undefined : jsonOf(text);
  if (json !== undefined) forms.JSON = json;
  if (isSaidBinary || text === undefined) forms.Hex = hexOf(shown);
  // `stream` leaves out a last character that was cut in two.
  if (text !== undefined) forms.Text = textOf(shown, { stream: true });
  forms.Hex ??= hexOf(shown);
  return { bytes: content.length, cutTo: content.length > SHOWN_BYTES_MAX ? SHOWN_BYTES_MAX : undefined, forms };
}

const typeOf = (headers) => Object.entries(headers).find(([name]) => name.toLowerCase() === "content-type")?.[1] ?? "";

function bytesOf(body) {
  if (typeof body === "string") return new TextEncoder().encode(body);
  return Uint8Array.from(atob(body.base64), (character) => character.charCodeAt(0));
}

function textOf(content, options) {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(content, options);
  } catch {
    return undefined;
  }
}

/**
 * Indented JSON; undefined for a plain number or word, which reads better as it is, for text that JSON would not reproduce (large numbers, repeated
 * names), and for text that is too long to show whole.
 */
function jsonOf(text) {
  try {
    const value = JSON.parse(text);
    const isSame = JSON.stringify(value) === text.replace(/("(?:[^"\\]|\\.)*")|\s+/g, "$1");
    const json = JSON.stringify(value, null, 2);
    return typeof value === "object" && value !== null && isSame && json.length <= SHOWN_BYTES_MAX ? json : undefined;
  } catch {
    return undefined;
  }
}

function hexOf(content) {
  const lines = [];
  for (let at = 0; at < content.length; at += LINE_BYTES) {
    const line = [...content.subarray(at, at + LINE_BYTES)];
    const hex = line.map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const text = line.map((byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : ".")).join("");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${hex.padEnd(LINE_BYTES * 3 - 1)}  ${text}`);
  }
  return lines.join("\n");
}
