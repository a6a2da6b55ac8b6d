// Tests the command line at a terminal, where it asks questions, draws a progress bar and uses colours. The test provides the streams.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { createServer } from "node:http";
import { PassThrough } from "node:stream";
import { after, test } from "node:test";
import { forget } from "../../sdk/cli/commands.js";
import { main } from "../../sdk/cli/main.js";
import { Terminal, safe, safeLine } from "../../sdk/cli/terminal.js";
import { until } from "../e2e/lossy.mjs";
import { TOKEN, startFake } from "./fake.mjs";
import { SMALL, idOf, keys, numberOf, sentBy, stateOf } from "./world.mjs";

const LIMIT = { timeout: 20_000 };
const CSI = "\x1b[";

const fake = await startFake(after);

/** Starts the command at a terminal. */
function begin(args, env = {}, { isErrorSeen = true } = {}) {
  const stream = () => Object.assign(new PassThrough(), { isTTY: true, columns: 100, setRawMode() {} });
  const [stdin, stdout, stderr] = [stream(), stream(), stream()];
  stderr.isTTY = isErrorSeen;
  const ran = { stdin, stdout: "", stderr: "", screen: "" };
  for (const [name, from] of Object.entries({ stdout, stderr })) {
    from.on("data", (chunk) => {
      ran[name] += chunk;
      ran.screen += chunk;
    });
  }
  ran.ended = main(args, { version: "0.0.0", env: { SEMEL_URL: fake.url, SEMEL_ADMIN_TOKEN: TOKEN, ...env }, stdin, stdout, stderr, onInterrupt: (interrupt) => (ran.interrupt = interrupt) });
  ran.answer = async (question, text) => {
    await until(() => ran.stderr.includes(question), question);
    stdin.write(`${text}\n`);
    return ran.ended;
  };
  return ran;
}

test("delete of a key asks for the key's name to be typed, and anything else changes nothing", LIMIT, async () => {
  const [done, { key }] = [fake.done.length, keys[88]];
  const wrong = begin(["delete", key]);
  assert.equal(await wrong.answer("Type the name of the key to go on: ", "yes"), 1);
  assert.match(wrong.stderr, /can't be had back[\s\S]*Nothing was changed\.\n$/);
  assert.equal(fake.done.length, done);
  assert.equal(await begin(["delete", key]).answer("to go on: ", key), 0);
  assert.deepEqual(fake.done.slice(done), [`DELETE keys/${key}`]);
});

test("delete of a key that has still something to send says how much, and that it is never sent; for any other key it does not", LIMIT, async (t) => {
  const [{ key }, { key: other }] = [keys[89], keys[90]];
  fake.effects.set(key, sentBy()).set(other, null);
  t.after(() => fake.effects.clear());
  for (const [name, says] of [[key, true], [other, false]]) {
    const ran = begin(["delete", name]);
    assert.equal(await ran.answer("Type the name of the key to go on: ", "no"), 1);
    assert.equal(/ goes too, and is never sent: 1,209 requests, for example/.test(ran.stderr), says, ran.stderr);
    assert.equal(/ is never sent/.test(ran.stderr), says);
  }
});

test("delete of a record asks y or N, and only y deletes it", LIMIT, async () => {
  const done = fake.done.length;
  let n = 0;
  while (stateOf(n) !== "executed") n += 1;
  const id = idOf(numberOf(SMALL), n);
  for (const answer of ["", "n", id]) assert.equal(await begin(["delete", SMALL, id]).answer("[y/N] ", answer), 1);
  assert.equal(fake.done.length, done);
  assert.equal(await begin(["delete", SMALL, id]).answer("[y/N] ", "y"), 0);
  assert.equal(fake.done.length, done + 1);
});

test("cancel at a key that nobody has used asks first, except with --yes or --again", LIMIT, async () => {
  const [done, key] = [fake.done.length, `${SMALL}-mistyped`];
  const wrong = begin(["cancel", key, "an-id"]);
  assert.equal(await wrong.answer("[y/N] ", ""), 1);
  assert.match(wrong.stderr, /Nobody has used accounts\/alice-mistyped, and[\s\S]*Nothing was changed\.\n$/);
  assert.equal(fake.done.length, done);
  const alone = begin(["cancel", key, "an-id"], {}, { isErrorSeen: false });
  assert.equal(await alone.ended, 2);
  assert.match(alone.stderr, /^Nobody has used accounts\/alice-mistyped, and[^\n]*\n[^\n]*Add --yes\.\n$/);
  assert.equal(await begin(["cancel", key, "an-id"]).answer("[y/N] ", "y"), 0);
  assert.equal(await begin(["cancel", key, "another", "--yes"]).ended, 0);
  assert.equal(await begin(["cancel", key, "a-third", "--again", `of-before@${Math.floor(Date.now() / 1000)}`]).ended, 0);
  assert.equal(await begin(["cancel", SMALL, "no-question"]).ended, 0);
  assert.deepEqual(fake.done.slice(done).map((line) => line.split(" ").at(-1)), ["an-id", "another", "a-third", "no-question"].map((id) => JSON.stringify({ id })));
});

test("delete of a record says in its question what the deletion does to a record in that state", LIMIT, async () => {
  fake.doubt(SMALL, "doubt");
  const idIn = (state) => idOf(numberOf(SMALL), Array.from({ length: 1_200 }, (_, n) => n).findLast((n) => stateOf(n) === state));
  const asked = { [idIn("executed")]: /throws the outcome of/, [idIn("suspect")]: /has crashed, and may run .* If you delete its record, it never runs/, doubt: /gives it up.*can't be resolved any more.*`semel resolve`/, [idIn("poisoned")]: /never ran, and never will/ };
  for (const state of ["cancelled", "acknowledged", "expired"]) asked[idIn(state)] = /Of \S+ only the id is kept, and deleting leaves that as it is\./;
  for (const [id, question] of Object.entries(asked)) {
    const ran = begin(["delete", SMALL, id]);
    assert.equal(await ran.answer("[y/N] ", "n"), 1);
    assert.match(ran.stderr, question);
  }
  const nobody = begin(["delete", SMALL, "never seen"]);
  assert.equal(await nobody.ended, 1);
  assert.match(nobody.stderr, /^This key knows no such id\./);
});

test("effects --retry, --drop and --park say in their question what the change may do", LIMIT, async () => {
  const done = fake.done.length;
  const sent = { at: 0, method: "POST", url: "/accounts/bob/credit", bytes: 0, to: "accounts/bob" };
  const [first, parked] = ["a", "b"].map((digit) => digit.repeat(32));
  fake.effects.set(SMALL, { lanes: [{ ...sent, id: first, waiting: 1, attempts: 1, next: null, reason: null, closing: null }], parked: [{ ...sent, id: parked, number: 1, parked: 0, executed: "unknown", reason: "" }] });
  const asked = [
    ["--retry", parked, /If its RAN is unknown, it may have run, and would run a second time\./],
    ["--drop", parked, /throws the request away/],
    ["--park", first, /gives the request up/],
  ];
  for (const [option, id, question] of asked) {
    const ran = begin(["effects", SMALL, option, id]);
    assert.equal(await ran.answer("[y/N] ", "n"), 1);
    assert.match(ran.stderr, question);
    assert.match(ran.stderr, /Nothing was changed\.\n$/);
  }
  assert.equal(fake.done.length, done);
  assert.equal(await begin(["effects", SMALL, "--retry", parked]).answer("[y/N] ", "y"), 0);
  assert.equal(fake.done.length, done + 1);
});

test("a command that goes on with an earlier change and stops before it is sent says only of this run that it changed nothing", LIMIT, async () => {
  const done = fake.done.length;
  const again = ["--again", `of-before@${Math.floor(Date.now() / 1000)}`];
  for (const args of [["resolve", SMALL, "an-id", "--executed", "no"], ["delete", SMALL], ["forget", "--before", "30d"], ["effects", SMALL, "--drop", "a".repeat(32)]]) {
    for (const isInterrupted of [true, false]) {
      const ran = begin([...args, ...again, "--json"]);
      await until(() => /to go on: |\[y\/N\] /.test(ran.stderr), "it asks");
      if (isInterrupted) ran.interrupt();
      else ran.stdin.write("n\n");
      assert.equal(await ran.ended, isInterrupted ? 130 : 1, args.join(" "));
      assert.equal(JSON.parse(ran.stderr.trimEnd().split("\n").at(-1)).error.executed, "unknown", args.join(" "));
    }
  }
  const plain = begin(["delete", SMALL, ...again]);
  assert.equal(await plain.answer("to go on: ", "no"), 1);
  assert.match(plain.stderr, /\nThis run changed nothing\. It can't be known whether the earlier one did\.\n$/);
  fake.faults.push({ on: "read", kind: 403, code: "forbidden" });
  const unread = begin(["delete", SMALL, ...again, "--json", "--timeout", "0"]);
  assert.equal(await unread.ended, 1);
  assert.equal(JSON.parse(unread.stderr.trimEnd().split("\n").at(-1)).error.executed, "unknown");
  assert.equal(fake.done.length, done);
});

test("an interrupt at a question changes nothing, and says so", LIMIT, async () => {
  const done = fake.done.length;
  const ran = begin(["delete", SMALL]);
  await until(() => ran.stderr.includes("to go on: "), "it asks");
  ran.interrupt();
  assert.equal(await ran.ended, 130);
  assert.match(ran.stderr, /\nInterrupted\.\nNothing was changed\.\n$/);
  assert.equal(fake.done.length, done);
});

test("the end of input at a question, by Ctrl-D or a closed terminal, counts as no", LIMIT, async () => {
  const done = fake.done.length;
  for (const end of [(stdin) => stdin.write("\x04"), (stdin) => stdin.end()]) {
    for (const args of [["delete", SMALL], ["forget", "--before", "30d"]]) {
      const ran = begin(args);
      await until(() => /to go on: |\[y\/N\] /.test(ran.stderr), "it asks");
      end(ran.stdin);
      assert.equal(await ran.ended, 1, args.join(" "));
      assert.match(ran.stderr, /\nNothing was changed\.\n$/);
    }
  }
  assert.equal(fake.done.length, done);
});

test("if stderr is no terminal, a question is not asked, and the command wants --yes", LIMIT, async () => {
  const done = fake.done.length;
  const ran = begin(["delete", SMALL], {}, { isErrorSeen: false });
  assert.equal(await ran.ended, 2);
  assert.match(ran.stderr, /Add --yes\./);
  assert.equal(fake.done.length, done);
});

test("forget says what every key forgets and since when, and asks before it begins", LIMIT, async () => {
  const done = fake.done.length;
  const no = begin(["forget", "--before", "30d"]);
  assert.equal(await no.answer("[y/N] ", "n"), 1);
  assert.match(no.stderr, /Every key forgets what was first sent before 2026-10-22T12:00:00Z, 30 days ago,.* It can't be undone\. Go on\?[\s\S]*Nothing was changed\.\n$/);
  assert.equal(fake.done.length, done);
  assert.equal(await begin(["forget", "--before", "30d"]).answer("[y/N] ", "y"), 0);
  assert.equal(fake.done.length, done + 1);
});

test("the command to run again is quoted for the shell, with dashes, quotes and invisible characters in a name", LIMIT, async () => {
  const id = "-V1StGXR8_Z5jdHi6B-myT";
  for (const key of ["accounts/o'brien \\ $(x)", "users/\u200c\u{1f468}\u200d\u{1f467}'\\\u202e", "-h"]) {
    fake.faults.push({ on: "change", kind: "lose-answer" });
    const ran = begin(["cancel", "--timeout", "0", "--yes", "--", key, id]);
    assert.equal(await ran.ended, 1);
    const [, again] = /^Run it again like this: semel (.*)\n$/m.exec(ran.stderr) ?? [];
    assert.ok(again, ran.stderr);
    const words = execFileSync("bash", ["--norc", "-c", `printf '%s\\0' ${again}`]).toString().split("\0").slice(0, -1);
    assert.deepEqual(words.slice(-2), [key, id]);
    assert.equal(await begin(words).ended, 0);
    const calls = fake.calls.filter(({ method }) => method === "POST").slice(-2);
    assert.deepEqual(calls.map(({ path, id: change }) => [path, change]), Array(2).fill([`/semel/v1/admin/keys/${encodeURIComponent(key)}/cancel`, calls[0].id]));
  }
});

test("a value may begin with a dash, but after an option of a command one that begins with -V is wrong usage", LIMIT, async () => {
  for (const token of ["-Vhush", "-yhush"]) {
    const ran = begin(["keys", "--token", token]);
    assert.equal(await ran.ended, 1);
    assert.match(ran.stderr, /^The administration token was refused\./);
  }
  fake.doubt(SMALL, "-dash");
  const ran = begin(["resolve", "--executed", "yes", "--status", "200", "--body", "-yes", "-y", "--", SMALL, "-dash"]);
  assert.equal(await ran.ended, 0, ran.stderr);
  assert.match(fake.done.at(-1), /"body":"-yes"/);
  const wrong = begin(["resolve", SMALL, "a", "--executed", "yes", "--status", "200", "--body", "-Value", "-y"]);
  assert.equal(await wrong.ended, 2, "commander would print the version");
});

test("a progress bar shows how far a forget is, on stderr only", LIMIT, async () => {
  const ran = begin(["forget", "--before", "30d", "--yes"]);
  assert.equal(await ran.ended, 0);
  const bars = [...ran.stderr.matchAll(/\r\[(#*)(-*)\] ([\d,]+) of 9,999 keys/g)].map(([, full, empty, count]) => [full.length, full.length + empty.length, count]);
  assert.deepEqual(bars, [[0, 30, "0"], [7, 30, "2,500"], [15, 30, "5,000"], [22, 30, "7,500"], [30, 30, "9,999"]]);
  assert.ok(ran.stderr.endsWith("\x1b[K\n"), "what comes then has a line of its own");
  assert.equal(ran.stdout, "9,999 keys have forgotten what was first sent before 2026-10-22T12:00:00Z.\n");
});

test("a progress bar shows how many of all keys are listed, and stdout has nothing of it", LIMIT, async () => {
  const ran = begin(["keys", "--all", "--order", "name", "--prefix", "carts/1"]);
  assert.equal(await ran.ended, 0);
  const found = keys.filter(({ key }) => key.startsWith("carts/1")).length.toLocaleString("en-US");
  const bars = [...ran.stderr.matchAll(/\r\[(#*)(-*)\] ([\d,]+) of ([\d,]+) keys/g)];
  assert.ok(bars.length > 1, ran.stderr);
  for (const [, full, empty, , all] of bars) assert.deepEqual([full.length + empty.length, all], [30, found]);
  assert.deepEqual([bars.at(-1)[1].length, bars.at(-1)[3]], [30, found]);
  assert.doesNotMatch(ran.stdout, /\r|#####/);
  assert.ok(ran.screen.includes("\x1b[K\n\x1b[1mKEY "), "the list begins on a line of its own");
});

test("control, invisible and direction-changing characters are escaped in text and in JSON", LIMIT, async () => {
  const hostile = "a\x00\x1b[2J\x7f\x9b\u061c\u200b\u200e\u2028\u202e\u2066\ufeff\ud800\u{e0041}z";
  assert.equal(safe(`${hostile}\n\t`), "a\\u{0}\\u{1b}[2J\\u{7f}\\u{9b}\\u{61c}\\u{200b}\\u{200e}\\u{2028}\\u{202e}\\u{2066}\\u{feff}\\u{d800}\\u{e0041}z\n\t");
  assert.equal(safeLine("a\r\nb\tc"), "a\\u{d}\\nb\\tc");
  const stdout = new PassThrough();
  new Terminal({ env: {}, stdout, stderr: stdout, isJson: true }).json({ [hostile]: hostile });
  const line = stdout.read().toString();
  assert.match(line, /^[\x20-\x7e]+\n$/);
  assert.deepEqual(JSON.parse(line), { [hostile]: hostile });
});

test("control characters in place of a number, or in a refusal that is tried again, can't steer the terminal either", LIMIT, async (t) => {
  const steering = "\u001b]0;owned\u0007";
  const record = { id: "a", state: "executed", at: 1, principal: "p", firstSent: null, deadline: null, lapses: null, crashes: null, executed: "yes", status: steering, bytes: 1, outcome: { status: steering, headers: {}, body: "" } };
  const key = { key: SMALL, created: 1, seen: 1, now: 1, oldest: null, records: steering, tombstones: 0, sessions: steering, bytes: 1, recordsMax: 9, tombstonesMax: steering, bytesMax: 9, retentionSeconds: 1, fence: 0, forgottenBefore: 0, counters: { a: steering } };
  const bodies = { "/keys?": { keys: [key], next: null, total: steering }, "/records?": { records: [record], next: null }, "/records/": record, "/effects": { count: steering, max: steering, lanes: [], parked: [], next: null } };
  let isReady = false;
  const host = createServer((request, response) => {
    const headers = { "semel-status": "read", "semel-now": "1" };
    isReady = !isReady;
    if (isReady) return response.writeHead(503, headers).end(JSON.stringify({ code: "unavailable", title: steering, detail: "x", executed: "unknown", retry: "same-id" }));
    const [, body = key] = Object.entries(bodies).find(([part]) => request.url.includes(part)) ?? [];
    response.writeHead(200, headers).end(JSON.stringify(body));
  });
  await new Promise((resolve) => host.listen(0, "127.0.0.1", resolve));
  t.after(() => host.closeAllConnections() ?? host.close());
  for (const args of [["keys"], ["records", SMALL], ["show", SMALL], ["show", SMALL, "a"], ["effects", SMALL]]) {
    isReady = false;
    const ran = begin(args, { SEMEL_URL: `http://127.0.0.1:${host.address().port}`, NO_COLOR: "1" });
    assert.equal(await ran.ended, 0, args.join(" "));
    assert.match(ran.stderr, /: x\. Trying again/);
    assert.ok(!ran.screen.replaceAll("\x1b[K", "").includes("\u001b"), `${args.join(" ")}: ${JSON.stringify(ran.screen)}`);
  }
});

test("one long name makes no other line of a table longer", LIMIT, () => {
  const stdout = new PassThrough();
  const terminal = new Terminal({ env: { NO_COLOR: "1" }, stdout, stderr: stdout, isJson: false });
  terminal.table([["KEY", "SIZE"], ["a", "1 B"], ["x".repeat(500), "2 B"]], [1]);
  const lines = stdout.read().toString().split("\n");
  assert.deepEqual(lines.map(({ length }) => length), [75, 75, 506, 0]);
});

test("the column of ids is wide enough for an id that is a hash", LIMIT, () => {
  const stdout = new PassThrough();
  const terminal = new Terminal({ env: { NO_COLOR: "1" }, stdout, stderr: stdout, isJson: false });
  terminal.table([["ID", "STATE"], ["x9", "executed"], [`hash-${"0".repeat(64)}`, "executed"]], []);
  const lines = stdout.read().toString().trim().split("\n");
  assert.deepEqual(lines.slice(1).map((line) => line.indexOf("executed")), [71, 71]);
});

test("a forget without progress for 30 s ends as an error", LIMIT, async (t) => {
  t.mock.timers.enable({ apis: ["Date"], now: Date.now() });
  const session = {
    options: { before: "1d", wait: true, timeout: 0, yes: true },
    signal: new AbortController().signal,
    terminal: { isJson: true, progress: () => t.mock.timers.tick(31_000) },
    admin: {
      now: async () => Date.now(),
      forget: async (_, change) => Object.assign(change, { firstSent: 1 }) && { id: "1", state: "running", keys: 3, done: 1 },
      forgetting: async () => ({ id: "1", state: "running", keys: 3, done: 1, failed: ["accounts/\x1bstuck"] }),
    },
  };
  const error = await forget(session).then(() => assert.fail("it ended well"), (failure) => failure);
  assert.equal(error.json.code, "standstill");
  assert.match(error.lines.join("\n"), /^The forget makes no progress\./);
});

test("--json has no progress bar, and NO_COLOR or a dumb terminal has no colours", LIMIT, async () => {
  const json = begin(["forget", "--before", "30d", "--yes", "--json"]);
  assert.equal(await json.ended, 0);
  assert.equal(json.stderr, "");
  assert.equal(JSON.parse(json.stdout).state, "done");
  for (const [env, isColoured] of [[{}, true], [{ NO_COLOR: "1" }, false], [{ TERM: "dumb" }, false]]) {
    const ran = begin(["show", SMALL], env);
    assert.equal(await ran.ended, 0);
    assert.equal(ran.stdout.includes(CSI), isColoured);
  }
});

test("the command to run again repeats every option of the first run, and asks no question", LIMIT, async () => {
  fake.doubt(SMALL, "unanswered");
  const { key } = keys[77];
  for (const args of [["resolve", SMALL, "unanswered", "--executed", "yes", "--status", "201", "--type", "text/plain", "--body", "it's done"], ["delete", key, "--whole"], ["forget", "--before", "30d", "--no-wait"]]) {
    const done = fake.done.length;
    fake.faults.push({ on: "change", kind: "lose-answer" });
    const lost = begin([...args, "--yes", "--timeout", "0"]);
    assert.equal(await lost.ended, 1);
    const [, again] = /^Run it again like this: semel (.*)\n$/m.exec(lost.stderr) ?? [];
    const words = execFileSync("bash", ["--norc", "-c", `printf '%s\\0' ${again}`]).toString().split("\0").slice(0, -1);
    const ran = begin(words);
    assert.equal(await ran.ended, 0, ran.stderr);
    assert.equal(fake.done.length, done + 1, "it is made once");
  }
});
