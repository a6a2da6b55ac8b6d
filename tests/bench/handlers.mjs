// Handlers in Rust and TypeScript against the latter in a plain Durable Object, which records nothing; and the bound beside them.

import { join } from "node:path";
import { ROOT } from "../../scripts/setup/paths.mjs";
import { workerFolder } from "../../scripts/setup/worker.mjs";
import { bundled } from "../e2e/script.mjs";
import { change, load, warmUp } from "./load.mjs";
import { interleaved, median, ratio } from "./rounds.mjs";

const CONNECTIONS = [1, 16, 64];
const SCRIPT = { SEMEL: "Orders", REGISTRY: "SemelRegistry", PLAIN: "PlainOrders", BOUND: "BoundOrders" };
const RUST = { SEMEL: "SemelObject", REGISTRY: "SemelRegistry" };
const ORDER = "/shops/bench/orders";
const DELIVERY = "/shops/bench/deliveries";
/** More than all rounds take. */
const DELIVERED = 1_000_000_000;

export async function handlers({ sides, rounds, forMs }) {
  const folder = await sides.folder("orders");
  await bundled(join(ROOT, "tests/bench/orders.js"), folder);
  const script = await sides.serve(folder, "orders-script", SCRIPT);
  const rust = await sides.serve(workerFolder("orders-rust"), "orders-rust", RUST);
  const orders = { typescript: await stocked(script.url), rust: await stocked(rust.url), bound: await stocked(script.url, "/bound"), plain: await stocked(script.url, "/plain") };
  for (const { url, next } of Object.values(orders)) await warmUp(url, forMs, next);
  const table = [];
  for (const connections of CONNECTIONS) {
    const side = ([name, { url, next }]) => [name, async () => (await load(url, { connections, forMs, of: () => next })).rate];
    const made = await interleaved(Object.fromEntries(Object.entries(orders).map(side)), rounds);
    const [typescript, inRust, bound] = ["typescript", "rust", "bound"].map((name) => ratio(made[name], made.plain));
    table.push({ connections, typescript, rust: inRust, bound, plain: median(made.plain) });
  }
  return { rows: [], handlers: table };
}

/** A side that has enough in stock, and how it is asked for one of it. */
async function stocked(url, beginning = "") {
  const delivered = await fetch(url + beginning + DELIVERY, { method: "POST", headers: { "idempotency-key": "delivery" }, body: JSON.stringify({ item: "apple", quantity: DELIVERED }) });
  if (delivered.status !== 201) throw new Error(`the delivery got ${delivered.status}: ${await delivered.text()}`);
  return { url, next: change(beginning + ORDER, '{"item":"apple","quantity":1}') };
}
