// `npm run bench`: measures how fast Semel is, against the same work in a plain Durable Object without protection. Both run on raw workerd, on one
// machine. Writes the table and the plots of docs/performance.md.
//
// Invariants:
// - The two sides run in turn, round by round. What counts is their ratio.
// - Only a full run of all parts writes into the documents. With --json, nothing is written at all.
// - The exit code is 2 for wrong usage. A missed bound is no failure: the table shows it.

import { tmpdir } from "node:os";
import { parseArgs } from "node:util";
import { CHARTS, installPackages } from "./setup/packages.mjs";
import { main, step } from "./setup/step.mjs";

const NAMES = ["connections", "keys", "bound", "many", "sdk", "latency", "browser", "rows", "records", "memory", "handlers"];
const USAGE = `npm run bench -- [--json] [--profile] [--only PART[,PART]] [--rounds N] [--seconds S] [--sdk-requests N] [--records N]
  --json          prints JSON, and progress on stderr
  --profile       profiles instead: both sides and the bound with 1 connection, 16, and 64 keys; what is collected at half of the peak load; and a page
  --only          some parts of: ${NAMES.join(", ")}
  --rounds        1 to 99, 15 unless said
  --seconds       that a round of a side lasts: above 0, at most 60; 0.5 unless said
  --sdk-requests  that the SDK in Node makes in all rounds: 1 to 1000000, 100000 unless said
  --records       at the fullest key: 1000 to 1000000, 1000000 unless said
A run that leaves something out, or makes less of it, writes nothing into docs/.`;
/** Many short rounds, because other load on a machine comes and goes within seconds. */
const FULL = { rounds: 15, seconds: 0.5, "sdk-requests": 100_000, records: 1_000_000 };
/** How many calls of a page are profiled, for each second of a round. */
const CALLS_A_SECOND = 2_000;

const asked = settings(process.argv.slice(2));
if (typeof asked === "string") {
  console.error(`${asked}\n\n${USAGE}`);
  process.exitCode = 2;
} else {
  await main(() => bench(asked));
}

/** Returns the settings, or a text that says what is wrong with them. */
function settings(args) {
  const text = { type: "string" };
  const options = { json: { type: "boolean", default: false }, profile: { type: "boolean", default: false }, only: text, ...Object.fromEntries(Object.keys(FULL).map((name) => [name, text])) };
  let values;
  try {
    ({ values } = parseArgs({ args, options }));
  } catch ({ message }) {
    return message;
  }
  const only = values.only === undefined ? NAMES : values.only.split(",");
  const unknown = only.find((name) => !NAMES.includes(name));
  if (unknown !== undefined) return `there is no part ${JSON.stringify(unknown)}`;
  const most = { rounds: 99, seconds: 60, "sdk-requests": 1_000_000, records: 1_000_000 };
  const least = { rounds: 1, seconds: 0.01, "sdk-requests": 1, records: 1_000 };
  const numbers = {};
  for (const [name, full] of Object.entries(FULL)) {
    const given = values[name] ?? String(full);
    const number = Number(given);
    const isWhole = name === "seconds" || Number.isInteger(number);
    if (!/^\d+(\.\d+)?$/.test(given) || !isWhole || number < least[name] || number > most[name]) return `--${name} is ${JSON.stringify(given)}`;
    numbers[name] = number;
  }
  const isFull = only.length === NAMES.length && Object.entries(FULL).every(([name, full]) => numbers[name] >= full);
  return { isJson: values.json, isProfile: values.profile, only, isFull, ...numbers };
}

async function bench({ isJson, isProfile, only, isFull, ...numbers }) {
  const { stdout, stderr } = process;
  const print = stdout.write.bind(stdout);
  // Progress must not get into the JSON.
  if (isJson) stdout.write = (...args) => stderr.write(...args);
  const writes = isFull && !isJson && !isProfile;
  await step("npm packages", installPackages);
  if (writes) await step("npm packages for plots", () => installPackages(CHARTS));
  const { buildWorker } = await import("./setup/worker.mjs");
  if (isProfile) return profile(buildWorker, numbers);
  for (const worker of ["ledger", "script", "orders-rust"]) await buildWorker(worker);
  if (only.includes("browser") || only.includes("sdk")) await (await import("./setup/sdk.mjs")).buildSdk();
  const { measured } = await import("../tests/bench/measured.mjs");
  const record = await measured(only, numbers, step);
  if (isJson) return void print(`${JSON.stringify(record, undefined, 2)}\n`);
  const { writeDocument, tables } = await import("../tests/bench/report.mjs");
  console.log(`\n${tables(record)}`);
  if (writes) {
    await writeDocument(record);
    console.log("\ndocs/performance.md, docs/performance.json and the plots are written");
  }
}

/** Prints what the time of a request is spent on. */
async function profile(buildWorker, { seconds }) {
  await buildWorker("ledger");
  await (await import("./setup/sdk.mjs")).buildSdk();
  const { Sides } = await import("../tests/bench/sides.mjs");
  const { profiles } = await import("../tests/bench/profile.mjs");
  const { collections } = await import("../tests/bench/collections.mjs");
  const { pageProfile } = await import("../tests/bench/page-profile.mjs");
  const sides = await Sides.on(tmpdir());
  const ends = [() => sides.end()];
  const forMs = seconds * 1000;
  try {
    const parts = [
      () => profiles(sides, forMs),
      () => collections(sides, forMs),
      async () => pageProfile((end) => ends.unshift(end), (await sides.ledger({ state: "ledger-page" })).url, Math.ceil(CALLS_A_SECOND * seconds)),
    ];
    for (const part of parts) console.log((await part()).join("\n"));
  } finally {
    for (const end of ends) await end();
  }
}
