// The TypeScript example under Semel; the same handler in a plain Durable Object, which records nothing; and the handler at the bound (bound.js).

import { DurableObject } from "cloudflare:workers";
import served, { Orders, SemelRegistry } from "../../examples/orders-typescript/src/index.ts";
import { UNREAD, boundBy, serveBound } from "./bound.js";

const PLAIN = "/plain";
const BOUND = "/bound";

/** `pathname`: the path with the name of the side in front. */
const ordered = (sql, pathname, body) => Orders.prototype.handle({ sql }, { method: "POST", segments: pathname.split("/").slice(2), json: () => body });
const shopOf = (pathname) => pathname.split("/")[3];

export const BoundOrders = boundBy(Orders.schema[0].replaceAll("CREATE TABLE", "CREATE TABLE IF NOT EXISTS"), ordered);

export class PlainOrders extends DurableObject {
  #hasTables = false;

  async fetch(request) {
    const { pathname } = new URL(request.url);
    const text = await request.text();
    const { sql } = this.ctx.storage;
    const { status, body } = this.ctx.storage.transactionSync(() => {
      if (!this.#hasTables && sql.exec("SELECT 1 FROM sqlite_master WHERE name = 'stock'").toArray().length === 0) sql.exec(Orders.schema[0]);
      return ordered(sql, pathname, JSON.parse(text));
    });
    this.#hasTables = true;
    return Response.json(body, { status });
  }
}

export { Orders, SemelRegistry };
export default {
  fetch(request, env) {
    // Compared as text, without parsing the URL: the Worker of the example does not parse it either.
    const isOf = (beginning) => request.url.includes(`${beginning}/`);
    if (isOf(BOUND) || isOf(UNREAD)) return serveBound(request, env.BOUND, shopOf);
    if (!isOf(PLAIN)) return served.fetch(request, env);
    const { pathname } = new URL(request.url);
    return env.PLAIN.get(env.PLAIN.idFromName(shopOf(pathname))).fetch(request);
  },
};
