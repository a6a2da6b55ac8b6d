// A Worker that consumes a queue of sales at tills. Each message says what its handler does. A test delivers by `POST /deliver`.

import { SemelObject, SemelRegistry, consumer, worker } from "semel/worker";
import { deliver } from "./deliver.js";

export class Tills extends SemelObject {
  static key = "/tills/:till/*";
  // No constraint keeps a sale from being there twice.
  static schema = ["CREATE TABLE sales (sale TEXT NOT NULL, principal TEXT NOT NULL, type TEXT NOT NULL, body TEXT NOT NULL) STRICT"];

  handle(ctx, request) {
    const [, , what, sale] = request.segments;
    if (request.method === "GET") return { status: 200, body: ctx.sql.exec("SELECT * FROM sales ORDER BY rowid").toArray() };
    if (what !== "sales") return null;
    ctx.sql.exec("INSERT INTO sales VALUES (?, ?, ?, ?)", sale ?? "", ctx.principal, request.headers.get("content-type"), request.text());
    const does = request.headers.get("content-type") === "application/json" ? (request.json().does ?? "") : "";
    if (does === "throws") throw new Error("told to throw");
    if (does.startsWith("waits") && ctx.sql.exec("SELECT 1 FROM sales WHERE sale = 'open'").toArray().length === 0) throw new Error("the till is not open");
    if (does === "unknown") return null;
    if (does === "refuses at length") return { status: 409, body: "sold out ".repeat(100_000) };
    if (does.endsWith("refuses")) return { status: 409, body: { error: "sold out" } };
    if (does.endsWith("refuses-in-quotes")) return { status: 409, body: { error: '"'.repeat(60) } };
    return { status: 201 };
  }
}

const tills = worker(Tills);
const SALES = { path: "/tills/{till}/sales/{sale}" };

/** A consumer whose cancellations of messages go through `between(object, message, cancel)`, where `message` and `cancel` are calls to the object. */
const cancelling = (options, between) => (batch, env) => {
  const objectOf = (id) => {
    const object = env.SEMEL.get(id);
    let message;
    return {
      ask: (...call) => {
        if (call[1].endsWith("/cancel")) return between(object, message, call);
        message = call;
        return object.ask(...call);
      },
      askAll: (calls) => object.askAll(calls),
    };
  };
  const objects = new Map();
  const get = (id) => objects.get(id.name) ?? objects.set(id.name, objectOf(id)).get(id.name);
  return consumer(options)(batch, { ...env, SEMEL: { idFromName: (name) => env.SEMEL.idFromName(name), get } });
};

/** Calls that are still on their way to their object, although their consumer got no answer. */
const onItsWay = [];

const CONSUMERS = {
  // Uses the message's own id.
  sales: consumer(SALES),
  // Uses a member of the body.
  named: consumer({ ...SALES, id: "sale" }),
  plain: consumer({ path: () => "/tills/plain/sales", id: (body, { id }) => `plain \\ "${id}"` }),
  inherited: consumer({ path: "/tills/{till}/sales/x", id: "constructor" }),
  nowhere: consumer({ path: ({ path }) => path }),
  unlettered: consumer({ ...SALES, deadLetters: "NOTHING" }),
  patient: consumer({ ...SALES, deliveries: 5 }),
  limited: consumer({ ...SALES, deliveries: 9, retries: 4 }),
  // The cancellation arrives, but its answer is lost.
  unheard: cancelling({ ...SALES, retries: 4 }, async (object, _, cancel) => {
    await object.ask(...cancel);
    throw new Error("the answer is lost");
  }),
  // Even the cancellation never arrives.
  uncancelled: cancelling({ ...SALES, retries: 4 }, async () => {
    throw new Error("nothing arrives");
  }),
  // The message arrives later than its consumer waits.
  late: (batch, env) => {
    const later = { idFromName: (name) => env.SEMEL.idFromName(name), get: (id) => ({ ask: async (...call) => Promise.reject(new Error(`no answer came, and ${onItsWay.push([id, call])} are on their way`)) }) };
    return consumer(SALES)(batch, { ...env, SEMEL: later });
  },
  arriving: async (_, env) => {
    for (const [id, call] of onItsWay.splice(0)) await env.SEMEL.get(id).ask(...call);
  },
  // Another delivery of the same message comes first, while the till is open.
  raced: cancelling(SALES, async (object, message, cancel) => {
    const [method, pathname, search, lines, body] = message;
    const open = (text) => text.replace(/sales\/[^/]*$/, "sales/open");
    await object.ask(method, open(pathname), search, lines.replace(/idempotency-key:"/, '$&open-'), body);
    await object.ask(...message);
    return object.ask(...cancel);
  }),
};

export { SemelRegistry };
export default {
  fetch: (request, env) => (new URL(request.url).pathname === "/deliver" ? deliver(request, env) : tills.fetch(request, env)),
  queue: (batch, env) => CONSUMERS[batch.queue](batch, env),
};
