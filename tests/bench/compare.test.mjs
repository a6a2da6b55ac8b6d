// Tests the comparison with other libraries: its faults follow the script, a run that measured nothing is refused, and the README has what was
// recorded.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { request } from "node:http";
import { join } from "node:path";
import { test } from "node:test";
import { ROOT } from "../../scripts/setup/paths.mjs";
import { LOADED, SDK_PACKAGE, brotliBytes } from "../../scripts/setup/sdk.mjs";
import { plainBackend, replicacheBackend } from "./compare/backends.mjs";
import { faultsOfRun } from "./compare/control.mjs";
import { LIBRARIES } from "./compare/libraries.mjs";
import { DOUBLE_CLICKED, ORDERS, faultsOf, scripted } from "./compare/orders.mjs";
import { startOrigin } from "./compare/origin.mjs";
import { lastWords } from "./compare/run.mjs";
import { withTable } from "./compare/table.mjs";
import { tallyOf } from "./compare/tally.mjs";

/** How much the SDK may have grown or shrunk since the comparison was run, as a share. */
const SIZE_SHARE_MAX = 0.05;

const read = (name) => readFile(join(ROOT, name), "utf8");

/** The status of an answer, or "lost". */
function post(url, body = "") {
  return new Promise((resolve) => {
    request(url, { method: "POST", agent: false }, (answer) => answer.resume().on("end", () => resolve(answer.statusCode)))
      .on("error", () => resolve("lost"))
      .end(body);
  });
}

async function origin(t, backend) {
  const started = await startOrigin({ files: {}, backend });
  t.after(() => started.close());
  return started;
}

test("an order meets its faults in turn, attempt by attempt, and then gets through", async (t) => {
  assert.deepEqual(faultsOf(15), ["lose-answer", "lose-request", "unavailable"]);
  const backend = plainBackend();
  const { url, dealt } = await origin(t, backend);
  const effects = await backend.effects();
  const seen = [];
  for (let attempt = 1; attempt <= 4; attempt += 1) seen.push([await post(`${url}/orders/15`), effects.get(15)]);
  assert.deepEqual(seen, [["lost", 1], ["lost", 1], [503, 1], [200, 2]]);
  assert.deepEqual(dealt, { "lose-answer": 1, "lose-request": 1, unavailable: 1, pass: 1 });
});

test("an order that hangs has no answer until it is released, and the script says which of them had their effect", async (t) => {
  const backend = plainBackend();
  const started = await origin(t, backend);
  started.hangs = true;
  const [done, undone] = [ORDERS.inFlight[0], ORDERS.inFlight.at(-1)];
  const waiting = Promise.all([done, undone].map((n) => post(`${started.url}/orders/${n}`)));
  const effects = await backend.effects();
  while (started.attempts < 2 || !effects.has(done)) await new Promise(setImmediate);
  assert.equal(await Promise.race([waiting, post(`${started.url}/orders/2`)]), 200, "another order doesn't wait");
  started.release();
  assert.deepEqual(await waiting, ["lost", "lost"]);
  assert.deepEqual([done, undone].map((n) => effects.get(n)), [1, undefined]);
  assert.equal(await post(`${started.url}/orders/${undone}`), 200);
});

test("Replicache's server runs a mutation once, and only in its turn", async (t) => {
  const backend = replicacheBackend();
  const { url } = await origin(t, backend);
  const push = (...ids) => post(`${url}/push`, JSON.stringify({ clientGroupID: "g", mutations: ids.map((id) => ({ clientID: "c", id, args: DOUBLE_CLICKED[id] })) }));
  assert.deepEqual([await push(1), await push(1, 2), await push(4)], [200, 200, 500]);
  const effects = await backend.effects();
  assert.deepEqual([1, 2, 4].map((id) => effects.get(DOUBLE_CLICKED[id])), [1, 1, undefined]);
});

test("the tally counts the effects at the server apart from what the client was told", () => {
  const wanted = Object.values(ORDERS).flat();
  const [twice, never, wrong, untold] = ORDERS.before;
  const [flying] = ORDERS.inFlight;
  const effects = new Map(wanted.map((n) => [n, 1])).set(twice, 2).set(never, 0);
  const known = (...without) => new Map(wanted.filter((n) => !without.includes(n)).map((n) => [n, n === wrong ? "failed" : "made"]));
  const left = { inFlight: known(flying), offline: known(), end: known(never, untold) };
  assert.deepEqual(tallyOf({ left, effects }), {
    effects: 100,
    repeated: 1,
    lost: 1,
    toldWrongly: 1,
    neverTold: 2,
    refused: 0,
    inFlight: { unfinished: 1, made: 1, answered: 1 },
    offline: { unfinished: 0, made: 0, answered: 0 },
    doubleClicks: 0,
  });
  assert.deepEqual([...lastWords([{ n: 1, word: "queued" }, { n: 2, word: "unknown" }, { n: 3, word: "made" }])], [[3, "made"]]);
});

test("a run without a control, with a harmless one, or with other faults or attempts is refused", () => {
  const control = LIBRARIES.find(({ isControl }) => isControl);
  const run = { library: control, tally: { repeated: 30, lost: 2 }, dealt: { ...scripted(), hang: 2 }, attempts: 157 };
  assert.deepEqual(faultsOfRun([run]), []);
  assert.deepEqual(faultsOfRun([]), ["there is no control"]);
  assert.match(faultsOfRun([{ ...run, tally: { repeated: 0, lost: 2 } }]).join(), /repeated is 0/);
  assert.match(faultsOfRun([{ ...run, attempts: 158 }]).join(), /attempts is 158/);
  assert.match(faultsOfRun([run, { ...run, library: { id: "spared" }, dealt: {} }]).join(), /spared: lose-answer is undefined/);
});

test("the README's table shows the recorded comparison, with every library and the scripted faults", async () => {
  const [readme, text] = await Promise.all([read("README.md"), read("docs/compare.json")]);
  const record = JSON.parse(text);
  assert.equal(withTable(readme, record), readme, "run `npm run bench:compare`");
  assert.deepEqual(record.rows.map(({ id }) => id), LIBRARIES.map(({ id }) => id));
  assert.deepEqual(record.faults, scripted());
  const control = record.rows.find(({ id }) => id === "fetch").tally;
  assert.ok(control.repeated > 0 && control.lost > 0, "the control did harm");
});

test("each library made both orders of every double click, and the recorded size of Semel is within 5 % of the build", async () => {
  const { rows } = JSON.parse(await read("docs/compare.json"));
  for (const { id, tally } of rows) if (tally) assert.equal(tally.doubleClicks, 2 * DOUBLE_CLICKED.length, id);
  const sizes = await Promise.all(LOADED.map((name) => brotliBytes(join(SDK_PACKAGE, name))));
  const built = sizes.reduce((sum, bytes) => sum + bytes);
  const { bytes } = rows.find(({ id }) => id === "semel");
  assert.ok(Math.abs(bytes - built) < SIZE_SHARE_MAX * built, `recorded ${bytes}, built ${built}: run \`npm run bench:compare\``);
});
