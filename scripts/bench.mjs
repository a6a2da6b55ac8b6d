// `npm run bench`: the protected deposit against the same deposit without protection, on raw workerd.
//
// Invariant: both sides run in one process on one disk, round by round in turn, and what counts is the ratio: machines
// are noisy, and noise that hits both sides leaves it alone.

import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { deposit, throughput } from "../tests/bench/load.mjs";
import { countingWorker } from "../tests/bench/rows.mjs";
import { BUILD } from "./setup/paths.mjs";
import { installPackages } from "./setup/packages.mjs";
import { main, step } from "./setup/step.mjs";
import { buildWorker, workerFolder } from "./setup/worker.mjs";

const ROUNDS = 5;
const REQUESTS = 1500;
const WARM_UP_REQUESTS = 500;
const OBJECTS = { SEMEL: "SemelObject", NAIVE: "NaiveObject" };
const VARS = { SEMEL_OPEN: "true", SEMEL_TOMBSTONES_MAX: "1000000" };
const SIDES = { semel: "/accounts/bench/deposit", plain: "/naive/accounts/bench/deposit" };

await main(async () => {
  await step("npm packages", installPackages);
  await buildWorker("ledger");
  const { startWorkerd } = await import("./setup/workerd.mjs");
  const scratch = await mkdtemp(join(tmpdir(), "semel-bench-"));
  const started = [];
  const serve = async (folder, state) => {
    const server = await startWorkerd({ folder, state: join(scratch, state), objects: OBJECTS, vars: VARS });
    started.push(server);
    return server;
  };
  try {
    const { url } = await serve(workerFolder("ledger"), "timed");
    console.log(`\ndeposits on one key, requests a second, median of ${ROUNDS} rounds of ${REQUESTS} in turn`);
    console.log("connections   semel   plain   ratio");
    for (const connections of [1, 16]) {
      const rates = await interleaved(url, connections);
      const ratio = median(rates.semel.map((rate, round) => rate / rates.plain[round]));
      const columns = [median(rates.semel).toFixed(0), median(rates.plain).toFixed(0), ratio.toFixed(2)];
      console.log(String(connections).padStart(11) + columns.map((column) => column.padStart(8)).join(""));
    }
    await reportRows(await serve(await countingWorker(join(BUILD, "bench")), "counted"));
  } finally {
    await Promise.all(started.map((server) => server.kill()));
    await rm(scratch, { recursive: true, force: true });
  }
});

async function interleaved(url, connections) {
  const rates = { semel: [], plain: [] };
  for (const path of Object.values(SIDES)) await throughput(url, { connections, requests: WARM_UP_REQUESTS, next: deposit(path) });
  for (let round = 0; round < ROUNDS; round += 1) {
    // The side that goes first changes, so that neither always finds the disk as the other left it.
    const order = round % 2 === 0 ? ["semel", "plain"] : ["plain", "semel"];
    for (const side of order) rates[side].push(await throughput(url, { connections, requests: REQUESTS, next: deposit(SIDES[side]) }));
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
  await send(SIDES.plain, {});
  await send(SIDES.semel, { "idempotency-key": "first" });
  console.log(`  plain                              ${await send(SIDES.plain, {})}`);
  console.log(`  semel                              ${await send(SIDES.semel, { "idempotency-key": "second" })}`);
  console.log(`  semel, with one acknowledgement    ${await send(SIDES.semel, { "idempotency-key": "third", "semel-ack": '"second"' })}`);
  console.log(`  semel, replayed                    ${await send(SIDES.semel, { "idempotency-key": "third" })}`);
}
