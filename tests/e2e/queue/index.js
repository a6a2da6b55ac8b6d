// A Worker that consumes a queue: sales of tills, each of which says what its handler does with it. A test delivers by `POST /deliver`.

import { SemelObject, SemelRegistry, consumer, worker } from "semel/worker";
import { deliver } from "./deliver.js";

export class Tills extends SemelObject {
  static key = "/tills/:till/*";
  // Nothing here keeps a sale from being there twice.
  static schema = ["CREATE TABLE sales (sale TEXT NOT NULL, principal TEXT NOT NULL, type TEXT NOT NULL, body TEXT NOT NULL) STRICT"];

  handle(ctx, request) {
    const [, , what, sale] = request.segments;
    if (request.method === "GET") return { status: 200, body: ctx.sql.exec("SELECT * FROM sales ORDER BY rowid").toArray() };
    if (what !== "sales") return null;
    ctx.sql.exec("INSERT INTO sales VALUES (?, ?, ?, ?)", sale ?? "", ctx.principal, request.headers.get("content-type"), request.text());
    const does = request.headers.get("content-type") === "application/json" ? request.json().does : undefined;
    if (does === "throws") throw new Error("told to throw");
    if (does === "refuses") return { status: 409, body: { error: "sold out" } };
    return { status: 201 };
  }
}

const tills = worker(Tills);
const CONSUMERS = {
  // By the message's own id.
  sales: consumer({ path: "/tills/{till}/sales/{sale}" }),
  // By a member.
  named: consumer({ path: "/tills/{till}/sales/{sale}", id: "sale" }),
  plain: consumer({ path: () => "/tills/plain/sales", id: (body, { id }) => `plain \\ "${id}"` }),
  inherited: consumer({ path: "/tills/{till}/sales/x", id: "constructor" }),
  nowhere: consumer({ path: ({ path }) => path }),
  unlettered: consumer({ path: "/tills/{till}/sales/{sale}", deadLetters: "NOTHING" }),
  patient: consumer({ path: "/tills/{till}/sales/{sale}", deliveries: 5 }),
  limited: consumer({ path: "/tills/{till}/sales/{sale}", deliveries: 9, retries: 4 }),
};

export { SemelRegistry };
export default {
  fetch: (request, env) => (new URL(request.url).pathname === "/deliver" ? deliver(request, env) : tills.fetch(request, env)),
  queue: (batch, env) => CONSUMERS[batch.queue](batch, env),
};
