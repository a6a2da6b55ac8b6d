// A Worker that makes orders, behind Semel. Only Semel is bound to this Worker. It calls `order` once for each request id.

import { WorkerEntrypoint } from "cloudflare:workers";

/** A real Worker would have a database here. */
const orders = [];

const json = (status, body) => ({ status, headers: { "content-type": "application/json" }, body: JSON.stringify(body) });

/** Never throws: an exception is no answer, and would leave the request in doubt. So whatever a client can get wrong is answered with a 4xx. */
function itemOf(body) {
  try {
    return JSON.parse(new TextDecoder().decode(body))?.item;
  } catch {
    return undefined;
  }
}

export default class Orders extends WorkerEntrypoint {
  /** `id` is the request id, as in its `Idempotency-Key`. `key` and `principal` are quoted strings. */
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
