// A deployment in front of an HTTP API is killed at each step of a request, or its module crashes: what the caller gets, and how often the API was
// called.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { cp, mkdtemp, rename, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { workerFolder } from "../../scripts/setup/worker.mjs";
import { otherSide } from "./other-side.mjs";
import { POLICIES, front, order, settled } from "./upstream.mjs";

/**
 * How long a call may take: longer than any pause of a busy machine. A probe proves something only after this time and the settleSeconds of its
 * route, so the test puts the clock on by both. The time for which the other side knows an id is not over then.
 */
const TIMEOUT_S = 30;

/** Replaces the worker's entry: its clock can be put on, so that no test waits in real time. */
const PUT_ON = `
import upstream from "./upstream.js";
export * from "./upstream.js";
const machineNow = Date.now.bind(Date);
let aheadMs = 0;
Date.now = () => machineNow() + aheadMs;
export default {
  async fetch(request, env) {
    if (new URL(request.url).pathname !== "/clock") return upstream.fetch(request, env);
    aheadMs += Number(await request.text());
    return new Response();
  },
};`;

/** The folder of a copy of the worker with this entry. The entry can import the original one as `./upstream.js`. */
async function entered(source) {
  const folder = await mkdtemp(join(tmpdir(), "semel-entered-"));
  after(() => rm(folder, { recursive: true, force: true }));
  await cp(workerFolder("upstream"), folder, { recursive: true });
  await rename(join(folder, "index.js"), join(folder, "upstream.js"));
  await writeFile(join(folder, "index.js"), source);
  return folder;
}

/** Where `kill -9` comes. What the other side sees decides when each is reached, never time. */
const STEPS = {
  /** Nothing is recorded: the server is down when the request comes. */
  async start(_side, to) {
    await to.kill();
    return () => {};
  },
  /** The start is recorded and the connection open, but the other side does not read what is sent. */
  async dispatch(side, to) {
    const connected = new Promise((resolve) => {
      side.onConnection = () => resolve() ?? false;
    });
    connected.then(() => to.kill());
    return () => (side.onConnection = () => true);
  },
  /** The other side has made the change, and its answer is on the way. */
  async answer(side, to) {
    side.trouble.push((response, status, body) => {
      response.writeHead(status, { "content-length": body.length });
      response.write(body.slice(0, -1), () => to.kill());
    });
    return () => {};
  },
  /** The outcome is recorded. */
  async commit() {
    return (to) => to.kill();
  },
};

test("kill -9 at each step, for each policy: the answer, the calls upstream and the effects are as the policy says", async () => {
  const [rows, folder] = [[], await entered(PUT_ON)];
  for (const policy of Object.keys(POLICIES)) {
    for (const [step, strike] of Object.entries(STEPS)) {
      const side = await otherSide(after, { knowsIds: policy === "resend" });
      const to = await front(after, side, { SEMEL_UPSTREAM_TIMEOUT_SECONDS: String(TIMEOUT_S) }, { folder });
      const [id, ref] = [randomUUID(), randomUUID()];
      const restore = await strike(side, to);
      await order(to, policy, ref, { id }).catch(() => {});
      await restore(to);
      await to.restart();
      await to.send("POST", "/clock", { body: String((TIMEOUT_S + POLICIES.probe.settleSeconds) * 1_000) });
      const answer = await settled(() => order(to, policy, ref, { id }));
      const got = answer.semel;
      rows.push({ policy, "kill -9 at": step, "the caller gets": `${answer.status} ${got}`, calls: side.changes, effects: side.made.get(ref) ?? 0 });
      const isReport = policy === "report" && ["dispatch", "answer"].includes(step);
      assert.equal(got, isReport ? "outcome-unknown" : step === "commit" ? "replayed" : "executed", `${policy}, ${step}`);
      assert.equal(side.made.get(ref) ?? 0, policy === "report" && step === "dispatch" ? 0 : 1, `${policy}, ${step}`);
      assert.equal(side.changes, { dispatch: policy === "report" ? 0 : 1, answer: policy === "resend" ? 2 : 1 }[step] ?? 1, `${policy}, ${step}`);
      await to.kill();
    }
  }
  console.table(rows);
});

test("after kill -9 during a call, a look-up or a cancellation says what an attempt would hear, and runs nothing", async () => {
  const side = await otherSide(after);
  const to = await front(after, side);
  const sent = Object.keys(POLICIES).map((policy) => ({ policy, id: randomUUID(), ref: randomUUID() }));
  const lookUp = (policy, id) => to.send("GET", `/semel/v1/keys/${policy}%2Forders/outcomes/${id}`);
  const inBatch = async (policy, id) => {
    const body = JSON.stringify([{ method: "GET", path: `/semel/v1/keys/${policy}%2Forders/outcomes/${id}` }]);
    return (await to.send("POST", `/semel/v1/keys/${policy}%2Forders/batch`, { body })).json[0].headers["semel-status"];
  };
  for (const { policy, id, ref } of sent) {
    const arrived = new Promise((resolve) => side.trouble.push(resolve));
    order(to, policy, ref, { id }).catch(() => {});
    await arrived;
    // The request is under way, and may still get its outcome. A read that comes and goes doesn't change that.
    assert.equal((await to.send("GET", `/${policy}/orders/${randomUUID()}`, { key: `"${policy}/orders"` })).semel, "read");
    assert.deepEqual([(await lookUp(policy, id)).semel, await inBatch(policy, id)], ["in-flight", "in-flight"], policy);
  }
  await to.restart();
  for (const { policy, id, ref } of sent) {
    const isReport = policy === "report";
    const known = isReport ? [409, "outcome-unknown", "unknown", "never"] : [409, "in-flight", "unknown", "same-id"];
    const { status, semel, json } = await lookUp(policy, id);
    assert.deepEqual([status, semel, json.executed, json.retry], known, policy);
    assert.match(json.detail, isReport ? /an administrator can resolve it/ : /send the same request again to find out/);
    assert.equal(await inBatch(policy, id), semel);
    const cancelled = await to.send("POST", `/semel/v1/keys/${policy}%2Forders/cancel`, { id: randomUUID(), body: JSON.stringify({ id }) });
    assert.deepEqual([cancelled.status, cancelled.semel], known.slice(0, 2), policy);
    assert.equal(side.made.get(ref), 1, `${policy}: a look-up runs nothing`);
  }
  const [{ id, ref }] = sent;
  const resolved = await to.admin("POST", `keys/report%2Forders/records/${id}/resolve`, { id: randomUUID(), body: '{"executed":"yes","outcome":{"status":201,"body":"made"}}' });
  assert.deepEqual([resolved.status, (await lookUp("report", id)).text, (await order(to, "report", ref, { id })).text], [200, "made", "made"]);
  assert.equal(side.changes, sent.length);
});

test("after kill -9 during a call, a probe that finds nothing is in-flight while the call might still be under way", async () => {
  const side = await otherSide(after);
  const to = await front(after, side, { SEMEL_UPSTREAM_TIMEOUT_SECONDS: "600" });
  const [id, ref] = [randomUUID(), randomUUID()];
  const send = () => order(to, "probe", ref, { id });
  let carryOut;
  const arrived = new Promise((resolve) => side.heldChanges.push((finish) => resolve((carryOut = finish))));
  const first = send().catch(() => {});
  await arrived;
  await to.restart();
  await first;
  const from = side.requests.length;
  // The settleSeconds have passed since the dispatch, but not the time that the call may take.
  await new Promise((resolve) => setTimeout(resolve, POLICIES.probe.settleSeconds * 1_000));
  const early = await send();
  assert.deepEqual([early.status, early.semel, early.json.executed, early.json.retry], [409, "in-flight", "unknown", "same-id"]);
  assert.deepEqual(side.requests.slice(from).map(({ method }) => method), ["GET"], "it was asked, found nothing, and sent nothing");
  carryOut();
  const answer = await settled(send);
  assert.deepEqual([answer.status, answer.semel, answer.json, side.changes], [200, "executed", { ref, times: 1 }, 1]);
});

test("after the process was stopped beyond the time-out, a probe that finds nothing just afterwards is still in-flight", async () => {
  const side = await otherSide(after);
  // Long enough for an attempt on a busy machine.
  const [timeoutSeconds, settleSeconds] = [3, 5];
  const routes = JSON.stringify([{ ...POLICIES.probe, path: "/probe/orders", settleSeconds }]);
  let pid;
  const to = await front(after, side, { SEMEL_UPSTREAM_TIMEOUT_SECONDS: String(timeoutSeconds), SEMEL_UPSTREAM_ROUTES: routes }, { onSpawn: (number) => (pid = number) });
  const [id, ref] = [randomUUID(), randomUUID()];
  const send = () => order(to, "probe", ref, { id });
  let carryOut;
  const arrived = new Promise((resolve) => side.heldChanges.push((finish) => resolve((carryOut = finish))));
  const first = send();
  await arrived;
  process.kill(pid, "SIGSTOP");
  // By then the call would have ended, and the settleSeconds have passed.
  await new Promise((resolve) => setTimeout(resolve, (timeoutSeconds + settleSeconds) * 1_000));
  process.kill(pid, "SIGCONT");
  assert.equal((await first).semel, "unavailable");
  const from = side.requests.length;
  const early = await send();
  assert.deepEqual([early.status, early.semel, early.json.executed, early.json.retry], [409, "in-flight", "unknown", "same-id"]);
  assert.deepEqual(side.requests.slice(from).map(({ method }) => method), ["GET"], "it was asked, found nothing, and sent nothing");
  carryOut();
  const answer = await settled(send);
  assert.deepEqual([answer.status, answer.semel, answer.json, side.changes], [200, "executed", { ref, times: 1 }, 1]);
});

test("a request in doubt is resent or probed only at its address and by its probe, else it is outcome-unknown", async () => {
  const folder = await entered(PUT_ON);
  const asked = (probe) => JSON.stringify([{ path: "/resend/orders", ...POLICIES.resend }, { path: "/probe/orders", ...POLICIES.probe, probe }]);
  const changes = {
    "another origin": ["outcome-unknown", (other) => ({ SEMEL_UPSTREAM: other.url })],
    "another path of it": ["outcome-unknown", (_, side) => ({ SEMEL_UPSTREAM: `${side.url}/v2` })],
    "the same, written otherwise": ["executed", (_, side) => ({ SEMEL_UPSTREAM: `${side.url}/` })],
    "another way to ask": ["outcome-unknown", () => ({ SEMEL_UPSTREAM_ROUTES: asked("/by-ref/no-{body.ref}") }), "probe"],
  };
  for (const [name, [expected, changed, only]] of Object.entries(changes)) {
    for (const policy of [only ?? ["resend", "probe"]].flat()) {
      const [side, other] = [await otherSide(after, { knowsIds: policy === "resend" }), await otherSide(after, { knowsIds: true })];
      const to = await front(after, side, { SEMEL_UPSTREAM_TIMEOUT_SECONDS: "5" }, { folder });
      const [id, ref] = [randomUUID(), randomUUID()];
      side.trouble.push((response) => response.destroy());
      assert.equal((await order(to, policy, ref, { id })).semel, "unavailable", name);
      await to.restart({ vars: { ...to.vars, ...changed(other, side) } });
      await to.send("POST", "/clock", { body: "10000" });
      const answer = await settled(() => order(to, policy, ref, { id }));
      assert.deepEqual([answer.semel, side.made.get(ref), other.requests.length], [expected, 1, 0], `${name}, ${policy}`);
      await to.kill();
    }
  }
});

/** Replaces the worker's entry: the module crashes when `/crash` is asked for. */
const CRASHING = `
import upstream from "./upstream.js";
import { guarded } from "./module.js";
export * from "./upstream.js";
export default {
  fetch(request, env) {
    if (new URL(request.url).pathname !== "/crash") return upstream.fetch(request, env);
    const crash = () => {
      throw new Error("the module was asked to crash");
    };
    guarded(crash, () => {});
    return new Response();
  },
};`;

test("if the module crashes during a call, a look-up says in-flight, and the request still gets its outcome", async () => {
  const side = await otherSide(after);
  const to = await front(after, side, {}, { folder: await entered(CRASHING) });
  const [id, ref] = [randomUUID(), randomUUID()];
  let finish;
  const arrived = new Promise((resolve) => side.trouble.push((response, status, body) => resolve((finish = () => response.writeHead(status).end(body)))));
  const first = order(to, "report", ref, { id });
  await arrived;
  assert.equal((await to.send("POST", "/crash")).status, 200);
  await to.line(/the module was restarted/);
  const { semel, json } = await to.send("GET", `/semel/v1/keys/report%2Forders/outcomes/${id}`);
  assert.deepEqual([semel, json.executed, json.retry], ["in-flight", "unknown", "same-id"]);
  finish();
  assert.deepEqual([(await first).semel, (await order(to, "report", ref, { id })).semel, side.made.get(ref)], ["executed", "replayed", 1]);
});

/** Replaces the worker's entry: while the disk fails, which `POST /disk` says, no key can write a record. */
const FAILING = `
import upstream, { SemelObject as Upstream } from "./upstream.js";
export * from "./upstream.js";
let fails = false;
export class SemelObject extends Upstream {
  constructor(ctx, env) {
    const exec = ctx.storage.sql.exec.bind(ctx.storage.sql);
    ctx.storage.sql.exec = (statement, ...values) => {
      if (fails && /^(INSERT|UPDATE|DELETE).* semel_records/.test(statement)) throw new Error("disk I/O error: SQLITE_IOERR");
      return exec(statement, ...values);
    };
    super(ctx, env);
  }
}
export default {
  async fetch(request, env) {
    if (new URL(request.url).pathname !== "/disk") return upstream.fetch(request, env);
    fails = (await request.text()) === "fails";
    return new Response();
  },
};`;

test("an answer of the upstream that the disk fails to record is recorded once the disk works again, and the request is in-flight until then", async () => {
  const side = await otherSide(after);
  const to = await front(after, side, {}, { folder: await entered(FAILING) });
  const [id, ref] = [randomUUID(), randomUUID()];
  const disk = (body) => to.send("POST", "/disk", { body });
  side.trouble.push((response, status, body) => void disk("fails").then(() => response.writeHead(status).end(body)));
  const first = order(to, "report", ref, { id });
  await to.line(/storage failed: .*SQLITE_IOERR/);
  const look = async () => (await to.send("GET", `/semel/v1/keys/report%2Forders/outcomes/${id}`)).semel;
  assert.equal(await look(), "in-flight");
  await disk("works");
  assert.equal((await first).semel, "executed");
  assert.deepEqual([await look(), (await order(to, "report", ref, { id })).semel, side.made.get(ref)], ["replayed", "replayed", 1]);
});

/** Replaces the worker's entry: the module crashes on what came of a call, unless nothing is known of that. */
const UNRECORDABLE = `
import { glue } from "./module.js";
export * from "./upstream.js";
export { default } from "./upstream.js";
const { settle } = glue.SemelEngine.prototype;
glue.SemelEngine.prototype.settle = function (call, ended, ...more) {
  if (typeof ended[0] === "number") throw new WebAssembly.RuntimeError("unreachable");
  return settle.call(this, call, ended, ...more);
};`;

test("if an answer of the upstream crashes the module each time, the module is restarted twice and the request stays in doubt", async () => {
  const side = await otherSide(after);
  const to = await front(after, side, {}, { folder: await entered(UNRECORDABLE) });
  const [id, ref] = [randomUUID(), randomUUID()];
  assert.deepEqual([(await order(to, "report", ref, { id })).semel, side.made.get(ref)], ["outcome-unknown", 1]);
  await to.line(/in doubt: to record what came of it crashes the module/);
  assert.equal(to.log.match(/the module was restarted/g).length, 2);
  assert.deepEqual([(await order(to, "report", ref, { id })).semel, side.made.get(ref)], ["outcome-unknown", 1]);
});
