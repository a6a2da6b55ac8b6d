// Compares handlers in Rust and TypeScript with the one in TypeScript in a plain Durable Object, which records nothing; and with the bound, read and
// unread (bound.js).

import { join } from "node:path";
import { ROOT } from "../../scripts/setup/paths.mjs";
import { workerFolder } from "../../scripts/setup/worker.mjs";
import { bundled } from "../e2e/script.mjs";
import { change, load, warmUp } from "./load.mjs";
import { each, ofRound } from "./starts.mjs";
import { interleaved, median, ratio } from "./rounds.mjs";

const CONNECTIONS = [1, 16, 64];
const SCRIPT = { SEMEL: "Orders", REGISTRY: "SemelRegistry", PLAIN: "PlainOrders", BOUND: "BoundOrders" };
const RUST = { SEMEL: "SemelObject", REGISTRY: "SemelRegistry" };
const ORDER = "/shops/bench/orders";
const DELIVERY = "/shops/bench/deliveries";
/** More than all rounds order. */
const DELIVERED = 1_000_000_000;

export async function handlers({ sides, rounds, forMs }) {
  const folder = await sides.folder("orders");
  await bundled(join(ROOT, "tests/bench/orders.js"), folder);
  const starts = await each(async (start) => {
    const script = await sides.serve(folder, `orders-script-${start}`, SCRIPT);
    const rust = await sides.serve(workerFolder("orders-rust"), `orders-rust-${start}`, RUST);
    const orders = { typescript: await stocked(script.url), rust: await stocked(rust.url) };
    for (const name of ["bound", "unread", "plain"]) orders[name] = await stocked(script.url, `/${name}`);
    for (const { url, next } of Object.values(orders)) await warmUp(url, forMs, next);
    return orders;
  });
  const table = [];
  for (const connections of CONNECTIONS) {
    const rateOf = async ({ url, next }) => (await load(url, { connections, forMs, of: () => next })).rate;
    const side = (name) => [name, (round) => rateOf(ofRound(starts, round)[name])];
    const made = await interleaved(Object.fromEntries(Object.keys(starts[0]).map(side)), rounds);
    const [typescript, inRust, bound, unread] = ["typescript", "rust", "bound", "unread"].map((name) => ratio(made[name], made.plain));
    table.push({ connections, typescript, rust: inRust, bound, unread, plain: median(made.plain) });
  }
  return { rows: [], handlers: table };
}

/** A side that has enough in stock, and the request that orders one. */
async function stocked(url, beginning = "") {
  const delivered = await fetch(url + beginning + DELIVERY, { method: "POST", headers: { "idempotency-key": `delivery${beginning.replace("/", "-")}` }, body: JSON.stringify({ item: "apple", quantity: DELIVERED }) });
  if (delivered.status !== 201) throw new Error(`the delivery got ${delivered.status}: ${await delivered.text()}`);
  return { url, next: change(beginning + ORDER, '{"item":"apple","quantity":1}') };
}
