// Alarms that fail until the platform gives them up, which it does after six failures. Records must still leave, and the key must still register.
// Runs on workerd, with the probe.
//
// The last test waits for all failures (two minutes) and then three minutes more, to see that no alarm comes after them. It runs only with:
// SEMEL_ALARMS=given-up node --test tests/e2e/alarms.test.mjs

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { until } from "./lossy.mjs";
import { serve } from "./server.mjs";

const RECORDS = 150;
/** Longer than any pause of a busy machine, and shorter than the time after which an alarm counts as overdue. */
const RETENTION_S = 30;
/** An alarm that is this late counts as lost. */
const OVERDUE_MS = 61_000;
/** The first try, and the platform's six further ones. */
const TRIES = 7;
/** Longer than the pause before the last try. */
const GIVEN_UP_MS = 180_000;
const KEY = "left-alone";

async function start(t, retentionS = RETENTION_S) {
  const server = await serve((end) => t.after(end), "probe", { SEMEL_REPORT_SECONDS: "1", SEMEL_RETENTION_SECONDS: String(retentionS) });
  const change = (options = {}) => server.send("POST", "/echo", { id: randomUUID(), key: `"${KEY}"`, ...options });
  return {
    server,
    change,
    alarms: (what) => server.send("POST", "/probe/alarms", { body: what }),
    failed: async () => (await server.send("GET", "/probe/alarms")).json,
    read: () => server.send("GET", "/echo", { key: `"${KEY}"` }),
    /** How many rows the key keeps. The administrator's look-up sweeps nothing. */
    rows: async () => {
      const { records, tombstones } = (await server.admin("GET", `keys/${KEY}`)).json;
      return records + tombstones;
    },
    isListed: async (name = KEY) => (await server.admin("GET", "keys")).json.keys.some(({ key }) => key === name),
  };
}

test("while every alarm fails, requests sweep, and once an alarm is overdue a request also registers the key", { timeout: 90_000 }, async (t) => {
  const { server, change, read, alarms, failed, rows, isListed } = await start(t);
  await alarms("fail");
  const [id, firstSent] = [randomUUID(), Math.floor(Date.now() / 1000)];
  assert.equal((await change({ id, firstSent })).semel, "executed");
  for (let sent = 1; sent < RECORDS; sent += 1) assert.equal((await change({ firstSent: Math.floor(Date.now() / 1000) })).semel, "executed");
  await until(async () => (await failed()) > 0, "an alarm has come, and failed");
  assert.equal(await isListed(), false, "that was for an alarm to do");
  // The clock is put on, so that records are due although no alarm was late.
  await server.send("POST", "/probe/clock", { body: String((RETENTION_S + 1) * 1_000) });
  const before = await failed();
  await until(async () => (await failed()) > before, "an alarm has come once they are due, and failed");
  assert.ok((await rows()) > 0, "by itself nothing leaves");
  const left = async () => (await read()) && (await rows()) === 0;
  await until(left, "all has left, by requests alone", 40_000);
  assert.equal((await change({ id, firstSent })).semel, "outside-window");
  // This puts the alarm past the time after which it counts as lost.
  await server.send("POST", "/probe/clock", { body: String(OVERDUE_MS) });
  assert.equal((await change()).semel, "executed");
  await until(isListed, "the key registers after the answer to a request");
});

test("the work of an alarm that fails is done by the first alarm that succeeds, even after a restart", { timeout: 90_000 }, async (t) => {
  const { server, change, alarms, failed, isListed } = await start(t);
  await alarms("fail");
  assert.equal((await change()).semel, "executed");
  await until(async () => (await failed()) > 0, "an alarm has failed");
  // This holds after a restart of the process too: the alarm is on disk.
  await server.restart();
  await until(isListed, "it comes again, and nobody has asked", 60_000);
});

test("a key whose first request kills its object is known to the registry, though no other request comes", { timeout: 60_000 }, async (t) => {
  const { server, change, isListed } = await start(t, 86_400);
  const id = randomUUID();
  const ways = {
    "by-itself": () => server.send("POST", "/spin", { id, key: '"by-itself"' }),
    "in-a-batch": () => server.send("POST", "/semel/v1/keys/in-a-batch/batch", { body: JSON.stringify([{ id, method: "POST", path: "/spin" }]) }),
  };
  for (const [key, send] of Object.entries(ways)) {
    // This request has the process start up now, so that the CPU time measured below is the spinning alone.
    assert.equal((await change()).semel, "executed");
    const before = await server.cpu();
    const sent = send().catch(() => {});
    // Only the spinning takes this much CPU time, and by then the start of the request is durable.
    await until(async () => (await server.cpu()) > before + 0.5, "it spins");
    await server.restart();
    await sent;
    await until(() => isListed(key), `the registry knows it: ${key}`);
  }
});

if (process.env.SEMEL_ALARMS === "given-up") {
  test("an alarm that the platform has given up is set anew by the next request", { timeout: 600_000 }, async (t) => {
    const { change, alarms, failed, isListed } = await start(t);
    await alarms("fail");
    assert.equal((await change()).semel, "executed");
    await until(async () => (await failed()) >= TRIES, "as often as the platform tries", 300_000);
    await alarms("work");
    await delay(GIVEN_UP_MS);
    assert.deepEqual([await failed(), await isListed()], [TRIES, false], "it was given up");
    assert.equal((await change()).semel, "executed");
    await until(isListed, "the key registers");
  });
}
