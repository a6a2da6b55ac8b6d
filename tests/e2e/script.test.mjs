// What a handler in JavaScript may do, even the worst, and what its callers get. On workerd. `script-class.test.mjs` has its class.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { join } from "node:path";
import { after, test } from "node:test";
import { ROOT } from "../../scripts/setup/paths.mjs";
import { workerFolder } from "../../scripts/setup/worker.mjs";
import { until } from "./lossy.mjs";
import { scriptWorker } from "./script.mjs";
import { serve } from "./server.mjs";

const LIMIT = { timeout: 60_000 };
const folder = await scriptWorker(after, join(ROOT, "tests/e2e/script/index.js"));
const server = await serve(after, "script", {}, { folder, objects: { SEMEL: "Probe", REGISTRY: "SemelRegistry" } });
const change = (path, options = {}) => server.send("POST", path, { id: randomUUID(), ...options });
/** How many changes were kept. The read that asks counts itself too, but that is rolled back. */
const runs = async () => (await server.send("GET", "/runs")).json - 1;

async function keeps(count, work) {
  const before = await runs();
  await work();
  assert.equal(await runs(), before + count);
}

/** Checks that a change fails, that only the log has the `reason`, and that the module was not restarted. */
async function failsWith(path, reason) {
  const id = randomUUID();
  const answer = await change(path, { id });
  assert.deepEqual([answer.status, answer.semel, answer.json.executed, answer.json.retry], [500, "rolled-back", "no", "same-id"], path);
  assert.doesNotMatch(answer.text, reason, path);
  assert.match(await server.lineOf(id), reason, path);
  assert.doesNotMatch(server.log, /restarted/, path);
}

test("whatever a handler throws undoes its writes, is told in the log only, and does not restart the module", LIMIT, () =>
  keeps(0, async () => {
    await failsWith("/throws/error", /the reason is nobody's business.*index\.js/);
    await failsWith("/throws/null", /the handler failed: null/);
    await failsWith("/throws/undefined", /the handler failed: undefined/);
    await failsWith("/throws/worst", /what was thrown can't be told as text/);
    await failsWith("/throws/range", /RangeError: Maximum call stack size exceeded/);
    await failsWith("/throws/trap", /RuntimeError: unreachable/);
    await failsWith("/throws/sql", /no such table: nowhere/);
    await failsWith("/throws/cause", /the handler failed: Error: there is one of that name, so Error: no order was placed/);
  }));

test("an id whose handler fails five times is rolled-back each time, and never poisoned", LIMIT, async () => {
  const id = randomUUID();
  for (let time = 0; time < 5; time += 1) assert.equal((await change("/throws/range", { id })).semel, "rolled-back");
});

test("a handler that returns a promise is rolled-back, the log says why, and its later writes are not written", LIMIT, () =>
  keeps(0, async () => {
    const why = /handle gave a promise: it has to answer at once, without async and await: .*another commit.*belongs into the Worker's fetch/;
    for (const path of ["/answers/promise", "/answers/thenable", "/answers/rejected", "/calls", "/late"]) await failsWith(path, why);
    assert.match((await server.send("GET", "/told")).text, /ctx\.sql is of a request that has its answer/);
  }));

test("an answer with an invalid form, status, header or body is rolled-back, and the log says why", LIMIT, () =>
  keeps(0, async () => {
    const wrong = {
      nothing: /handle gave nothing: an answer is/,
      text: /handle gave a string/,
      response: /handle gave a Response/,
      status: /handle gave the status \\"200\\": it is a number/,
      "no-status": /handle gave the status undefined/,
      fraction: /handle gave the status 200\.5/,
      beyond: /handle gave the status 65736/,
      "header-break": /header x-bad a line break/,
      "header-name": /header with the name .*x bad/,
      "header-type": /header x-bad a object/,
      stream: /the body is or has \[object ReadableStream\]/,
      map: /the body is or has \[object Map\]/,
      "body-promise": /the body is or has \[object Promise\]/,
      bigint: /BigInt/,
      nan: /the body is or has NaN/,
      function: /the body is or has \[object Function\]/,
      "bytes-inside": /the body is or has \[object ArrayBuffer\]/,
      blob: /the body is or has \[object ArrayBuffer\]: it is text, a Uint8Array, or what JSON can hold/,
      "map-inside": /the body is or has \[object Map\]/,
      "nan-inside": /the body is or has NaN/,
      "function-inside": /the body is or has \[object Function\]/,
      "symbol-inside": /the body is or has \[object Symbol\]/,
      "undefined-inside": /the body is or has \[object Undefined\]/,
      "headers-text": /headers that are a string/,
      "no-json": /its toJSON gives nothing/,
      redirect: /302 was answered, which is no outcome: 200 to 299 is one, and 400 to 499/,
      large: /the handler's body has 1048577 bytes, more than 1048576/,
      "with-204": /the handler answered 204 with a body/,
    };
    for (const [name, reason] of Object.entries(wrong)) await failsWith(`/answers/${name}`, reason);
  }));

test("text, bytes and JSON of a handler go out with their content types, and are replayed unchanged", LIMIT, () =>
  keeps(9, async () => {
    const given = {
      json: [200, "application/json", '{"a":[1,null,"\u00e9"]}'],
      array: [200, "application/json", "[]"],
      number: [200, "application/json", "0"],
      date: [200, "application/json", '"1970-01-01T00:00:00.000Z"'],
      text: [200, "text/plain; charset=utf-8", "caf\u00e9"],
      typed: [200, "text/csv", "a,b"],
      bytes: [200, null, Buffer.from([0, 255]).toString()],
      headers: [404, null, ""],
      empty: [204, null, ""],
    };
    for (const [name, expected] of Object.entries(given)) {
      const id = randomUUID();
      for (const semel of ["executed", "replayed"]) {
        const { status, headers, text, semel: told } = await change(`/gives/${name}`, { id });
        assert.deepEqual([told, status, headers.get("content-type"), text], [semel, ...expected], name);
        assert.equal(headers.get("x-one"), { bytes: "1, 2", headers: "1" }[name] ?? null);
      }
    }
  }));

/** Checks how many of the messages that a change sends arrive, once none of them waits any more. */
async function arrives(count, path, check, id = randomUUID()) {
  const onShelf = async () => (await server.send("GET", "/runs?key=shelf")).json - 1;
  const before = await onShelf();
  await check(await change(path, { id }));
  await until(async () => (await server.admin("GET", "keys/probe/effects")).json.lanes?.length !== 1, "all was sent");
  assert.equal(await onShelf(), before + count, path);
}

test("an effect is sent only if the transaction in which it is emitted is kept, including transactions of the handler", LIMIT, () =>
  keeps(3, async () => {
    const is200 = ({ semel, status }) => assert.deepEqual([semel, status], ["executed", 200]);
    await arrives(0, "/sends/undone", is200);
    await arrives(2, "/sends/undone-first", is200);
    await arrives(2, "/sends/nested", is200);
  }));

test("a key that sends to itself without end keeps nobody else waiting", LIMIT, async () => {
  assert.equal((await change("/sends/endless?key=endless")).semel, "executed");
  await keeps(1, () => change("/gives/text"));
  assert.equal((await change("/sends/ended?key=endless")).semel, "executed");
});

test("ctx.emit throws if it can't emit: a handler may catch that, else the request is rolled-back or too-large", LIMIT, () =>
  keeps(2, async () => {
    const limit = /the handler emits more than 64 requests/;
    await arrives(0, "/sends/caught", ({ semel, text }) => assert.deepEqual([semel, text], ["executed", "ctx.emit: this can't be emitted: the key of /elsewhere is probe, not shelf"]));
    const id = randomUUID();
    await arrives(0, "/sends/wrong", ({ semel }) => assert.equal(semel, "rolled-back"), id);
    assert.match(await server.lineOf(id), /the key of \/elsewhere is probe, not shelf\\n +at .*index\.js/);
    await failsWith("/sends/lossy", /the body is or has \[object Uint8Array\]/);
    await arrives(0, "/sends/too-many", ({ status, semel, json }) => assert.deepEqual([status, semel, limit.test(json.detail)], [413, "too-large", true]));
    await arrives(0, "/sends/too-many-told", ({ semel }) => assert.equal(semel, "rolled-back"));
    await arrives(64, "/sends/too-many-caught", ({ semel, text }) => assert.deepEqual([semel, limit.test(text)], ["executed", true]));
  }));

test("an effect that fails at its target is in the log, with the code of the failure", LIMIT, async () => {
  assert.equal((await change("/sends/failing?key=sender")).semel, "executed");
  const line = JSON.parse(await server.line(/nobody waits for its answer/));
  assert.deepEqual([line.level, line.by, line.code], ["error", "object", "rolled-back"]);
});

test("a handler sees the request, the principal, the key and its clock, and its object, but no Semel-From of a client", LIMIT, async () => {
  const options = { body: "caf\u00e9", headers: { "content-type": "text/plain", "semel-from": '"accounts/ann"' }, as: "alice" };
  const { now, ...seen } = (await change("/echo/a%20b?key=shelf&x=1", options)).json;
  assert.deepEqual(seen, {
    ...{ method: "POST", path: "/echo/a%20b", segments: ["echo", "a b"], query: [["key", "shelf"], ["x", "1"]], type: "text/plain", from: null, bytes: 5, text: "caf\u00e9" },
    ...{ key: "shelf", principal: "alice", id: "shelf", open: "true" },
  });
  assert.ok(Math.abs(now - Date.now()) < 60_000);
});

test("a read writes nothing, and a path for which handle or the key rule gives null is not-found", LIMIT, () =>
  keeps(0, async () => {
    assert.equal((await server.send("GET", "/echo")).semel, "read");
    assert.equal((await server.send("HEAD", "/echo")).text, "");
    assert.deepEqual([(await change("/null")).semel, (await change("/key/null")).semel], ["not-found", "not-found"]);
  }));

test("a key rule that throws, or gives no key, is rolled-back, the log says why, and the module is not restarted", LIMIT, () =>
  keeps(0, async () => {
    // Once this line is read, all that was printed before it has been read too.
    await failsWith("/throws/null", /the handler failed: null/);
    for (const [name, reason] of [["throws", /nobody's business/], ["recurses", /RangeError/], ["promise", /static key gave a promise/], ["nothing", /static key gave nothing/]]) {
      const [id, before] = [randomUUID(), server.log.length];
      const answer = await change(`/key/${name}`, { id });
      assert.deepEqual([answer.status, answer.semel, answer.json.executed, answer.headers.get("semel-key")], [500, "rolled-back", "no", null], name);
      await server.lineOf(id);
      assert.match(server.log.slice(before), reason);
    }
    assert.doesNotMatch(server.log, /restarted/);
  }));

test("the deletion of a key with a half-read table is unavailable first, and executed by the second attempt", LIMIT, async () => {
  assert.equal((await change("/half?key=half")).status, 200);
  const id = randomUUID();
  const remove = () => server.admin("DELETE", "keys/half", { id });
  const [first, second] = [await remove(), await remove()];
  assert.deepEqual([first.semel, first.json.retry, second.semel, second.json.state], ["unavailable", "same-id", "executed", "deleted"]);
  await server.line(/a cursor that was not read to its end/);
  assert.deepEqual((await change("/half?key=half")).json, { n: 1 });
});

test("deleting a key deletes what its handler stores beside the tables, and a replay deletes nothing stored since", LIMIT, async () => {
  const kept = async () => (await server.send("GET", "/kept?key=kept")).json;
  const id = randomUUID();
  assert.equal((await change("/kept?key=kept")).json, 20);
  assert.equal((await server.admin("DELETE", `keys/kept/records/${randomUUID()}`, { id: randomUUID() })).semel, "not-seen");
  assert.equal(await kept(), 20);
  const remove = () => server.admin("DELETE", "keys/kept", { id });
  assert.equal((await remove()).semel, "executed");
  assert.equal(await kept(), 0);
  assert.equal((await change("/kept?key=kept")).json, 20);
  assert.equal((await remove()).semel, "replayed");
  assert.equal(await kept(), 20);
  for (const escaped of ["../%61dmin/k%65ys/kept", "%6Beys/kept"]) {
    await change("/kept?key=kept");
    assert.equal((await server.admin("DELETE", escaped, { id: randomUUID() })).semel, "executed");
    assert.equal(await kept(), 0, escaped);
  }
});

test("a change that runs right after the deletion of its key, in one commit, keeps what it stores beside the tables", LIMIT, async () => {
  let came = 0;
  for (let round = 0; round < 10; round += 1) {
    const key = `together-${round}`;
    const put = (firstSent, id = randomUUID()) => change(`/kept?key=${key}`, { firstSent, id });
    await put();
    const [nowS, ids] = [Math.floor(Date.now() / 1000), Array.from({ length: 8 }, () => randomUUID())];
    // While some are under way, those that come go together. The second half has a later first-sent: the deletion refuses what was first sent before
    // it.
    const before = ids.map(() => put(nowS));
    const removed = server.admin("DELETE", `keys/${key}`, { id: randomUUID() });
    await Promise.all([...before, ...ids.map((id) => put(nowS + 60, id))]);
    assert.equal((await removed).semel, "executed");
    const looks = await Promise.all(ids.map((id) => server.send("GET", `/semel/v1/keys/${key}/outcomes/${id}`)));
    const isThere = looks.some(({ semel }) => semel === "replayed");
    came += Number(isThere);
    assert.equal((await server.send("GET", `/kept?key=${key}`)).json, isThere ? 20 : 0, `round ${round}`);
  }
  assert.ok(came > 0, "some came after it");
});

test("only the writing statements that return rows are read to their end after the handler", async () => {
  const ended = [];
  const cursor = (text) => ({ text, rowsWritten: 1, columnNames: text.includes("RETURNING") ? ["n"] : [], next: () => ({ done: ended.push(text) > 0 }) });
  const storage = { sql: { exec: cursor }, kv: { delete() {} }, transactionSync: (work) => work() };
  class Writes {
    handle({ sql }) {
      for (const text of ["UPDATE many SET n = 1", "UPDATE many SET n = 2 RETURNING n"]) sql.exec(text);
      return { status: 204 };
    }
  }
  const { bind, handle } = await import(join(workerFolder("script"), "script.js"));
  handle(bind(storage, new Writes()), "POST", "https://semel/x", "", new Uint8Array(), 0, "key", "alice", {});
  assert.deepEqual(ended, ["UPDATE many SET n = 2 RETURNING n"]);
});

test("a write that is not read to its end takes full effect, and a handler that fails undoes only its own writes", LIMIT, async () => {
  const many = async (key) => (await server.send("GET", `/many?key=${key}`)).json;
  const kept = {
    first: [[2, 3, 4], { n: 2 }],
    next: [[1, 2, 3, 7, 8, 9], { n: 7 }],
    raw: [[], [1]],
    unread: [[-1, 0, 1], "done"],
    several: [[-1, 0, 1, 7, 8], "done"],
    "its-own": [[-1, 0, 1], { n: -1 }],
    sends: [[-1, 0, 1], { n: -1 }],
    "sends-each": [[-1, 0, 1], "done"],
    "in-json": [[-1, 0, 1], { n: -1 }],
    nested: [[-1, 0, 1], { n: -1 }],
    undone: [[1, 2, 3, 4], "out of stock"],
    puts: [[1, 2, 3], [["one", 1], ["other", 2], ["third", [3]]]],
  };
  for (const [name, [rows, body]] of Object.entries(kept)) {
    const path = `/writes/${name}?key=writes-${name}`;
    assert.equal((await server.send("GET", path)).semel, "read", name);
    assert.deepEqual(await many(`writes-${name}`), [1, 2, 3], name);
    const { semel, text } = await change(path);
    assert.deepEqual([semel, text], ["executed", typeof body === "string" ? body : JSON.stringify(body)], name);
    assert.deepEqual(await many(`writes-${name}`), rows, name);
  }
  const undone = { throws: /out of stock/, "nested-throws": /out of stock/, "late-in-nested": /toArray is not a function/, "over-nested": /internal error.*transactionSync/, unreadable: /not to be read/, promise: /handle gave a promise/, "awaits-in-nested": /a transaction gave a promise: it has to answer at once/ };
  // What these write later is rolled back too, and a promise that nothing has started yet is never started.
  for (const name of ["goes-on-in-nested", "then-in-nested"]) undone[name] = /a transaction gave a promise/;
  for (const name of ["promise-goes-on", "promise-stores"]) undone[name] = /handle gave a promise/;
  // These would need a commit of their own, or are what Semel uses itself.
  for (const name of ["transaction", "deleteAll", "setAlarm", "deleteAlarm"]) undone[name] = new RegExp(`storage\\.${name} is not for handle: .*transactionSync`);
  undone.put = /after both/;
  // Only a promise that nobody waits for would report this failure.
  for (const name of ["puts-wrong", "puts-one-wrong"]) undone[name] = /could not be cloned/;
  assert.equal((await change("/gives/text?key=writes")).semel, "executed", "its tables are there");
  for (const [name, reason] of Object.entries(undone)) await failsWith(`/writes/${name}?key=writes`, reason);
  assert.equal((await change("/writes/null?key=writes")).semel, "not-found");
  assert.deepEqual(await many("writes"), [1, 2, 3]);
  const elements = ["throws", "first", "null", "undone", "next"].map((name) => ({ id: randomUUID(), method: "POST", path: `/writes/${name}?key=writes` }));
  const { json } = await server.send("POST", "/semel/v1/keys/writes/batch", { body: JSON.stringify(elements) });
  assert.deepEqual(json.map(({ headers }) => headers["semel-status"]), ["rolled-back", "executed", "not-found", "executed", "executed"]);
  assert.deepEqual(await many("writes"), [0, 1, 2, 2, 7, 8, 9]);
  assert.equal((await server.send("GET", "/kept?key=writes")).json, 0);
  // Deleting the key is the administrator's to do, and removes this too.
  assert.equal((await change("/kept?key=writes")).json, 20);
  assert.equal((await server.admin("DELETE", "keys/writes", { id: randomUUID() })).semel, "executed");
  assert.equal((await server.send("GET", "/kept?key=writes")).json, 0);
});

test("a rollback of the whole transaction ends the object and undoes the whole commit, even if the handler catches it", LIMIT, async () => {
  const many = async () => (await server.send("GET", "/many?key=rollback")).json;
  assert.equal((await change("/gives/text?key=rollback")).semel, "executed");
  const firstSent = Math.floor(Date.now() / 1000);
  const elements = ["next", "rolls-back", "next"].map((name) => ({ id: randomUUID(), firstSent, method: "POST", path: `/writes/${name}?key=rollback` }));
  const { status, json } = await server.send("POST", "/semel/v1/keys/rollback/batch", { body: JSON.stringify(elements) });
  assert.deepEqual([status, json.code, json.executed], [503, "unavailable", "unknown"]);
  await server.line(/the object failed: Error: .*ROLLBACK undid them/);
  assert.deepEqual(await many(), [1, 2, 3]);
  for (const expected of ["executed", "replayed"]) {
    for (const { id, path } of [elements[0], elements[2]]) assert.equal((await change(path, { id })).semel, expected);
  }
  const { id, path } = elements[1];
  assert.equal((await change(path, { id })).semel, "unavailable");
  assert.deepEqual(await many(), [1, 2, 3, 7, 8, 9, 7, 8, 9]);
  assert.equal((await change("/gives/text")).semel, "executed", "no other key is concerned");
});

test("a conflict that undoes its statement alone ends no object, a rollback does, with foreign keys on or off", LIMIT, async () => {
  for (const key of ["keys-on", "keys-off"]) {
    const written = (name) => change(`/writes/${name}?key=${key}`);
    const { semel, text } = await written("conflicts");
    assert.deepEqual([semel, /UNIQUE constraint failed/.test(text)], ["executed", true], key);
    assert.deepEqual((await server.send("GET", `/many?key=${key}`)).json, [1, 2, 3, 5], key);
    assert.equal((await change(`/gives/text?key=${key}`)).semel, "executed");
    assert.equal((await written("rolls-back")).semel, "unavailable", key);
    assert.deepEqual((await server.send("GET", `/many?key=${key}`)).json, [1, 2, 3, 5], key);
  }
});

/** Sends a batch to one key. None of its requests is a suspect: one that may have crashed an earlier object. */
function batchOf(key, paths) {
  const firstSent = Math.floor(Date.now() / 1000);
  const elements = paths.map((path) => ({ id: randomUUID(), firstSent, method: "POST", path: `${path}?key=${key}` }));
  return server.send("POST", `/semel/v1/keys/${key}/batch`, { body: JSON.stringify(elements) });
}

test("a handler that calls its own Worker disturbs no request of its batch, and its call is executed afterwards", LIMIT, async () => {
  const id = randomUUID();
  assert.equal((await change("/gives/text?key=asks")).semel, "executed");
  const { json } = await batchOf("asks", ["/gives/json", `/serves/${id}`, "/gives/json"]);
  assert.deepEqual(json.map(({ status, body }) => [status, body]), [[200, '{"a":[1,null,"\u00e9"]}'], [200, "asked for"], [200, '{"a":[1,null,"\u00e9"]}']]);
  await until(async () => (await server.send("GET", `/semel/v1/keys/other/outcomes/${id}`)).semel === "replayed", "what it asked for");
  assert.doesNotMatch(server.log, /restarted/);
});

test("a handler that aborts its object makes its batch unavailable, and the next request at any key is served", LIMIT, async () => {
  assert.equal((await change("/gives/text?key=ends")).semel, "executed");
  const ended = await batchOf("ends", ["/writes/next", "/aborts", "/writes/next"]);
  assert.deepEqual([ended.status, ended.json.code, ended.json.executed], [503, "unavailable", "unknown"]);
  for (const key of ["probe", "ends"]) assert.equal((await change(`/gives/text?key=${key}`)).semel, "executed", key);
  assert.deepEqual((await server.send("GET", "/many?key=ends")).json, [1, 2, 3]);
  await server.line(/the object failed: Error: it was the handler/);
  assert.doesNotMatch(server.log, /restarted/);
});

test("a field with a name of Semel's own makes requests unavailable, and the log names the field", LIMIT, async () => {
  const id = randomUUID();
  const { status, json } = await change("/gives/text?key=field", { id });
  assert.deepEqual([status, json.code, json.executed], [503, "unavailable", "unknown"]);
  assert.match(await server.lineOf(id), /Probe\.storage is Semel's own: give it another name/);
  assert.equal((await change("/gives/text")).semel, "executed");
});

test("in a batch, an element that fails is rolled back, and the others are executed", LIMIT, () =>
  keeps(2, async () => {
    const paths = ["/gives/text", "/throws/range", "/answers/promise", "/gives/json"];
    const body = JSON.stringify(paths.map((path) => ({ id: randomUUID(), method: "POST", path })));
    const answer = await server.send("POST", "/semel/v1/keys/probe/batch", { body });
    assert.deepEqual(answer.json.map(({ headers }) => headers["semel-status"]), ["executed", "rolled-back", "rolled-back", "executed"]);
  }));
