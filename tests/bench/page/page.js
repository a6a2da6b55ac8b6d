// Measures how long a call of `semel.fetch` takes in a browser, and what it can't do without: the same request by `fetch`, and one write of the SDK's
// own
// store, each alone, and one after the other. The last one counts, because a browser that has just answered a request takes longer for a write than an
// idle one. And the same call by hand, which shows what is left for an SDK: see bound.js.
//
// Clocks in pages are coarse, so many calls in a row are timed together.

import { Semel } from "semel";
import { openBound } from "./bound.js";
// The SDK's own module of its store, on its own.
import { indexedDbStore } from "/js/indexeddb.js";

/** As long as the row of a small request. */
const ROW = new Uint8Array(300);
const DURABILITY = "strict";

let sides;

window.bench = {
  async open(url) {
    const semel = await Semel.open({ url, durability: DURABILITY });
    const store = indexedDbStore("bench", DURABILITY);
    const path = "/accounts/page/deposit";
    const body = '{"amount":1}';
    const send = async (id, before, sent) => {
      const now = Date.now();
      const own = { "idempotency-key": `"${id}"`, "semel-first-sent": `@${Math.floor(now / 1000)}`, "semel-deadline": String(now + 10_000), "semel-principal": '""' };
      const acks = before && { "semel-ack": `"${before}";until=${now + 10_000}` };
      return fetch(url + path, { method: "POST", headers: { ...own, ...acks }, body: sent, redirect: "manual" });
    };
    const bound = await openBound(DURABILITY, ROW);
    let before;
    sides = {
      semel: async () => (await semel.fetch(path, { method: "POST", body })).text(),
      async fetch() {
        const id = crypto.randomUUID();
        const answer = send(id, before, body);
        before = id;
        return (await answer).text();
      },
      bound: async () => (await bound(body, send)).text(),
      store: () => store.change(crypto.randomUUID(), () => ROW),
      async both() {
        await sides.store();
        return sides.fetch();
      },
    };
  },

  /** Resolves to the ms that one call of a side takes, as a mean over `calls` in a row. */
  async timed(side, calls) {
    const startedMs = performance.now();
    for (let call = 0; call < calls; call += 1) await sides[side]();
    return (performance.now() - startedMs) / calls;
  },
};
