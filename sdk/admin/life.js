// The life of one record: the instants that are known of it, in order.

import { ran } from "./words.js";

/** What happened when a record last changed, by its state. */
const CHANGED = {
  executed: ["Executed", "Effect and outcome were committed together."],
  poisoned: ["Given up", "The last crash of the handler."],
  cancelled: ["Cancelled", "From here on it can't run."],
  "in-doubt": ["Sent to the upstream", "The last time. It has no answer yet, or never had one."],
  suspect: ["Crashed or started", "The last time that the handler crashed, or was started."],
  acknowledged: ["Acknowledged", "The client has the outcome; here it was thrown away."],
  expired: ["Reduced to its id", "The outcome was thrown away."],
};

/**
 * The life of a record as of `nowMs`: `{ atMs, title, detail, isAhead }` for each event. `retentionSeconds` is null if records are kept for ever. For
 * an id that has no row of its own any more, only its end is known.
 */
export function lifeOf(record, nowMs, retentionSeconds) {
  const [changed, what] = CHANGED[record.state] ?? [record.state, ""];
  const events = record.at === null ? [] : [{ atMs: record.at, title: changed, detail: what }];
  if (record.firstSent !== null) events.push({ atMs: record.firstSent * 1000, title: "First sent", detail: "By the client's clock, to the second." });
  if (record.deadline !== null) {
    events.push({ atMs: record.deadline, title: "Latest deadline", detail: "Rounded up to ten seconds. After it, no attempt that the key has seen can start." });
  }
  if (record.lapses !== null) events.push({ atMs: record.lapses, title: "Lapses", detail: "From then on the record may leave, and nothing is known of the id." });
  else if (record.state === "executed" && retentionSeconds !== null) {
    events.push({ atMs: record.at + retentionSeconds * 1000, title: "Outcome expires", detail: "Until then every attempt gets it, unless its client acknowledges it first." });
  }
  // First sent is in whole seconds, so it may look later than the event that it led to.
  const place = ({ title, atMs }) => (title === "First sent" ? Math.min(atMs, record.at - 1) : atMs);
  events.sort((one, other) => place(one) - place(other));
  return events.map((event) => ({ ...event, isAhead: event.atMs > nowMs }));
}

/** Short facts about a record: `[name, value]`. */
export function factsOf(record) {
  if (record.principal === null) return [["Ran", ran(record)], ["Kept", "its id, and until when it is refused"]];
  const facts = [
    ["Ran", ran(record)],
    ["Principal", record.principal || "none"],
  ];
  if (record.crashes !== null) facts.push(["Crashes", String(record.crashes)]);
  if (record.firstSent === null) facts.push(["First sent", "its client did not say"]);
  if (record.deadline === null) facts.push(["Deadline", "an attempt had none"]);
  if (record.fingerprint) facts.push(["Fingerprint", record.fingerprint]);
  return facts;
}
