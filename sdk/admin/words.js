// Numbers, instants and states, as words.
//
// Invariant: an age is measured by the server's clock, never by the browser's.

const UNITS = [
  ["day", 86_400],
  ["h", 3_600],
  ["min", 60],
  ["s", 1],
];

/** "9,999". "NaN" if the value is no number, which a host that is no deployment may send. */
export const number = (value) => Number(value).toLocaleString("en-US");
/** "1 key", "9,999 keys". */
export const counted = (value, noun) => `${number(value)} ${noun}${value === 1 ? "" : "s"}`;
/** "1 key has forgotten", "9,999 keys have forgotten". */
export const haveForgotten = (keys) => `${counted(keys, "key")} ${keys === 1 ? "has" : "have"} forgotten`;

/** How many lanes of a key the server shows. */
const LANES_MAX = 50;
/** What is said if there may be more lanes. */
export const lanesShown = (lanes) => (lanes.length < LANES_MAX ? "" : ` The first ${LANES_MAX} of those that are sent to are shown.`);

/** What deleting a key does to what it has still to send. Empty if that is nothing. */
export const unsentToo = (count) => (count === 0 ? "" : ` What it has sent and nobody has taken yet goes too, and is never sent: ${counted(count, "request")}, for example a credit whose debit is done.`);

export function bytes(value) {
  if (value < 1_000) return `${value} B`;
  const unit = Math.min(Math.floor(Math.log10(value) / 3), 4);
  const scaled = value / 1_000 ** unit;
  return `${scaled.toFixed(scaled < 10 ? 1 : 0)} ${["B", "kB", "MB", "GB", "TB"][unit]}`;
}

/** "2 days", "90 s": in the largest unit that fits at least twice, or exactly. */
export function duration(seconds) {
  const whole = Math.round(seconds);
  const [name, size] = UNITS.find(([, size]) => whole >= 2 * size || (whole >= size && whole % size === 0)) ?? UNITS.at(-1);
  const count = Math.floor(whole / size);
  return `${number(count)} ${name}${name === "day" && count !== 1 ? "s" : ""}`;
}

/** "3 min ago", "in 2 h". */
export function age(ms, nowMs) {
  const seconds = Math.round(Math.abs(nowMs - ms) / 1000);
  if (seconds === 0) return "now";
  return ms < nowMs ? `${duration(seconds)} ago` : `in ${duration(seconds)}`;
}

/** "2026-11-21 13:00:05", in local time. */
export function instant(ms, { hasMs = false } = {}) {
  const local = new Date(ms - new Date(ms).getTimezoneOffset() * 60_000).toISOString();
  return local.slice(0, hasMs ? 23 : 19).replace("T", " ");
}

/** Characters that move a cursor, end a line, reverse text or show nothing at all. */
export const UNSAFE = /[\p{C}\p{Zl}\p{Zp}]/gu;
/** Text with those characters as escapes, except line ends and tabs. So no name looks like another one. */
export const safe = (text) => String(text).replace(UNSAFE, (character) => (/[\n\t]/.test(character) ? character : `\\u{${character.codePointAt(0).toString(16)}}`));

/** How full something is, in words: never "0 %" unless it is empty, never "100 %" before it is full. */
export function fullness(value, max) {
  const percent = (100 * value) / max;
  if (value === 0 || percent >= 100) return `${Math.floor(percent)} %`;
  return percent < 0.1 ? "below 0.1 %" : `${percent < 10 ? Math.floor(percent * 10) / 10 : Math.floor(percent)} %`;
}

/** The states by which keys can be chosen: the member of a key that counts them, the name, and what is said if there are none. */
export const CHOICES = {
  __proto__: null,
  "in-doubt": { member: "inDoubt", name: "In doubt", none: "Nothing is in doubt" },
  parked: { member: "parked", name: "Parked", none: "Nothing that was sent is parked" },
};

/** What each state means: in a word, and in a sentence. */
export const STATES = {
  __proto__: null,
  executed: ["executed", "It ran once. Its outcome is kept, and every later attempt gets the same."],
  poisoned: ["poisoned", "The handler crashed on it too often, so it never runs again. Its effect was undone each time."],
  cancelled: ["cancelled", "It was cancelled. From then on it never runs."],
  suspect: ["suspect", "The handler crashed on it, or may have. Its next attempt may run."],
  "in-doubt": ["in doubt", "It was sent to the upstream, and has no outcome. Nobody knows whether it ran, unless it is under way at this moment."],
  acknowledged: ["acknowledged", "It ran, and its client said that it has the outcome. What stays is the id, so that no late attempt runs."],
  expired: ["expired", "Its outcome is no longer kept. What stays is the id, so that no late attempt runs."],
};

/** Whether the request of a record ran, in words. */
export function ran({ state, executed }) {
  if (state === "suspect") return executed === "no" ? "not yet" : "not known";
  return { yes: "yes, once", no: "no, and it never will" }[executed] ?? "not known";
}
