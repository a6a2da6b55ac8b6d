// Makes JSON of a body, and refuses values that JSON would change silently.

/** The kinds of objects that JSON can hold. An object with `toJSON`, such as a Date, has been replaced by the time that it is checked. */
const KINDS = new Set(["[object Array]", "[object Object]", "[object Null]"]);

const kindOf = (value) => Object.prototype.toString.call(value);

/** Throws a TypeError if JSON would turn a value anywhere in the body into {} or null, or leave it out. */
export function jsonOf(body) {
  const json = JSON.stringify(body, function (_, value) {
    if (!isKnown(value) || (value === undefined && Array.isArray(this))) throw new TypeError(`the body is or has ${typeof value === "number" ? value : kindOf(value)}: it is text, a Uint8Array, or what JSON can hold`);
    return value;
  });
  if (json === undefined) throw new TypeError("there is no body, or its toJSON gives nothing");
  return json;
}

/** A member that is undefined counts as absent, so it is allowed. In an array, JSON would replace it by null: the caller refuses that. */
function isKnown(value) {
  if (typeof value === "object") return KINDS.has(kindOf(value));
  return typeof value === "number" ? Number.isFinite(value) : typeof value !== "function" && typeof value !== "symbol";
}
