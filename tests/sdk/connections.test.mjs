// Tests the connections of attempts in Node: the SDK keeps a connection while it answers, and never uses it again after an attempt has hung on it.

import assert from "node:assert/strict";
import { test } from "node:test";
import { serveStub } from "./http-stub.mjs";
import { deposit, hang, outbox, until } from "./stub.mjs";

/** How an attempt may hang, once it has arrived. */
const HANGS = {
  "before its answer begins": hang,
  "in the middle of its answer": ({ init, key }) => {
    init.response.writeHead(200, { "semel-status": "executed", "semel-key": `"${key}"`, "content-length": 100 }).write("half");
    return hang();
  },
};

for (const [when, hangs] of Object.entries(HANGS)) {
  test(`an attempt that hangs ${when} is made again on another connection, and a connection that answered is used again`, { timeout: 20_000 }, async (t) => {
    const { stub, url } = await serveStub(t);
    const { semel } = await outbox(t, { url, fetch: globalThis.fetch, attemptTimeoutMs: 1_000 });
    stub.each = (call, serve) => (call.key === "accounts/hung" && call.n === 2 ? hangs(call) : serve());
    assert.equal((await deposit(semel, "before")).status, 200);
    // Node counts a connection as free one turn after its answer has ended.
    await new Promise((resolve) => setImmediate(resolve));
    assert.equal((await deposit(semel, "hung")).status, 200);
    const [before, hung, again] = stub.attempts;
    assert.deepEqual([stub.attempts.length, hung.id], [3, again.id]);
    // The runtime may keep more than one connection.
    const answered = [stub.calls[0], before].map(({ init }) => init.socket);
    assert.ok(answered.includes(hung.init.socket), "it hung on one that had answered, and was used again");
    assert.notEqual(again.init.socket, hung.init.socket);
    await until(() => hung.init.socket.destroyed, "the one that it hung on is closed");
    assert.equal(again.init.socket.destroyed, false);
  });
}
