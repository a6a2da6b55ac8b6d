// A Worker that makes orders, behind Semel. It is asked by a call, once for each request id, and only Semel is bound to it.

import { WorkerEntrypoint } from "cloudflare:workers";

/** Where yours has a database. */
const orders = [];

const json = (status, body) => ({ status, headers: { "content-type": "application/json" }, body: JSON.stringify(body) });

/** What it throws would be no answer, and leave the request in doubt: whatever a client can get wrong is a 4xx. */
function itemOf(body) {
  try {
    return JSON.parse(new TextDecoder().decode(body))?.item;
  } catch {
    return undefined;
  }
}

export default class Orders extends WorkerEntrypoint {
  /** `id` is the request's, as in its `Idempotency-Key`; `key` and `principal` are text in quotes. */
  async order({ method, path, principal, body }) {
    if (path !== "/orders" || !["GET", "POST"].includes(method)) return json(404, { error: "not-found" });
    if (method === "GET") return json(200, orders);
    const item = itemOf(body);
    if (typeof item !== "string") return json(400, { error: "no-item" });
    const order = { number: orders.length + 1, item, by: principal };
    orders.push(order);
    return json(201, order);
  }
}
