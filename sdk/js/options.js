// The options, checked and with their defaults filled in.
//
// Invariant: a wrong option is a TypeError or RangeError at `open`, before anything is stored or sent.

const DURABILITIES = ["strict", "relaxed", "memory"];
const NAMES = new Set(["url", "identity", "headers", "retryIntervalMs", "attemptTimeoutMs", "giveUpAfterMs", "maxPending", "maxAttempts", "ordered", "ids", "salt", "fetch", "store", "durability", "onrecovered", "onpaused", "onstorelost"]);

export function setupOf(options) {
  for (const name of Object.keys(options)) if (!NAMES.has(name)) throw new TypeError(`semel: there is no option ${name}`);
  const { identity = "", headers, store, durability = "strict", ids = "uuid", salt = "", fetch = globalThis.fetch } = options;
  if (typeof identity !== "string" || !/^[ -~]{0,255}$/.test(identity)) throw new TypeError("semel: identity has at most 255 characters of printable ASCII");
  if (typeof fetch !== "function") throw new TypeError("semel: fetch is not a function");
  if (ids !== "uuid" && ids !== "hash") throw new TypeError("semel: ids is uuid or hash");
  for (const name of ["onrecovered", "onpaused", "onstorelost"]) {
    if (options[name] != null && typeof options[name] !== "function") throw new TypeError(`semel: ${name} is not a function`);
  }
  if (!DURABILITIES.includes(durability)) throw new TypeError(`semel: durability is one of ${DURABILITIES.join(", ")}`);
  if (store !== undefined && !["load", "change", "remove"].every((name) => typeof store?.[name] === "function")) {
    throw new TypeError("semel: a store has the methods load, change and remove");
  }
  return {
    origin: originOf(options.url),
    identity,
    // A value is checked and copied now; a function is asked for each attempt.
    headers: typeof headers === "function" ? headers : new Headers(headers),
    // Called without a receiver: the browser's own fetch accepts no other.
    fetch: (url, init) => fetch(url, init),
    retryIntervalMs: ms("retryIntervalMs", options.retryIntervalMs ?? 1000, 10, 3_600_000),
    attemptTimeoutMs: ms("attemptTimeoutMs", options.attemptTimeoutMs ?? 10_000, 100, 100_000),
    giveUpAfterMs: options.giveUpAfterMs === undefined ? undefined : ms("giveUpAfterMs", options.giveUpAfterMs, 0, Number.MAX_SAFE_INTEGER),
    maxPending: within("maxPending", options.maxPending ?? 1000, 1, 1000),
    maxAttempts: within("maxAttempts", options.maxAttempts ?? 32, 1, 1000),
    ordered: options.ordered ?? true,
    ids,
    salt,
    durability,
    store,
  };
}

function originOf(url) {
  const { protocol, origin, href } = new URL(url, globalThis.location?.href);
  if (protocol !== "http:" && protocol !== "https:") throw new TypeError("semel: url is not an http or https URL");
  if (href !== `${origin}/`) throw new TypeError("semel: url is an origin, and nothing else");
  return origin;
}

function ms(name, value, min, max) {
  // Infinity stands for never.
  if (value === Infinity && name === "giveUpAfterMs") return undefined;
  return within(name, value, min, max, " ms");
}

function within(name, value, min, max, unit = "") {
  if (!(Number.isFinite(value) && value >= min && value <= max)) throw new RangeError(`semel: ${name} is ${value}; it is from ${min} to ${max}${unit}`);
  return value;
}

/** A key as it is on the wire: percent-encoded, just as the server does it, so that the two are one text. */
export function encodedKey(key) {
  if (key === undefined) return undefined;
  const bytes = typeof key === "string" ? new TextEncoder().encode(key).length : 0;
  // As a segment of a path, . and .. would lead elsewhere: such a key could be neither acknowledged nor cancelled.
  if (bytes < 1 || bytes > 512 || /\p{Cc}|^\.\.?$/u.test(key)) throw new TypeError("semel: a key has 1 to 512 bytes of UTF-8, no control characters, and is not . or ..");
  return key.replace(/[ "%\\<>`#?]|[^\0-\x7f]+/gu, encodeURIComponent);
}
