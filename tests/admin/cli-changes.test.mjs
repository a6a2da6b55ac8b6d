// Tests the changes that `npx semel` makes, packed and installed, against the made-up deployment: each is made once, and of one whose outcome is
// unknown the command says so, and how to repeat it.

import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import { after, test } from "node:test";
import { until } from "../e2e/lossy.mjs";
import { idIn, installed, jsonOf, linesOf } from "./cli.mjs";
import { FOREIGN, HEAVY, KEYS, NOW_MS, SMALL, effectIdOf, keys } from "./world.mjs";

const LIMIT = { timeout: 30_000 };
const { fake, begin, semel } = await installed(after);

test("a change whose answer is lost, and whose next attempt gets 503, is made once", LIMIT, async () => {
  const done = fake.done.length;
  const id = idIn("suspect");
  fake.faults.push({ on: "change", kind: "lose-answer" }, { on: "change", kind: 503, code: "unavailable" });
  const { code, stdout, stderr } = await semel(["cancel", SMALL, id]);
  assert.deepEqual([code, stdout], [0, "It is cancelled: from now on it never runs.\n"]);
  assert.match(stderr, /^The server can't be reached: other side closed\. Trying again, for up to 60 s…\n$/);
  assert.deepEqual(fake.done.slice(done), [`POST keys/${SMALL}/cancel ${JSON.stringify({ id })}`]);
});

test("cancel fails for a request that has run, which keeps its state, and for one that is acknowledged", LIMIT, async () => {
  const ran = await semel(["cancel", SMALL, idIn("executed"), "--json"]);
  assert.equal(ran.code, 1);
  assert.deepEqual([JSON.parse(ran.stdout).state, JSON.parse(ran.stderr).error.code], ["executed", "executed"]);
  const over = await semel(["cancel", SMALL, idIn("acknowledged")]);
  assert.deepEqual([over.code, over.stdout], [1, ""]);
  assert.match(over.stderr, /^The client has acknowledged this request/);
});

test("resolve gives a request in doubt an outcome or cancels it, once though an answer is lost, and leaves others alone", LIMIT, async () => {
  for (const id of ["doubt-1", "doubt-2", "doubt-3"]) fake.doubt(SMALL, id);
  const done = fake.done.length;
  const some = await semel(["keys", "--state", "in-doubt"]);
  assert.match(some.stdout, /^KEY +RECORDS +IN DOUBT +SIZE .*\naccounts\/alice +\d+ +3 +\d/);
  assert.equal(some.stderr, "1 of 1 key, as they told the registry last. What changed within the last minute may not be there yet.\n");
  assert.deepEqual(jsonOf((await semel(["keys", "--state", "in-doubt", "--order", "heaviest", "--all", "--json"])).stdout).map(({ key, inDoubt }) => [key, inDoubt]), [[SMALL, 3]]);
  assert.deepEqual(await semel(["keys", "--state", "in-doubt", "--prefix", "carts/"]), { code: 0, stdout: "", stderr: "There are no such keys, as they told the registry last. What changed within the last minute may not be there yet.\n" });
  assert.match((await semel(["show", SMALL])).stdout, /^ *in doubt +3$/m);
  assert.match((await semel(["show", SMALL, "doubt-1"])).stdout, /in-doubt: It was sent to the upstream, and has no outcome/);
  fake.faults.push({ on: "change", kind: "lose-answer" });
  const ran = await semel(["resolve", SMALL, "doubt-1", "--executed", "yes", "--status", "201", "--type", "application/json", "--body", '{"order":7}', "--yes"]);
  assert.deepEqual([ran.code, ran.stdout], [0, "It is resolved: every attempt gets this outcome.\n"], ran.stderr);
  assert.match((await semel(["show", SMALL, "doubt-1"])).stdout, /Status 201[\s\S]*content-type: application\/json[\s\S]*"order": 7/);
  const not = await semel(["resolve", SMALL, "doubt-2", "--executed", "no", "--yes", "--json"]);
  assert.deepEqual([not.code, JSON.parse(not.stdout)], [0, { state: "cancelled", executed: "no" }]);
  const over = await semel(["resolve", SMALL, "doubt-2", "--executed", "no", "--yes"]);
  assert.deepEqual([over.code, over.stderr], [1, "This id is not in doubt, and keeps what it has.\nNothing was changed.\n"]);
  fake.faults.push({ on: "change", kind: 409, code: "locked" });
  const under = await semel(["resolve", SMALL, "doubt-3", "--executed", "no", "--yes", "--timeout", "0"]);
  assert.match(under.stderr, /^A request of this key is under way to the upstream\.\nNothing was changed\.\nTry again when it has ended/);
  assert.deepEqual(fake.done.slice(done), [
    `POST keys/${SMALL}/records/doubt-1/resolve {"executed":"yes","outcome":{"status":201,"headers":{"content-type":"application/json"},"body":"{\\"order\\":7}"}}`,
    `POST keys/${SMALL}/records/doubt-2/resolve {"executed":"no"}`,
  ]);
});

test("effects lists waiting and parked effects, and retries, drops or parks one, once though an answer is lost", LIMIT, async () => {
  const one = { at: NOW_MS - 300_000, method: "POST", url: "/accounts/bob/deposit", bytes: 20 };
  const lane = { id: effectIdOf(900), to: "accounts/bob", waiting: 1_200, attempts: 17, next: NOW_MS + 1_000, reason: "503 unavailable", closing: null, ...one };
  const parked = Array.from({ length: 201 }, (_, at) => ({ id: effectIdOf(at + 1), number: at + 1, to: "accounts/\u001bcarl", parked: NOW_MS - 60_000, executed: "no", reason: "422: no such account", ...one }));
  fake.effects.set(SMALL, { lanes: [lane], parked });
  const shown = await semel(["effects", SMALL]);
  assert.deepEqual([shown.code, shown.stderr], [0, "1,401 of at most 10,000, 201 of them parked\n"]);
  const [head, waits, , title, first] = linesOf(shown.stdout);
  assert.match(head, /^FIRST +TO +WAITING {2}SINCE +TRIED {2}REQUEST +WHY IT WAITS$/);
  assert.match(waits, /^0{29}384 {2}accounts\/bob +1,200 {2}5 min ago +17 {2}POST \/accounts\/bob\/deposit {2}503 unavailable$/);
  assert.match(title, /^PARKED +TO +SINCE +RAN +REQUEST +WHY$/);
  assert.match(first, /^0{31}1 {2}accounts\/[^\u001b]*carl +1 min ago {2}no +POST \/accounts\/bob\/deposit {2}422: no such account$/);
  assert.deepEqual(jsonOf((await semel(["effects", SMALL, "--json"])).stdout).map((page) => page.parked.length), [200, 1]);
  const done = fake.done.length;
  fake.faults.push({ on: "change", kind: "lose-answer" });
  assert.deepEqual((await semel(["effects", SMALL, "--retry", effectIdOf(17), "--yes"])).stdout, "It is sent again, as a new one, behind all that waits.\n");
  assert.deepEqual((await semel(["effects", SMALL, "--drop", effectIdOf(18), "--yes"])).stdout, "It is dropped.\n");
  assert.deepEqual(JSON.parse((await semel(["effects", SMALL, "--park", effectIdOf(900), "--yes", "--json"])).stdout), { state: "closing" });
  assert.deepEqual(fake.done.slice(done), [[17, "retry"], [18, "drop"], [900, "park"]].map(([n, what]) => `POST keys/${SMALL}/effects/${effectIdOf(n)}/${what}`));
  const gone = await semel(["effects", SMALL, "--drop", effectIdOf(18), "--yes"]);
  assert.deepEqual([gone.code, gone.stderr], [1, "No request with that id is parked.\nNothing was changed.\n"]);
  const goneBefore = await semel(["effects", SMALL, "--drop", effectIdOf(18), "--yes", "--again", `0f2b1c34-0000-4000-8000-000000000018@${NOW_MS / 1000}`]);
  assert.deepEqual([goneBefore.code, goneBefore.stderr], [1, "No request with that id is parked.\nIt can't be known whether the change was made.\n"]);
  // The server shows at most 50 destinations.
  fake.effects.set(FOREIGN, { lanes: Array.from({ length: 50 }, (_, at) => ({ ...lane, id: effectIdOf(at + 1), waiting: 2 })), parked: [] });
  assert.equal((await semel(["effects", FOREIGN])).stderr, "100 of at most 10,000, 0 of them parked. The first 50 of those that are sent to are shown.\n");
  assert.deepEqual(await semel(["effects", HEAVY]), { code: 0, stdout: "", stderr: "0 of at most 10,000, 0 of them parked\n" });
  fake.effects.set(HEAVY, null);
  const mended = [[], ["--retry", effectIdOf(1), "--yes"], ["--drop", effectIdOf(1), "--yes"], ["--park", effectIdOf(1), "--yes"]];
  for (const options of mended) {
    // A key that is listed must not be reported as missing.
    const { code, stderr } = await semel(["effects", HEAVY, ...options]);
    assert.deepEqual([code, stderr.split("\n")[0]], [1, "There is no such key here, or its handler has sent nothing."], options.join(" "));
  }
  assert.match((await semel(["effects", "nobody"])).stderr, /^There is no such key here, or its handler has sent nothing\.\n/);
});

test("a change without an answer in time is reported as unknown, and --again repeats it under its id, so it is made once", LIMIT, async () => {
  const done = fake.done.length;
  const id = idIn("poisoned");
  fake.faults.push({ on: "change", kind: "lose-answer" });
  const lost = await semel(["delete", SMALL, id, "--yes", "--timeout", "0"]);
  assert.equal(lost.code, 1);
  const [, again] = /^It can't be known whether the change was made\.[\s\S]*\nRun it again like this: semel (.*)$/m.exec(lost.stderr.replace(/^The server.*\n/, "")) ?? [];
  assert.ok(again, lost.stderr);
  assert.match((await semel([...again.split(" ").slice(0, -1), again.split("@")[0].split(" ").at(-1)])).stderr, /names no earlier change/, "an id alone could be made once more");
  const second = await semel(again.split(" "));
  const attempts = fake.calls.filter(({ method, path }) => method === "DELETE" && path.endsWith(`/records/${id}`));
  assert.equal(new Set(attempts.map(({ id: sent, firstSent }) => `${sent} ${firstSent}`)).size, 1);
  assert.ok(attempts.length >= 2);
  assert.deepEqual([second.code, second.stdout], [0, "The record is reduced to its id. Did it run: no, and it never will.\n"]);
  assert.deepEqual(fake.done.slice(done), [`DELETE keys/${SMALL}/records/${id}`]);
  const third = await semel(again.split(" "));
  assert.deepEqual([third.code, third.stdout], [1, ""]);
  assert.match(third.stderr, /this change, which may then have been made already\.\nIt can't be known whether the change was made\.\nLook at what it was to change[^\n]*\n$/, "run again it would say the same");
});

test("with --json a change that was tried again and stays unknown says so in JSON alone, with what --again goes on with", LIMIT, async () => {
  const done = fake.done.length;
  const id = idIn("poisoned", (id) => !fake.done.some((each) => each.endsWith(`/records/${id}`)));
  fake.faults.push({ on: "change", kind: "lose-answer" }, { on: "change", kind: "lose-answer" });
  const lost = await semel(["delete", SMALL, id, "--yes", "--timeout", "2", "--json"]);
  assert.deepEqual([lost.code, lost.stdout], [1, ""]);
  const [{ error }, ...others] = jsonOf(lost.stderr);
  assert.deepEqual([others, error.executed, error.again.split("@")[0]], [[], "unknown", error.id]);
  const again = await semel(["delete", SMALL, id, "--yes", "--json", "--again", error.again]);
  assert.equal(again.code, 0, again.stderr);
  assert.deepEqual(fake.done.slice(done), [`DELETE keys/${SMALL}/records/${id}`]);
  const refused = await semel(["cancel", SMALL, "none", "--json", "--token", "wrong-token-of-nobody"]);
  assert.deepEqual([refused.code, jsonOf(refused.stderr)[0].error.again], [1, undefined]);
});

test("the command to run again names the deployment of the first run, whatever SEMEL_URL says by then", LIMIT, async () => {
  const elsewhere = { SEMEL_URL: "http://127.0.0.1:1" };
  fake.faults.push({ on: "change", kind: "lose-answer" });
  const named = await semel(["cancel", SMALL, "of-another-url", "--url", fake.url, "--timeout", "0"], { env: elsewhere });
  fake.faults.push({ on: "change", kind: "lose-answer" });
  const ofEnvironment = await semel(["cancel", SMALL, "of-this-url", "--timeout", "0"]);
  for (const { stderr } of [named, ofEnvironment]) {
    const [, again] = /Run it again like this: semel (.*)$/m.exec(stderr) ?? [];
    assert.ok(again?.startsWith(`--url ${fake.url} cancel `), stderr);
    assert.deepEqual((await semel(again.split(" "), { env: elsewhere })).stdout, "It is cancelled: from now on it never runs.\n");
  }
});

test("Ctrl-C before a change has been sent says that nothing was changed", LIMIT, async (t) => {
  const silent = createServer(() => {});
  const asked = once(silent, "request");
  await new Promise((resolve) => silent.listen(0, "127.0.0.1", resolve));
  t.after(() => silent.closeAllConnections() ?? silent.close());
  const cancelling = begin(["cancel", SMALL, "a"], { env: { SEMEL_URL: `http://127.0.0.1:${silent.address().port}` } });
  await asked;
  cancelling.child.kill("SIGINT");
  const { code, stderr } = await cancelling.ended;
  assert.deepEqual([code, stderr], [130, "Interrupted.\nNothing was changed.\n"]);
});

test("delete --whole deletes a key, which show then does not find", LIMIT, async () => {
  const { key } = keys[77];
  const { code, stdout } = await semel(["delete", key, "--whole", "--yes", "--json"]);
  assert.deepEqual([code, JSON.parse(stdout)], [0, { state: "deleted", fence: 1795262400 }]);
  assert.equal((await semel(["show", key])).code, 1);
});

test("forget waits until every key has forgotten, or with --no-wait only begins; a time in the future is refused", LIMIT, async () => {
  const waited = await semel(["forget", "--before", "30d", "--yes"]);
  assert.deepEqual([waited.code, waited.stdout, waited.stderr], [0, "9,999 keys have forgotten what was first sent before 2026-10-22T12:00:00Z.\n", ""]);
  const begun = await semel(["forget", "--before", "2026-10-22", "--no-wait", "--yes", "--json"]);
  const { id, ...job } = JSON.parse(begun.stdout);
  assert.deepEqual(job, { before: Date.UTC(2026, 9, 22) / 1000, state: "running", keys: KEYS - 1, done: 0 });
  const ahead = await semel(["forget", "--before", "2026-11-21T12:00:01Z", "--yes"]);
  assert.deepEqual([ahead.code, fake.done.filter((what) => what.startsWith("POST forget")).length], [2, 2]);
});

test("Ctrl-C during a change says that its outcome is unknown; during a forget, that it goes on, and how to look again", LIMIT, async (t) => {
  let go;
  const held = { on: "change", kind: "hold", until: new Promise((resolve) => (go = resolve)) };
  fake.faults.push(held, held);
  t.after(() => go());
  const calls = fake.calls.length;
  // SIGTERM is what `timeout` sends, which scripts use.
  for (const [at, signal] of ["SIGINT", "SIGTERM"].entries()) {
    const cancelling = begin(["cancel", SMALL, "a b"]);
    await until(() => fake.calls.slice(calls).filter(({ method }) => method === "POST").length > at, "it is on its way");
    cancelling.child.kill(signal);
    const { code, stderr } = await cancelling.ended;
    assert.match(`${code} ${stderr}`, /^130 Interrupted\.\nIt can't be known whether the change was made\.\nRun it again like this: semel --url \S+ cancel accounts\/alice 'a b' --again [0-9a-f-]{36}@\d{10}\n$/);
  }
  go();

  const forgetting = begin(["forget", "--before", "7d", "--yes"]);
  await until(() => fake.done.filter((what) => what.startsWith("POST forget")).length === 3, "it has begun");
  await until(() => fake.calls.at(-1).path.includes("/forget/"), "it waits");
  forgetting.child.kill("SIGINT");
  const ended = await forgetting.ended;
  const [, again] = /^130 Interrupted\.\nThe deployment goes on with it\. To look again: semel (.*)\n$/.exec(`${ended.code} ${ended.stderr}`) ?? [];
  assert.ok(again, ended.stderr);
  const looked = await semel(again.split(" "));
  assert.deepEqual([looked.code, linesOf(looked.stdout)], [0, ["9,999 keys have forgotten what was first sent before 2026-11-14T12:00:00Z."]]);
  assert.equal(fake.done.filter((what) => what.startsWith("POST forget")).length, 3, "to look again begins nothing");
});
