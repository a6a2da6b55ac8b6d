// A Worker in front of an HTTP API that consumes a queue: each message is an order at the API. A test delivers by `POST /deliver`.

import semel from "semel/upstream";
import { consumer } from "semel/upstream/queue";
import { deliver } from "./deliver.js";

export { SemelObject, SemelRegistry } from "semel/upstream";

const CONSUMERS = {
  // Uses the message's own id.
  report: consumer({ path: "/report/orders" }),
  // Uses a member of the body.
  resend: consumer({ path: "/resend/orders", id: "ref" }),
};

export default {
  fetch: (request, env) => (new URL(request.url).pathname === "/deliver" ? deliver(request, env) : semel.fetch(request, env)),
  queue: (batch, env) => CONSUMERS[batch.queue](batch, env),
};
