// A made-up deployment for the tests of what administrators see: 10,000 keys, and a million records at one of them.
//
// Invariants:
// - Key `i` and record `n` are computed from their numbers when they are asked for, the same each time. Only changes are stored.
// - Its clock stands still at NOW_MS.

export const NOW_MS = Date.UTC(2026, 10, 21, 12);
export const KEYS = 10_000;
/** The key with the most records. */
export const HEAVY = "orders/everything";
/** A key whose name is markup, and one whose name has to be encoded in a URL. */
export const HOSTILE = `<img src=x onerror="window.hacked = 1">`;
export const FOREIGN = "Zürich/größte Bestellung ☃ 100%";
/** A key with a few records of every state, and one without records. */
export const SMALL = "accounts/alice";
export const EMPTY = "carts/empty";

const RECORDS_MAX = 1_000_000;
const DAY_MS = 86_400_000;
const NAMED = [HEAVY, HOSTILE, FOREIGN, SMALL, EMPTY];
const LISTED = [RECORDS_MAX, 40, 12, 1_200, 0];
const FAMILIES = ["accounts", "orders", "carts", "tenants"];
/** How many tombstones share a row with others, for each tombstone that has its own row. */
const PACKED_PER_LISTED = 3;

/** A number from 0 to 2^32 - 1 that looks random. */
export function mix(number, salt = 0) {
  let value = Math.imul(number ^ 0x9e3779b9, 0x85ebca6b) ^ Math.imul(salt + 1, 0xc2b2ae35);
  value = Math.imul(value ^ (value >>> 15), 0x2c1b3c6d);
  value = Math.imul(value ^ (value >>> 12), 0x297a2d39);
  return (value ^ (value >>> 15)) >>> 0;
}
const share = (number, salt) => mix(number, salt) / 2 ** 32;

const nameOf = (i) => NAMED[i] ?? `${FAMILIES[mix(i, 1) % FAMILIES.length]}/${mix(i, 2).toString(36)}-${i}`;
/** How many records and tombstones of key `i` have their own row. */
const listedOf = (i) => LISTED[i] ?? Math.floor(2 + 400 * share(i, 3) ** 6);

/** The keys as the registry lists them, in the order of their numbers. */
export const keys = Array.from({ length: KEYS }, (_, i) => {
  const listed = listedOf(i);
  const created = NOW_MS - Math.floor(90 * DAY_MS * share(i, 4)) - DAY_MS;
  const [records, tombstones] = i === 0 ? [580_000, 420_000 * (1 + PACKED_PER_LISTED)] : countsOf(i, listed);
  return { key: nameOf(i), created, seen: NOW_MS - Math.floor(DAY_MS * share(i, 5)), records, tombstones, inDoubt: 0, parked: 0, bytes: 24_576 + listed * 310, oldest: listed === 0 ? null : NOW_MS - DAY_MS + (mix(i, 6) % 3_600_000) };
});
const numbers = new Map(keys.map(({ key }, i) => [key, i]));
export const numberOf = (key) => numbers.get(key);
export const listed = (i) => listedOf(i);

function countsOf(i, listed) {
  let records = 0;
  for (let n = 0; n < listed; n += 1) if (isRecord(stateOf(n))) records += 1;
  return [records, (listed - records) * (1 + PACKED_PER_LISTED)];
}

export function isRecord(state) {
  return ["executed", "poisoned", "suspect"].includes(state);
}

/** The state of record `n`. The rare states are spread evenly: any hundred records in a row have each of them. */
export function stateOf(n) {
  const place = (n * 37 + 11) % 100;
  if (place < 57) return "executed";
  if (place === 57) return "suspect";
  if (place < 60) return "poisoned";
  if (place < 65) return "cancelled";
  return place < 90 ? "acknowledged" : "expired";
}

/** The id of record `n`, which looks like a UUID. Ids sort like their numbers. */
export function idOf(i, n) {
  const hex = (number, digits) => number.toString(16).padStart(digits, "0").slice(-digits);
  return `${hex(n * 4_294, 8)}-${hex(mix(n, i), 4)}-4${hex(mix(n, i + 1), 3)}-a${hex(mix(n, i + 2), 3)}-${hex(mix(n, i + 3), 8)}${hex(mix(n, 4), 4)}`;
}

/** The number of an id at key `i`; undefined if the key has no such id. */
export function numberOfId(i, id) {
  const n = Math.floor(Number.parseInt(id.slice(0, 8), 16) / 4_294);
  return n < listedOf(i) && idOf(i, n) === id ? n : undefined;
}

/** When record `n` last changed: within the last day, mostly around its middle. */
export const atOf = (i, n) => NOW_MS - Math.floor(((share(n, i + 7) + share(n, i + 8)) / 2) * DAY_MS);

/** How many tombstones of key `i` share a row with others. */
export const packedOf = (i) => Math.round((keys[i].tombstones * PACKED_PER_LISTED) / (1 + PACKED_PER_LISTED));

/** Record `n` of key `i`. */
export function recordOf(i, n) {
  const state = stateOf(n);
  const at = atOf(i, n);
  const isAnonymous = n % 10 === 9;
  const content = state === "executed" ? outcomeOf(n) : undefined;
  return {
    id: idOf(i, n),
    state,
    principal: `user-${mix(n, 9) % 50}`,
    firstSent: isAnonymous ? null : Math.floor(at / 1000) - (mix(n, 10) % 5),
    at,
    deadline: isAnonymous ? null : Math.ceil((at + 9_000) / 10_000) * 10_000,
    lapses: ["acknowledged", "expired"].includes(state) || (state === "cancelled" && isAnonymous) ? at + 70_000 + (mix(n, 11) % DAY_MS) : null,
    // Without a first-sent, an earlier request with the same id may have run.
    executed: { executed: "yes", acknowledged: "yes", expired: n % 2 ? "yes" : "unknown", poisoned: "no" }[state] ?? (isAnonymous ? "unknown" : "no"),
    status: content?.status ?? null,
    bytes: content ? bytesOf(content) : null,
    crashes: state === "suspect" ? 1 + (n % 2) : null,
  };
}

const bytesOf = ({ body }) => (typeof body === "string" ? Buffer.byteLength(body) : Buffer.from(body.base64, "base64").length);

/** The outcome of an executed record: JSON, refusals, markup, bytes, nothing. */
export function outcomeOf(n) {
  const json = (status, value) => ({ status, headers: { "content-type": "application/json", "cache-control": "no-store" }, body: JSON.stringify(value) });
  switch (mix(n, 12) % 8) {
    case 0:
      return json(409, { error: "insufficient-funds", balance: n });
    case 1:
      return { status: 200, headers: { "content-type": "text/html" }, body: `<!doctype html><h1 onclick="window.hacked = 1">${n}</h1><script>window.hacked = 1</script><img src=x onerror="window.hacked = 1">` };
    case 2:
      return { status: 200, headers: { "content-type": "application/octet-stream" }, body: { base64: Buffer.from(Array.from({ length: 300 }, (_, at) => mix(n, at) & 255)).toString("base64") } };
    case 3:
      return { status: 204, headers: {}, body: "" };
    default:
      return json(200, { id: `order-${n}`, balance: n * 5, entries: n, items: [{ name: "Größe ☃", amount: 1 }] });
  }
}

export const fingerprintOf = (n) => Array.from({ length: 8 }, (_, at) => mix(n, at + 20).toString(16).padStart(8, "0")).join("");

/** The id of an effect: 32 hexadecimal digits. */
export const effectIdOf = (n) => n.toString(16).padStart(32, "0");

/** The effects of a key, as the API returns them: to a key whose name is markup, to an outside address, and one that was refused for good. */
export function sentBy() {
  const one = { at: NOW_MS - 300_000, method: "POST", url: "/accounts/bob/credit", bytes: 20 };
  const lane = { id: effectIdOf(2), to: "key accounts/bob", waiting: 1_200, attempts: 17, next: NOW_MS + 1_000, reason: "answered 503 unavailable", closing: null, ...one };
  const parked = { id: effectIdOf(7), number: 7, to: "key accounts/carl", parked: NOW_MS - 60_000, executed: "no", reason: "answered 422: no such account", ...one };
  return {
    lanes: [
      lane,
      { ...lane, id: effectIdOf(3), to: `key ${HOSTILE}`, waiting: 1, attempts: 1, next: null, reason: null, bytes: 0 },
      { ...lane, id: effectIdOf(4), to: "url https://mail.example.com", waiting: 3, attempts: 0, next: null, reason: null, url: "https://mail.example.com/send" },
      { ...lane, id: effectIdOf(5), to: "key accounts/eve", waiting: 2, closing: "an administrator gave it up" },
    ],
    parked: [
      parked,
      { ...parked, id: effectIdOf(8), number: 8, to: "url https://mail.example.com", executed: "unknown", reason: "answered 404: <img src=x onerror='window.hacked = 1'>", url: "https://mail.example.com/send" },
      { ...parked, id: effectIdOf(9), number: 9, executed: "yes", reason: "answered 403: {\"error\":\"forbidden\"}" },
    ],
  };
}
