// The server that the page of the demonstration may kill: who may kill it, that it comes back, and what its supervisor does meanwhile.

import assert from "node:assert/strict";
import { readFile, rm } from "node:fs/promises";
import { request } from "node:http";
import { createServer } from "node:net";
import { join } from "node:path";
import { after, test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { StepError } from "../../scripts/setup/step.mjs";
import { DOWN_MS, supervise } from "../../scripts/setup/supervise.mjs";
import { stateFolder } from "./folders.mjs";
import { until } from "./lossy.mjs";
import { optionsFor } from "./server.mjs";

const scratch = await stateFolder("semel-lab-");
after(() => rm(scratch, { recursive: true, force: true }));

/** A server that its page may kill. `kills()`: how many kills its log, which `npm start` prints, tells of. */
async function supervised(t, name) {
  let log = "";
  const supervisor = await supervise(optionsFor("ledger", join(scratch, name), { onLog: (text) => (log += text) }));
  const ended = supervisor.ended.catch((error) => error);
  t.after(() => {
    supervisor.end();
    return ended;
  });
  const { url } = supervisor;
  const ask = (headers, method = "POST") => fetch(`${url}/lab/server/kill`, { method, headers });
  /** Resolves to the status, or to undefined if the answer was lost in the kill. */
  const kill = () => ask({ origin: url }).then(({ status }) => status, () => undefined);
  const isUp = () => fetch(`${url}/semel/v1/health`).then(({ ok }) => ok, () => false);
  return { supervisor, url, ended, ask, kill, isUp, kills: () => log.split("the page kills the server").length - 1 };
}

const depositTo = (url, id) => fetch(`${url}/accounts/kept/deposit`, { method: "POST", headers: { "idempotency-key": id }, body: '{"amount":1}' });

test("a kill by the page ends the server, which comes back at the same address with its records", async (t) => {
  const { supervisor, url, kill, isUp, kills } = await supervised(t, "killed");
  assert.deepEqual(await (await fetch(`${url}/lab/server`)).json(), { canKill: true });
  await depositTo(url, "before");
  for (let time = 1; time <= 2; time += 1) {
    const { pid } = supervisor;
    const asked = Date.now();
    const answers = new Set(await Promise.all([kill(), kill(), kill()]));
    answers.delete(undefined);
    assert.deepEqual([...answers], [202]);
    await until(async () => !(await isUp()), "the server is gone");
    await until(isUp, "the server is back");
    assert.ok(Date.now() - asked >= DOWN_MS, "the outage can be seen");
    assert.equal(supervisor.url, url);
    assert.notEqual(supervisor.pid, pid);
    assert.equal(kills(), time, "three at once are one");
    assert.equal((await depositTo(url, "before")).headers.get("semel-status"), "replayed");
  }
});

test("a kill by another page, or by what is no page, is refused", async (t) => {
  const { supervisor, url, ask, isUp, kills } = await supervised(t, "safe");
  const { pid } = supervisor;
  const port = Number(new URL(url).port);
  for (const origin of ["null", "http://host.example", url.replace("http:", "https:"), `http://127.0.0.1:${port + 1}`, `http://localhost:${port}`, `${url}/`, "http://127.0.0.1"]) {
    assert.equal((await ask({ origin })).status, 403, origin);
  }
  assert.equal((await ask({})).status, 403);
  assert.equal((await ask({ origin: url }, "GET")).status, 404);
  assert.equal((await fetch(`${url}/lab/kill`, { method: "POST", headers: { origin: url } })).status, 404);
  const [, control] = /external = \(address = "([^"]+)"/.exec(await readFile(join(scratch, "safe/config.capnp"), "utf8"));
  for (const [path, method, headers] of [["/kill", "POST", { origin: url }], ["/kill", "GET", {}], ["/", "POST", {}]]) {
    assert.equal((await fetch(`http://${control}${path}`, { method, headers })).status, 404);
  }
  for (const headers of [{}, { "lab-host": `host.example:${port}` }]) assert.equal((await fetch(`http://${control}/kill`, { method: "POST", headers })).status, 403);
  // DNS rebinding: the name of a website resolves to this machine. To the browser, the website and the server have one origin.
  const name = `host.example:${port}`;
  const status = await new Promise((resolve, reject) => {
    const headers = { host: name, origin: `http://${name}` };
    request({ host: "127.0.0.1", port, path: "/lab/server/kill", method: "POST", headers }, (answer) => resolve(answer.resume().statusCode)).on("error", reject).end();
  });
  assert.equal(status, 403);
  assert.ok(await isUp());
  assert.deepEqual([supervisor.pid, kills()], [pid, 0]);
});

test("ending the supervisor during an outage leaves no server behind", async (t) => {
  const { supervisor, ended, kill, isUp, url } = await supervised(t, "ended");
  const [, control] = /external = \(address = "([^"]+)"/.exec(await readFile(join(scratch, "ended/config.capnp"), "utf8"));
  await kill();
  await until(async () => !(await isUp()), "the server is gone");
  // Timers of one process fire in the order in which they are due, even if the machine stood still.
  const outage = delay(DOWN_MS, "the outage is over");
  supervisor.end();
  assert.equal(await Promise.race([ended, outage]), undefined, "it does not wait for what it would have started");
  for (const origin of [url, `http://${control}`]) await assert.rejects(fetch(origin), TypeError);
});

test("the caller of supervise gets the number of each server before it serves, and can end it while it starts", async () => {
  const isLiving = (pid) => {
    try {
      return process.kill(pid, 0);
    } catch {
      return false;
    }
  };
  /** A supervisor that was ended when its `nth` server was started. */
  const endedAt = async (nth) => {
    const pids = [];
    const ending = new AbortController();
    const onSpawn = (pid) => {
      assert.ok(isLiving(pid));
      if (pids.push(pid) === nth) ending.abort();
    };
    const supervisor = await supervise(optionsFor("ledger", join(scratch, `ended-${nth}`), { onSpawn, ending }));
    if (nth > 1) {
      assert.equal(pids[0], supervisor.pid);
      await fetch(`${supervisor.url}/lab/server/kill`, { method: "POST", headers: { origin: supervisor.url } }).catch(() => {});
    }
    assert.equal(await supervisor.ended, undefined);
    assert.equal(pids.length, nth);
    assert.deepEqual(pids.filter(isLiving), []);
    return supervisor;
  };
  assert.equal((await endedAt(1)).url, undefined, "it never served");
  await endedAt(2);
  // A server whose number could not be noted down is not left running.
  const pids = [];
  const onSpawn = (pid) => {
    pids.push(pid);
    throw new Error("the disk is full");
  };
  await assert.rejects(supervise(optionsFor("ledger", join(scratch, "unnoted"), { onSpawn })), /the disk is full/);
  assert.deepEqual(pids.map(isLiving), [false]);
});

test("the supervisor fails if its server can't come back, or ends unasked", async (t) => {
  const homeless = await supervised(t, "homeless");
  await homeless.kill();
  await until(async () => !(await homeless.isUp()), "the server is gone");
  const { hostname, port } = new URL(homeless.url);
  const thief = createServer();
  t.after(() => thief.close());
  const take = () => new Promise((resolve) => thief.once("error", () => resolve(false)).listen(Number(port), hostname, () => resolve(true)));
  await until(take, "somebody else takes the port");
  const failed = await homeless.ended;
  assert.ok(failed instanceof StepError);
  assert.match(failed.message, /workerd did not start/);

  const crashed = await supervised(t, "crashed");
  process.kill(crashed.supervisor.pid, "SIGKILL");
  const error = await crashed.ended;
  assert.ok(error instanceof StepError);
  assert.match(error.message, /workerd ended with SIGKILL/);
});
