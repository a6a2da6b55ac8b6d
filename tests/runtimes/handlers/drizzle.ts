// A handler that keeps stock with Drizzle's driver for Durable Objects. Every call of that driver answers synchronously.

import { eq, sql } from "drizzle-orm";
import { type DrizzleSqliteDODatabase, drizzle } from "drizzle-orm/durable-sqlite";
import { integer, sqliteTable, text } from "drizzle-orm/sqlite-core";
import { type Answer, type Context, type HandlerRequest, SemelObject, SemelRegistry, worker } from "semel/worker";

const stock = sqliteTable("stock", { item: text().primaryKey(), quantity: integer().notNull() });
const orders = sqliteTable("orders", { number: integer().primaryKey({ autoIncrement: true }), item: text().notNull(), quantity: integer().notNull() });

export class Shop extends SemelObject<Env> {
  static key = ({ segments }: { segments: readonly string[] }) => segments[0] ?? null;
  static schema = [
    `CREATE TABLE stock (item TEXT PRIMARY KEY, quantity INTEGER NOT NULL CHECK (quantity >= 0));
     CREATE TABLE orders (number INTEGER PRIMARY KEY AUTOINCREMENT, item TEXT NOT NULL, quantity INTEGER NOT NULL)`,
  ];

  #db: DrizzleSqliteDODatabase<{ stock: typeof stock; orders: typeof orders }> = drizzle(this.ctx.storage, { schema: { stock, orders } });

  handle(_ctx: Context, request: HandlerRequest): Answer | null {
    const db = this.#db;
    const [, what] = request.segments;
    const { item, quantity } = request.method === "GET" ? { item: "", quantity: 0 } : request.json<{ item: string; quantity: number }>();
    switch (what) {
      case "stock":
        return { status: 200, body: { stock: db.select().from(stock).all(), orders: db.query.orders.findMany().sync() } };
      case "deliveries":
        db.insert(stock).values({ item, quantity }).onConflictDoUpdate({ target: stock.item, set: { quantity: sql`quantity + ${quantity}` } }).run();
        return { status: 201, body: db.select().from(stock).where(eq(stock.item, item)).get() };
      case "orders": {
        const order = db.transaction((tx) => {
          tx.update(stock).set({ quantity: sql`quantity - ${quantity}` }).where(eq(stock.item, item)).run();
          return tx.insert(orders).values({ item, quantity }).returning().get();
        });
        return { status: 201, body: order };
      }
      case "tries":
        // A rollback in a transaction of the handler undoes only that transaction.
        try {
          db.transaction((tx) => {
            tx.insert(orders).values({ item, quantity }).run();
            tx.rollback();
          });
        } catch {
          db.insert(orders).values({ item: `not ${item}`, quantity }).run();
        }
        return { status: 201 };
      case "awaited":
        // For another driver, a handler would be written like this. Where the types don't catch it, it is refused at run time.
        return db.select().from(stock).then((rows) => ({ status: 200, body: rows })) as unknown as Answer;
      case "awaited-inside":
        void db.transaction(async (tx) => {
          await tx.insert(orders).values({ item, quantity });
        });
        return { status: 201 };
      default:
        return null;
    }
  }
}

export { SemelRegistry };
export default worker(Shop);
