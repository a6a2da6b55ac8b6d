// Outboxes that send together what may overlap, and calls that make them do it.

import { setImmediate as turn } from "node:timers/promises";
// The outbox loads it once there is much to send; here it is there at once.
import "../../sdk/npm/session-node.js";
import { deposit, outbox, until } from "./stub.mjs";

export const MINUTE_MS = 60_000;
/** So many go at once at a key, each by itself. */
export const AT_ONCE = 4;

/** A deposit that may overlap, at a key that it names. */
export const overlapping = (semel, { account = "a", ...init } = {}) => deposit(semel, account, { key: `accounts/${account}`, ordered: false, ...init });
export const many = (count, make) => Array.from({ length: count }, (_, n) => make(n));
/** What was called, in order: a batch as how many are in it. */
export const made = (server) => server.calls.map(({ kind, json }) => (kind === "batch" ? json.length : kind));

/** Whatever needs no time has been done by then. */
export async function turns() {
  for (let n = 0; n < 20; n += 1) await turn();
}

/** An outbox that has loaded what makes attempts go together. What it takes for that is not among the calls. */
export async function gathering(t, options) {
  const opened = await outbox(t, options);
  await Promise.all(many(2 * AT_ONCE, () => overlapping(opened.semel, { account: "before" })));
  await turns();
  opened.server.calls.length = 0;
  return opened;
}

/** Makes calls, by `make`: the first go by themselves, and hear nothing before all are made; by then, the rest is held. */
export async function burst({ semel, server }, count, make = () => overlapping(semel)) {
  const { each } = server;
  let [open, sent] = [undefined, 0];
  const all = new Promise((resolve) => (open = resolve));
  server.each = async (call, serve) => {
    if (call.kind === "change") await all;
    return each(call, serve);
  };
  const counted = () => (sent += 1);
  semel.addEventListener("attempt", counted);
  const calls = [];
  for (const upTo of [AT_ONCE, count]) {
    while (calls.length < upTo) calls.push(make(calls.length));
    await until(() => sent >= upTo, "they are on their way");
    await turns();
  }
  semel.removeEventListener("attempt", counted);
  open();
  server.each = each;
  return Promise.all(calls);
}
