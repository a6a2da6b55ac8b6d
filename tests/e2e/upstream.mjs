// A deployment in front of an HTTP API, with a path for each policy of what is in doubt. For tests of what comes of such requests.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { serve } from "./server.mjs";

export const POLICIES = {
  report: { inDoubt: "report" },
  resend: { inDoubt: "resend", dedupSeconds: 60 },
  probe: { inDoubt: "probe", probe: "/orders/{body.ref}", settleSeconds: 1 },
};
/** A route for each policy. */
const ROUTES = Object.entries(POLICIES).map(([name, policy]) => ({ path: `/${name}/orders`, methods: ["POST"], ...policy }));
export const HASHED = { path: "/hashed/orders", idFrom: ["body"] };
/** A route whose clients send no ids. The other side knows the ids that Semel makes. */
const HASHED_AGAIN = { path: "/hashed-again/orders", idFrom: ["body.ref"], inDoubt: "resend", dedupSeconds: 60 };

/** Starts a deployment in front of a side. `after` is node:test's. */
export function front(after, side, vars = {}, more = {}) {
  const settings = { SEMEL_UPSTREAM: side.url, SEMEL_UPSTREAM_ROUTES: JSON.stringify([...ROUTES, HASHED, HASHED_AGAIN]), SEMEL_UPSTREAM_AUTHORIZATION: "Bearer of-the-other-side", ...vars };
  return serve(after, "upstream", settings, { reachesLocal: true, ...more });
}

/** Sends an order to the route of a policy. */
export const order = (to, policy, ref, { id = randomUUID(), headers, ...rest } = {}) =>
  to.send("POST", `/${policy}/orders`, { id, body: JSON.stringify({ ref }), headers: { "content-type": "application/json", ...headers }, ...rest });

/** Sends again and again, as a client does, until the answer is final. */
export async function settled(send) {
  const untilMs = Date.now() + 20_000;
  for (;;) {
    const answer = await send();
    if (!["in-flight", "unavailable", "locked"].includes(answer.semel)) return answer;
    assert.ok(Date.now() < untilMs, "it is never settled");
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
}
