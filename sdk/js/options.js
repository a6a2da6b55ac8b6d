// Checks the options, and fills in defaults.
//
// Invariant: a wrong option is a TypeError or RangeError at `open`, before anything is stored or sent.

import { bytesOf, optional } from "./bytes.js";

/** From here on a time counts as never, because the module counts in integers. */
const NEVER_MS = 1e15;

/** The numbers, in the order in which the module takes them: `[default, minimum, maximum]`. Infinity: no limit. */
const NUMBERS = {
  retryIntervalMs: [1_000, 10, 3_600_000],
  attemptTimeoutMs: [10_000, 100, 100_000],
  giveUpAfterMs: [Infinity, 0, Infinity],
  maxPending: [1_000, 1, 1_000],
  maxAttempts: [32, 1, 1_000],
};
/** The allowed values; the first is the default. */
const CHOICES = { durability: ["strict", "relaxed", "memory"], ids: ["uuid", "hash"], ordered: [true, false] };
const HANDLERS = ["onrecovered", "onpaused", "onstorelost"];
const OTHERS = ["url", "identity", "headers", "salt", "fetch", "store"];

export function setupOf(options) {
  for (const name of Object.keys(options)) {
    // Not a constant: the bundle of sessions, which uses only `encodedKey`, would contain it.
    if (![...Object.keys({ ...NUMBERS, ...CHOICES }), ...HANDLERS, ...OTHERS].includes(name)) throw new TypeError(`semel: there is no option ${name}`);
  }
  const { identity = "", headers, store, salt = "", fetch = globalThis.fetch } = options;
  const setup = { origin: originOf(options.url), identity, store, salt };
  if (typeof identity !== "string" || !/^[ -~]{0,255}$/.test(identity)) throw new TypeError("semel: identity has at most 255 characters of printable ASCII");
  for (const name of ["fetch", ...HANDLERS]) if (typeof (options[name] ?? fetch) !== "function") throw new TypeError(`semel: ${name} is not a function`);
  for (const name of Object.keys(CHOICES)) setup[name] = checked(name, options[name]);
  for (const [name, [preset, min, max]] of Object.entries(NUMBERS)) {
    const { [name]: value = preset } = options;
    setup[name] = value;
    if (typeof value !== "number" || !(value >= min && value <= max)) throw new RangeError(`semel: ${name} is ${value}; it is from ${min} to ${max}`);
  }
  setup.giveUpAfterMs = optional(setup.giveUpAfterMs < NEVER_MS ? setup.giveUpAfterMs : undefined);
  setup.numbers = Object.keys(NUMBERS).map((name) => setup[name]);
  if (store !== undefined && !["load", "change", "remove"].every((name) => typeof store?.[name] === "function")) {
    throw new TypeError("semel: a store has the methods load, change and remove");
  }
  if (!/string|number|function/.test(typeof salt)) throw new TypeError("semel: salt is a string or a number or a function");
  // `new Headers(promise)` would silently be empty.
  if (headers?.then) throw new TypeError("semel: headers is a promise");
  // A value is checked and copied now; a function is called for each attempt.
  setup.headers = typeof headers === "function" ? headers : new Headers(headers);
  // Called without a receiver, because the browser's own fetch throws with a wrong one.
  setup.fetch = (url, init) => fetch(url, init);
  return setup;
}

/** The value of an option that has a list of allowed values, or its default. */
export function checked(name, value = CHOICES[name][0]) {
  if (!CHOICES[name].includes(value)) throw new TypeError(`semel: ${name} is one of ${CHOICES[name].join(", ")}`);
  return value;
}

function originOf(url) {
  // "a:/" because `new URL(undefined, base)` would take "undefined" for a path of the page. Without a page, it makes a relative URL one that is refused
  // below, by a message that names the option. An origin that begins with "http" is one of http or https: unknown schemes have none.
  const { origin, href } = new URL(url ?? "a:/", globalThis.location ?? "a:/");
  if (!/^http/.test(origin) || href !== `${origin}/`) throw new TypeError("semel: url is an http or https origin");
  return origin;
}

/** The key as it is on the wire: percent-encoded exactly as the server does it, so that both have the same text. */
export function encodedKey(key) {
  if (key === undefined) return undefined;
  const bytes = typeof key === "string" ? bytesOf(key).length : 0;
  // As segments of a path, "." and ".." would lead elsewhere: such a key could be neither acknowledged nor cancelled.
  if (bytes < 1 || bytes > 512 || /[\p{Cc}\p{Cs}]|^\.\.?$/u.test(key)) throw new TypeError("semel: a key has 1 to 512 bytes, no controls, not . or ..");
  return key.replace(/[ "%\\<>`#?]|[^\0-\x7f]+/gu, encodeURIComponent);
}
