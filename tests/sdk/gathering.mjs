// Outboxes that send changes together which may overlap, and calls that make them do so.

import { setImmediate as turn } from "node:timers/promises";
// An outbox loads this module once there is much to send. Here it is loaded from the start.
import "../../sdk/npm/session-node.js";
import { deposit, outbox, until } from "./stub.mjs";

export const MINUTE_MS = 60_000;
/** How many changes at one key are sent at once before the rest is sent together. */
export const AT_ONCE = 4;

/** A deposit that may overlap with others, at a named key. */
export const overlapping = (semel, { account = "a", ...init } = {}) => deposit(semel, account, { key: `accounts/${account}`, ordered: false, ...init });
export const many = (count, make) => Array.from({ length: count }, (_, n) => make(n));
/** The calls in order: their kinds, and for a batch the number of its elements. */
export const made = (server) => server.calls.map(({ kind, json }) => (kind === "batch" ? json.length : kind));

/** Resolves once everything is done that needs no time. */
export async function turns() {
  for (let n = 0; n < 20; n += 1) await turn();
}

/** An outbox that has already loaded what makes it send together. The calls for that are not among the server's calls. */
export async function gathering(t, options) {
  const opened = await outbox(t, options);
  await Promise.all(many(2 * AT_ONCE, () => overlapping(opened.semel, { account: "before" })));
  await turns();
  opened.server.calls.length = 0;
  return opened;
}

/** Makes calls by `make`. The first ones are sent alone, and get no answer before all calls are made; by then, the rest is held back. */
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
