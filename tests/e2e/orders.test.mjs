// The example of orders with stock, in Rust and in TypeScript: both must pass the same list of cases.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { after, test } from "node:test";
import { ROOT } from "../../scripts/setup/paths.mjs";
import { workerFolder } from "../../scripts/setup/worker.mjs";
import { scriptWorker } from "./script.mjs";
import { serve } from "./server.mjs";

const LINES_MAX = 60;
const EXAMPLES = {
  Rust: { source: "examples/orders-rust/src/lib.rs", folder: workerFolder("orders-rust"), name: "SemelObject" },
  TypeScript: { source: "examples/orders-typescript/src/index.ts", folder: await scriptWorker(after, join(ROOT, "examples/orders-typescript/src/index.ts")), name: "Orders" },
};

for (const [language, { source, folder, name }] of Object.entries(EXAMPLES)) {
  const server = await serve(after, "script", {}, { folder, objects: { SEMEL: name, REGISTRY: "SemelRegistry" } });
  const post = (shop, what, item, quantity, id = randomUUID()) => server.send("POST", `/shops/${shop}/${what}`, { id, body: JSON.stringify({ item, quantity }) });
  const stock = async (shop, item) => (await server.send("GET", `/shops/${shop}/stock/${item}`)).json.quantity;
  const is = (title, work) => test(`${language}: ${title}`, { timeout: 60_000 }, work);

  is("the example has fewer than 60 lines of code", async () => {
    const lines = (await readFile(join(ROOT, source), "utf8")).split("\n").filter((line) => !/^\s*(\/\/.*)?$/.test(line));
    assert.ok(lines.length < LINES_MAX && lines.length > 20, String(lines.length));
  });

  is("an order sent twice at once takes from the stock once, and both attempts get its answer", async () => {
    assert.deepEqual((await post("north", "deliveries", "apple", 10)).json, { quantity: 10 });
    const id = randomUUID();
    const answers = await Promise.all([post("north", "orders", "apple", 3, id), post("north", "orders", "apple", 3, id)]);
    assert.deepEqual(answers.map(({ semel }) => semel).sort(), ["executed", "replayed"]);
    for (const { status, text, headers } of answers) {
      assert.deepEqual([status, text, headers.get("content-type")], [201, '{"order":1,"left":7}', "application/json"]);
      assert.equal(headers.get("semel-key"), '"shops/north"');
    }
    assert.equal(await stock("north", "apple"), 7);
    assert.equal((await post("north", "orders", "apple", 2)).json.order, 2);
  });

  is("each shop has its own stock; an invalid order gets 400 as its outcome, and an unknown path 404", async () => {
    await post("one", "deliveries", "pear", 5);
    await post("other", "deliveries", "pear", 1);
    assert.deepEqual([await stock("one", "pear"), await stock("other", "pear"), await stock("one", "fig")], [5, 1, 0]);
    for (const [item, quantity] of [["pear", 0], ["pear", -1], ["pear", 1.5], ["pear", 2 ** 53], ["pear", "1"], [7, 1], [undefined, 1]]) {
      const answer = await post("one", "orders", item, quantity);
      assert.deepEqual([answer.status, answer.semel, answer.text], [400, "executed", '{"error":"invalid"}']);
    }
    assert.equal((await server.send("POST", "/shops/one/orders", { id: randomUUID(), body: "no JSON" })).status, 400);
    const strange = ["/shops/one/nothing", "/shops/one", "/elsewhere", "/shops/orders", "/shops/one/two/orders", "/shops/one/orders/two"];
    for (const path of strange) {
      const answer = await server.send("POST", path, { id: randomUUID(), body: "{}" });
      assert.deepEqual([answer.status, answer.semel], [404, "not-found"], path);
    }
    for (const path of ["/shops/one/two/stock/pear", "/shops/one/stock/pear/two", "/shops/one/stock", "/shops/stock/pear"]) {
      const answer = await server.send("GET", path);
      assert.deepEqual([answer.status, answer.semel], [404, "not-found"], path);
    }
    const head = await server.send("HEAD", "/shops/one/stock/pear");
    assert.deepEqual([head.status, head.semel, head.text], [200, "read", ""]);
  });

  is("an order refused as out of stock is replayed so under its id, even after a delivery", async () => {
    const id = randomUUID();
    assert.deepEqual((await post("south", "orders", "plum", 1, id)).semel, "executed");
    await post("south", "deliveries", "plum", 5);
    const again = await post("south", "orders", "plum", 1, id);
    assert.deepEqual([again.status, again.semel, again.text], [409, "replayed", '{"error":"out-of-stock"}']);
    assert.equal(await stock("south", "plum"), 5);
  });

  is("a delivery that the database refuses is rolled back and not recorded, and only the log says why", async () => {
    await post("brim", "deliveries", "nut", Number.MAX_SAFE_INTEGER);
    const id = randomUUID();
    for (let time = 0; time < 2; time += 1) {
      const answer = await post("brim", "deliveries", "nut", 1, id);
      assert.deepEqual([answer.status, answer.semel, answer.json.executed, answer.json.retry], [500, "rolled-back", "no", "same-id"]);
      assert.doesNotMatch(answer.text, /CHECK|constraint/i);
    }
    assert.match(await server.lineOf(id, 2), /CHECK constraint failed: quantity <= 9007199254740991/);
    assert.equal(await stock("brim", "nut"), Number.MAX_SAFE_INTEGER);
    await post("brim", "orders", "nut", 1);
    assert.equal((await post("brim", "deliveries", "nut", 1, id)).semel, "executed", "the id is free for what can run");
  });

  is("an order of more than 1,000 gets 400 as its outcome, and one of 1,000 is made", async () => {
    await post("west", "deliveries", "nut", 5000);
    const answer = await post("west", "orders", "nut", 1001);
    assert.deepEqual([answer.status, answer.semel, answer.json], [400, "executed", { error: "invalid" }]);
    assert.equal((await post("west", "orders", "nut", 1000)).json.left, 4000);
  });

  is("a delivery beyond the largest safe integer is rolled back, and the stock stays as it was", async () => {
    assert.deepEqual((await post("full", "deliveries", "rice", Number.MAX_SAFE_INTEGER)).json, { quantity: Number.MAX_SAFE_INTEGER });
    for (const quantity of [1, 2, Number.MAX_SAFE_INTEGER]) assert.equal((await post("full", "deliveries", "rice", quantity)).semel, "rolled-back");
    assert.deepEqual((await post("full", "orders", "rice", 1)).json, { order: 1, left: Number.MAX_SAFE_INTEGER - 1 });
    assert.deepEqual((await post("full", "deliveries", "rice", 1)).json, { quantity: Number.MAX_SAFE_INTEGER });
  });

  is("an order that is sent again after kill -9 has taken from the stock once", async () => {
    await post("east", "deliveries", "fig", 100);
    for (let round = 1; round <= 3; round += 1) {
      const [answered, unanswered] = [randomUUID(), randomUUID()];
      const before = await post("east", "orders", "fig", 1, answered);
      // Nobody knows how far this one has got when the server is killed.
      const lost = post("east", "orders", "fig", 1, unanswered).catch(() => undefined);
      await server.restart();
      await lost;
      const after = await post("east", "orders", "fig", 1, answered);
      assert.deepEqual([before.semel, after.semel, after.text], ["executed", "replayed", before.text]);
      const first = await post("east", "orders", "fig", 1, unanswered);
      assert.equal((await post("east", "orders", "fig", 1, unanswered)).text, first.text);
      assert.equal(await stock("east", "fig"), 100 - 2 * round);
    }
    assert.equal((await post("east", "orders", "fig", 1)).json.order, 7, "no order is there twice");
  });

  is("none of these requests has crashed the module", async () => {
    const last = randomUUID();
    assert.equal((await post("full", "deliveries", "rice", 1, last)).semel, "rolled-back");
    await server.lineOf(last);
    assert.doesNotMatch(server.log, /restarted/);
  });
}
