// Orders with stock. A shop is a key: `POST /shops/{shop}/deliveries` and `/orders`, `GET /shops/{shop}/stock/{item}`.

import { type Answer, type Context, type HandlerRequest, SemelObject, SemelRegistry, worker } from "semel/worker";

type Line = { item?: unknown; quantity?: unknown };

export class Orders extends SemelObject<Env> {
  static key = "/shops/:shop/*";

  static schema = [
    // The constraints stop what must never happen: a violation undoes everything that the request did. JSON would round a stock past 2^53 - 1.
    `CREATE TABLE stock (item TEXT PRIMARY KEY, quantity INTEGER NOT NULL CHECK (quantity <= 9007199254740991)) STRICT;
     CREATE TABLE orders (number INTEGER PRIMARY KEY, item TEXT NOT NULL, quantity INTEGER NOT NULL CHECK (quantity <= 1000)) STRICT`,
  ];

  handle(ctx: Context, request: HandlerRequest): Answer | null {
    const [, , what, item, ...rest] = request.segments;
    const isRead = request.method === "GET" || request.method === "HEAD";
    if (isRead && what === "stock" && item !== undefined && rest.length === 0) {
      const quantity = number(ctx, "SELECT quantity FROM stock WHERE item = ?", item);
      return { status: 200, body: { quantity: quantity ?? 0 } };
    }
    if (request.method !== "POST" || item !== undefined || (what !== "deliveries" && what !== "orders")) return null;
    // A client's mistake is answered with a 400. An error would be retried again and again.
    const asked = read(request, what === "orders" ? 1000 : Number.MAX_SAFE_INTEGER);
    if (asked === undefined) return { status: 400, body: { error: "invalid" } };
    return what === "orders" ? order(ctx, asked) : deliver(ctx, asked);
  }
}

function read(request: HandlerRequest, most: number): [string, number] | undefined {
  try {
    const { item, quantity } = request.json<Line>();
    if (typeof item === "string" && Number.isSafeInteger(quantity) && Number(quantity) >= 1 && Number(quantity) <= most) return [item, Number(quantity)];
  } catch {
    // The body is not JSON.
  }
  return undefined;
}

function deliver(ctx: Context, [item, quantity]: [string, number]): Answer {
  const delivered = "INSERT INTO stock VALUES (?1, ?2) ON CONFLICT DO UPDATE SET quantity = quantity + ?2 RETURNING quantity";
  return { status: 201, body: { quantity: number(ctx, delivered, item, quantity) } };
}

function order(ctx: Context, [item, quantity]: [string, number]): Answer {
  const taken = "UPDATE stock SET quantity = quantity - ?2 WHERE item = ?1 AND quantity >= ?2 RETURNING quantity";
  const left = number(ctx, taken, item, quantity);
  if (left === undefined) return { status: 409, body: { error: "out-of-stock" } };
  const order = number(ctx, "INSERT INTO orders (item, quantity) VALUES (?, ?) RETURNING number", item, quantity);
  return { status: 201, body: { order, left } };
}

function number(ctx: Context, statement: string, ...values: (string | number)[]): number | undefined {
  const [row] = [...ctx.sql.exec(statement, ...values).raw<[number]>()];
  return row?.[0];
}

export { SemelRegistry };
export default worker(Orders);
