// `npm run bench`: the protected deposit against the same deposit without protection, and handlers in Rust and TypeScript against
// the latter in a plain Durable Object. On raw workerd.
//
// Invariant: all sides run on one disk, round by round in turn, each beside what it is compared with, and what counts is the ratio: machines
// are noisy, and noise that hits all sides leaves it alone.

import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { change, deposit, throughput } from "../tests/bench/load.mjs";
import { countingWorker } from "../tests/bench/rows.mjs";
import { BUILD, ROOT } from "./setup/paths.mjs";
import { installPackages } from "./setup/packages.mjs";
import { main, step } from "./setup/step.mjs";
import { buildWorker, workerFolder } from "./setup/worker.mjs";

const ROUNDS = 5;
const REQUESTS = 1500;
const WARM_UP_REQUESTS = 500;
const CONNECTIONS = [1, 16, 64];
const OBJECTS = { SEMEL: "SemelObject", NAIVE: "NaiveObject" };
const VARS = { SEMEL_OPEN: "true", SEMEL_TOMBSTONES_MAX: "1000000" };
const ORDERS = { SEMEL: "Orders", REGISTRY: "SemelRegistry", PLAIN: "PlainOrders" };
const RUST = { SEMEL: "SemelObject", REGISTRY: "SemelRegistry" };
const DEPOSIT = { semel: "/accounts/bench/deposit", plain: "/naive/accounts/bench/deposit" };
const ORDER = "/shops/bench/orders";
const DELIVERY = "/shops/bench/deliveries";
/** More than all rounds take. */
const DELIVERED = 1_000_000_000;

await main(async () => {
  await step("npm packages", installPackages);
  for (const worker of ["ledger", "script", "orders-rust"]) await buildWorker(worker);
  const { startWorkerd } = await import("./setup/workerd.mjs");
  const scratch = await mkdtemp(join(tmpdir(), "semel-bench-"));
  const started = [];
  const serve = async (folder, state, objects = OBJECTS) => {
    const server = await startWorkerd({ folder, state: join(scratch, state), objects, vars: VARS });
    started.push(server);
    return server;
  };
  try {
    const { url } = await serve(workerFolder("ledger"), "timed");
    const deposits = Object.entries(DEPOSIT).map(([name, path]) => [name, { url, next: deposit(path) }]);
    await report("deposits", Object.fromEntries(deposits));
    await report("orders", await ordering(serve, scratch));
    await reportRows(await serve(await countingWorker(join(BUILD, "bench")), "counted"));
  } finally {
    await Promise.all(started.map((server) => server.kill()));
    await rm(scratch, { recursive: true, force: true });
  }
});

/** The sides of the handlers, with enough in stock. */
async function ordering(serve, scratch) {
  const { bundled } = await import("../tests/e2e/script.mjs");
  const folder = join(scratch, "orders");
  await bundled(join(ROOT, "tests/bench/orders.js"), folder);
  const [script, rust] = [await serve(folder, "script", ORDERS), await serve(workerFolder("orders-rust"), "rust", RUST)];
  const side = async (url, beginning = "") => {
    const delivered = await fetch(url + beginning + DELIVERY, { method: "POST", headers: { "idempotency-key": "delivery" }, body: JSON.stringify({ item: "apple", quantity: DELIVERED }) });
    if (delivered.status !== 201) throw new Error(`the delivery got ${delivered.status}: ${await delivered.text()}`);
    return { url, next: change(beginning + ORDER, '{"item":"apple","quantity":1}') };
  };
  return { typescript: await side(script.url), rust: await side(rust.url), plain: await side(script.url, "/plain") };
}

/** Prints how fast each side is, and its ratio to the plain one. */
async function report(what, sides) {
  console.log(`\n${what} on one key, requests a second, and of each its ratio to the plain one: medians of ${ROUNDS} rounds of ${REQUESTS} in turn`);
  for (const connections of CONNECTIONS) {
    const rates = await interleaved(sides, connections);
    const columns = Object.entries(rates).map(([name, each]) => {
      const ratio = median(each.map((rate, round) => rate / rates.plain[round]));
      return `${name} ${median(each).toFixed(0)}${name === "plain" ? "" : ` (${ratio.toFixed(2)})`}`;
    });
    console.log(`  ${String(connections).padStart(2)} connections: ${columns.join(", ")}`);
  }
}

async function interleaved(sides, connections) {
  const rates = Object.fromEntries(Object.keys(sides).map((name) => [name, []]));
  const load = (name, requests) => throughput(sides[name].url, { connections, requests, next: sides[name].next });
  for (const name of Object.keys(sides)) await load(name, WARM_UP_REQUESTS);
  for (let round = 0; round < ROUNDS; round += 1) {
    // The side that goes first changes, so that none always finds the disk as another left it.
    const order = round % 2 === 0 ? Object.keys(sides) : Object.keys(sides).reverse();
    for (const name of order) rates[name].push(await load(name, REQUESTS));
  }
  return rates;
}

function median(numbers) {
  return numbers.toSorted((one, other) => one - other)[Math.floor(numbers.length / 2)];
}

/** Rows written in the life of a request: the deposit, and the next one's acknowledgement of it. */
async function reportRows({ url }) {
  console.log("\nrows written by one deposit, of which the ledger's own is one");
  const send = async (path, headers) => {
    const firstSent = `@${Math.floor(Date.now() / 1000)}`;
    const answer = await fetch(url + path, { method: "POST", headers: { "semel-first-sent": firstSent, ...headers }, body: '{"amount":1}' });
    return answer.headers.get("x-rows-written");
  };
  await send(DEPOSIT.plain, {});
  await send(DEPOSIT.semel, { "idempotency-key": "first" });
  console.log(`  plain                              ${await send(DEPOSIT.plain, {})}`);
  console.log(`  semel                              ${await send(DEPOSIT.semel, { "idempotency-key": "second" })}`);
  console.log(`  semel, with one acknowledgement    ${await send(DEPOSIT.semel, { "idempotency-key": "third", "semel-ack": '"second"' })}`);
  console.log(`  semel, replayed                    ${await send(DEPOSIT.semel, { "idempotency-key": "third" })}`);
}
