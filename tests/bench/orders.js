// The example in TypeScript under Semel, and beside it the same handler in a plain Durable Object, which records nothing.

import { DurableObject } from "cloudflare:workers";
import served, { Orders, SemelRegistry } from "../../examples/orders-typescript/src/index.ts";

const PLAIN = "/plain";

export class PlainOrders extends DurableObject {
  #hasTables = false;

  async fetch(request) {
    const { pathname } = new URL(request.url);
    const segments = pathname.slice(PLAIN.length + 1).split("/");
    const text = await request.text();
    const { sql } = this.ctx.storage;
    const { status, body } = this.ctx.storage.transactionSync(() => {
      if (!this.#hasTables && sql.exec("SELECT 1 FROM sqlite_master WHERE name = 'stock'").toArray().length === 0) sql.exec(Orders.schema[0]);
      return Orders.prototype.handle({ sql }, { method: request.method, segments, json: () => JSON.parse(text) });
    });
    this.#hasTables = true;
    return Response.json(body, { status });
  }
}

export { Orders, SemelRegistry };
export default {
  fetch(request, env) {
    const { pathname } = new URL(request.url);
    if (!pathname.startsWith(`${PLAIN}/`)) return served.fetch(request, env);
    return env.PLAIN.get(env.PLAIN.idFromName(pathname.split("/")[3])).fetch(request);
  },
};
