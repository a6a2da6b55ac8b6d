// What JSON holds as it is meant.

/** The objects among it. What is to be told as another, as a date is, is a text by the time that it is looked at. */
const KINDS = new Set(["[object Array]", "[object Object]", "[object Null]"]);

const kindOf = (value) => Object.prototype.toString.call(value);

/** JSON makes {} or null of much that it does not know, or leaves it out, wherever in a body that is. */
export function jsonOf(body) {
  const json = JSON.stringify(body, function (_, value) {
    if (!isKnown(value) || (value === undefined && Array.isArray(this))) throw new TypeError(`the body is or has ${typeof value === "number" ? value : kindOf(value)}: it is text, a Uint8Array, or what JSON can hold`);
    return value;
  });
  if (json === undefined) throw new TypeError("there is no body, or its toJSON gives nothing");
  return json;
}

/** What is undefined is a member that is not there; in a list, something else would be in its place. */
function isKnown(value) {
  if (typeof value === "object") return KINDS.has(kindOf(value));
  return typeof value === "number" ? Number.isFinite(value) : typeof value !== "function" && typeof value !== "symbol";
}
