// Tests sessions whose calls pause, are given up or are aborted, against a stub of a key that keeps to the protocol.

import assert from "node:assert/strict";
import { getEventListeners } from "node:events";
import { test } from "node:test";
import { deposit, outbox, ran } from "./session-stub.mjs";
import { lost, problem, rejection, until, within } from "./stub.mjs";

test("a session pauses at an after-fix refusal, and later calls wait", async (t) => {
  const { semel, server } = await outbox(t);
  const paused = [];
  const session = await semel.session("accounts/a", "s", { onpaused: (each) => paused.push(each) });
  server.refuse = ({ body }) => (body === "x" ? [401, "unauthorized", "no", "after-fix"] : undefined);
  const calls = [deposit(session, "x"), deposit(session, "y")];
  await until(() => paused.length === 1, "it pauses");
  assert.deepEqual([paused[0].error.code, paused[0].error.executed, paused[0].method], ["unauthorized", "unknown", "POST"]);
  server.refuse = () => undefined;
  paused[0].resume();
  await Promise.all(calls);
  assert.deepEqual(server.effects, ["x", "y"]);
});

test("a refusal of a whole batch pauses the session with the problem as the server sent it", async (t) => {
  const { semel, server } = await outbox(t);
  const paused = [];
  const session = await semel.session("accounts/a", "s", { onpaused: (each) => paused.push(each) });
  server.each = (call, serve) => (paused.length ? serve() : problem(401, "unauthorized", { executed: "no", retry: "after-fix", detail: "the token has ended", own: [1] }));
  const answers = ["a", "b"].map((body) => deposit(session, body));
  await until(() => paused.length, "it pauses");
  const [{ error }] = paused;
  assert.deepEqual([error.code, error.message, error.problem?.own], ["unauthorized", "unauthorized: the token has ended", [1]]);
  assert.equal(server.frames[0].elements.length, 2);
  session.resume();
  await within(Promise.all(answers), "they are answered");
});

test("a call that is given up in a pause never runs, and later calls go on", async (t) => {
  const { semel, server } = await outbox(t);
  const session = await semel.session("accounts/a", "s", { onpaused: ({ giveUp }) => giveUp() });
  server.refuse = ({ path }) => (path === "/nowhere" ? [404, "not-found", "no", "after-fix"] : undefined);
  const calls = [session.fetch("/nowhere", { method: "POST" }), deposit(session, "y")];
  const error = await rejection(calls[0]);
  assert.deepEqual([error.code, error.executed], ["cancelled", "no"]);
  await calls[1];
  assert.deepEqual(server.effects, ["y"]);
});

test("an aborted call under way is cancelled and has its place closed, or gets its outcome if it ran", async (t) => {
  const { semel, server } = await outbox(t);
  const session = await semel.session("accounts/a", "s");
  const [early, late] = [new AbortController(), new AbortController()];
  server.each = lost;
  const never = deposit(session, "never", { signal: early.signal });
  await until(() => server.frames.length > 0, "it is on its way");
  early.abort();
  server.each = (_call, serve) => serve();
  const error = await rejection(never);
  assert.deepEqual([error.code, error.executed], ["cancelled", "no"]);
  server.each = (_call, serve) => (serve(), lost());
  const ranAnyway = deposit(session, "ran", { signal: late.signal });
  await until(() => server.effects.length === 1, "it ran");
  late.abort();
  server.each = (_call, serve) => serve();
  assert.deepEqual(await ran(ranAnyway), { ran: "ran" });
  await deposit(session, "next");
  assert.deepEqual(server.effects, ["ran", "next"]);
});

test("a call that is aborted as its headers throw is cancelled and never runs", async (t) => {
  const aborting = new AbortController();
  let isOut = false;
  const headers = () => {
    if (!isOut) return {};
    aborting.abort();
    throw new Error("logged out");
  };
  const { semel, server } = await outbox(t, { headers });
  const session = await semel.session("accounts/a", "s");
  const isLost = new Promise((resolve) => semel.addEventListener("lost", resolve, { once: true }));
  isOut = true;
  const made = rejection(deposit(session, "x", { signal: aborting.signal }));
  await within(isLost, "it had no token");
  isOut = false;
  const error = await made;
  assert.deepEqual([error.code, error.executed, server.effects], ["cancelled", "no", []]);
});

test("a call that is aborted before it has a place rejects at once, and leaves no gap", async (t) => {
  const { semel, server } = await outbox(t);
  const session = await semel.session("accounts/a", "s");
  const [before, stop] = [new AbortController(), new AbortController()];
  const endless = rejection(deposit(session, new ReadableStream(), { signal: before.signal }));
  const behind = rejection(deposit(session, "behind", { signal: stop.signal }));
  const last = deposit(session, "last");
  stop.abort(new Error("enough"));
  assert.equal((await within(behind, "it waits for no body", 2_000)).message, "enough");
  assert.equal((await within(rejection(deposit(session, "never", { signal: AbortSignal.abort(new Error("before")) })), "nor does this", 2_000)).message, "before");
  before.abort(new Error("no more"));
  assert.equal((await endless).message, "no more");
  assert.deepEqual(await ran(last), { ran: "last" });
  assert.deepEqual([server.effects, server.frames[0].elements[0].session.seq], [["last"], 1]);
});

test("a call that is aborted at once is cancelled, and a call that is answered leaves no listener at its signal", async (t) => {
  const { semel, server } = await outbox(t);
  const session = await semel.session("accounts/a", "s");
  const aborting = new AbortController();
  server.each = (_call, serve) => (server.frames.length === 1 ? lost() : serve());
  const never = rejection(deposit(session, "never", { signal: aborting.signal }));
  aborting.abort();
  const error = await within(never, "it ends");
  assert.deepEqual([error.code, error.executed, server.effects], ["cancelled", "no", []]);
  const { signal } = new AbortController();
  await deposit(session, "x", { signal });
  assert.deepEqual([server.effects, getEventListeners(signal, "abort").length], [["x"], 0]);
});
