// Tests stores that an application provides and that fail: nothing is sent before it is stored.

import assert from "node:assert/strict";
import { test } from "node:test";
import { SemelError } from "../../sdk/npm/node.js";
import { Rows, deposit, hang, lost, minutes, outbox, rejection, until } from "./stub.mjs";

/** Ways in which a store can fail to change a row. Each leaves the row as it is. */
const FAILURES = {
  "throws at once": () => {
    throw new Error("no disk");
  },
  rejects: () => Promise.reject(new Error("no disk")),
  "rejects with nothing": () => Promise.reject(),
  "rejects after it has called `to`": async (rows, id, to) => {
    to(rows.get(id));
    throw new Error("no disk");
  },
  "never calls `to`, and resolves": async () => {},
  "calls `to` with something that is not a row": async (_rows, _id, to) => {
    to("text");
  },
  "calls `to` only after it has resolved": (rows, id, to) => {
    setTimeout(() => {
      try {
        to(rows.get(id));
      } catch {
        // `to` may throw when it is called this late.
      }
    }, 5);
    return Promise.resolve();
  },
};

for (const [name, failing] of Object.entries(FAILURES)) {
  test(`a store that ${name}: a request that can't be stored is not sent, and its caller gets store-failed, not run`, async (t) => {
    const store = new Rows();
    const { semel, server } = await outbox(t, { store });
    const change = store.change;
    // The first request is made without the server's clock, the second with it.
    for (const account of ["a", "b"]) {
      const before = [server.attempts.length, store.rows.size];
      store.change = (id, to) => failing(store.rows, id, to);
      const error = await rejection(deposit(semel, account));
      assert.ok(error instanceof SemelError);
      const { code, executed, retry, problem } = error;
      assert.deepEqual({ code, executed, retry, problem }, { code: "store-failed", executed: "no", retry: "never", problem: undefined });
      await new Promise((resolve) => setTimeout(resolve, 20));
      assert.deepEqual([server.attempts.length, store.rows.size], before);
      assert.deepEqual(await semel.pending(), []);
      store.change = change;
      assert.equal((await deposit(semel, account)).status, 200, "the outbox goes on");
      await until(async () => (await semel.pending()).length === 0, "it is settled");
    }
  });

  test(`a store that ${name}: an attempt before which it fails is not made, and is tried again at the interval`, async (t) => {
    const store = new Rows();
    const { semel, server } = await outbox(t, { store });
    const change = store.change;
    let failures = 0;
    server.each = (call, serve) => {
      if (call.kind !== "change" || call.n > 1) return serve();
      store.change = (id, to) => {
        failures += 1;
        if (failures === 3) store.change = change;
        return failing(store.rows, id, to);
      };
      return lost();
    };
    assert.equal((await deposit(semel)).status, 200);
    const [first, second] = server.attempts;
    assert.deepEqual([server.attempts.length, failures, server.runs.get(first.id)], [2, 3, 1]);
    assert.ok(second.startedMs - first.endedMs >= 4 * 9.5, "the interval lies between the tries");
    assert.ok(second.deadline > first.deadline);
  });
}

test("a store-failed error has what the store threw as its cause, and an outcome-unknown error has no cause", async (t) => {
  const store = new Rows();
  const { semel, server } = await outbox(t, { store });
  const thrown = new Error("no disk");
  const { change } = store;
  const failing = () => {
    throw thrown;
  };
  for (const fails of [failing, async () => failing()]) {
    store.change = fails;
    assert.equal((await rejection(deposit(semel))).cause, thrown);
  }
  store.change = change;
  server.each = (call, serve) => (call.kind === "change" ? server.problem("accounts/a", 409, "outcome-unknown", { retry: "never" }) : serve());
  assert.deepEqual(await rejection(deposit(semel)).then(({ code, cause }) => [code, cause]), ["outcome-unknown", undefined]);
});

test("if the store never answers, nothing is sent, and close settles the caller", async (t) => {
  const minute = minutes(t);
  const store = new Rows();
  const { semel, server } = await outbox(t, { store });
  store.change = hang;
  const answered = rejection(deposit(semel));
  await minute();
  assert.deepEqual(server.calls, []);
  await semel.close();
  assert.equal((await answered).code, "closed");
});

test("a store whose methods answer at once, without promises, works too", async (t) => {
  const rows = new Map();
  const store = {
    load: () => [...rows],
    change: (id, to) => {
      const row = to(rows.get(id));
      if (row === undefined) rows.delete(id);
      else if (row) rows.set(id, row);
    },
    remove: (ids) => ids.forEach((id) => rows.delete(id)),
  };
  const { semel, server } = await outbox(t, { store });
  server.each = (call, serve) => (call.kind === "change" && call.n % 2 ? lost() : serve());
  await Promise.all(["a", "b", "c"].map((account) => deposit(semel, account)));
  await until(async () => (await semel.pending()).length === 0, "all are settled");
  assert.deepEqual([...server.runs.values()], [1, 1, 1]);
});

test("a store that resolves without asking what to write: each such change counts as failed, and nothing is sent", async (t) => {
  const store = new Rows();
  const change = store.change.bind(store);
  let isIdle = true;
  store.change = async (...given) => isIdle || change(...given);
  const { semel, server } = await outbox(t, { store });
  const refused = await rejection(deposit(semel));
  assert.deepEqual([refused.code, refused.executed, refused.cause], ["store-failed", "no", undefined]);
  isIdle = false;
  server.each = (call, serve) => (call.kind === "change" && (isIdle = call.n === 1) ? lost() : serve());
  const told = [];
  semel.addEventListener("lost", ({ detail }) => told.push(detail.error?.message));
  const answering = deposit(semel);
  await until(() => told.length > 2, "it is told each time");
  assert.deepEqual([told.slice(0, 3), server.attempts.length], [["fetch failed", undefined, undefined], 1]);
  isIdle = false;
  assert.equal((await answering).status, 200);
});

test("a store may make each change twice, with the first undone or kept: each request still runs once", async (t) => {
  const store = new Rows();
  const change = store.change.bind(store);
  // By turns, the store's first change is undone, or is still there when the store makes it again.
  let times = 0;
  store.change = async (id, to) => {
    times += 1;
    if (times % 2) to(store.rows.get(id));
    else await change(id, to);
    await change(id, to);
  };
  const { semel, server } = await outbox(t, { store });
  server.each = (call, serve) => (call.kind === "change" && call.n % 2 ? lost() : serve());
  for (const account of ["a", "b", "c", "d"]) assert.equal((await deposit(semel, account)).status, 200);
  await until(async () => (await semel.pending()).length === 0, "all are settled");
  assert.deepEqual([...server.runs.values()], [1, 1, 1, 1]);
});

test("the SDK calls the methods of a store on the store, and ignores errors of remove and close", async (t) => {
  class Own extends Rows {
    #private = 0;
    async change(id, to) {
      this.#private += 1;
      return super.change(id, to);
    }
    remove() {
      return Promise.reject(new Error(`no disk after ${this.#private}`));
    }
    close() {
      throw new Error(`no disk after ${this.#private}`);
    }
  }
  const { semel } = await outbox(t, { store: new Own() });
  await deposit(semel);
  await until(async () => (await semel.pending()).length === 0, "it is settled");
  await deposit(semel);
  await new Promise((resolve) => setTimeout(resolve, 20));
  await semel.close();
});

test("a request whose row another process has removed is not sent again, and its caller gets outcome-lost", async (t) => {
  const store = new Rows();
  const { semel, server } = await outbox(t, { store });
  server.each = (call, serve) => {
    if (call.kind !== "change") return serve();
    store.rows.delete(call.id);
    return lost();
  };
  const error = await rejection(deposit(semel));
  assert.deepEqual([error.name, error.code, error.executed], ["OutcomeLostError", "outcome-lost", "unknown"]);
  await new Promise((resolve) => setTimeout(resolve, 40));
  assert.deepEqual([server.attempts.length, store.rows.size, await semel.pending()], [1, 0, []]);
});

test("two processes on one store run a request once, and its caller gets the answer", async (t) => {
  const store = new Rows();
  const { semel: one, server } = await outbox(t, { store });
  let isOver = false;
  server.each = (call, serve) => (call.kind === "change" && !isOver ? lost() : serve());
  const answered = deposit(one);
  await until(() => server.attempts.length > 1, "it was sent");
  const recovered = [];
  const { semel: other } = await outbox(t, { store, server, onrecovered: (each) => void recovered.push(each) });
  const attempts = server.attempts.length;
  await until(() => server.attempts.length > attempts + 4, "both send it");
  isOver = true;
  const response = await answered;
  assert.deepEqual([(await response.json()).ran, ...server.runs.values()], [1, 1]);
  await until(async () => (await one.pending()).length + (await other.pending()).length === 0, "it is settled");
  assert.ok(recovered.length <= 1);
  assert.equal(new Set(server.attempts.map(({ id }) => id)).size, 1);
});
