// Tests what the lab shows, computed from what the page recorded and what the server logged.

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { AMOUNT, SILENT_MS_MAX } from "../../www/lab/limits.js";
import { FATES, byLane, countsOf, laneOf, outcomeOf, totalsOf } from "../../www/lab/model.js";

const SENT_MS = 5_000;
const SOON_MS = SENT_MS + 1;
const SILENT_MS = SENT_MS + SILENT_MS_MAX + 1;

/** An attempt as the network records it. */
const attempt = (members = {}) => ({ id: "1-naive-a", click: 1, lane: "naive", sentMs: SENT_MS, fate: "executed", answer: "came", isCopy: false, endMs: SENT_MS + 20, ...members });
const onItsWay = (members) => attempt({ fate: "sent", answer: "waiting", endMs: undefined, ...members });
const lost = (why, members) => attempt({ fate: "lost", why, answer: "lost", ...members });
const log = (...entries) => new Map(entries);

/** Several attempts, each with its own id. */
const many = (...attempts) => attempts.map((one, k) => ({ ...one, id: `1-naive-${k}`, sentMs: SENT_MS + k }));
const lane = (attempts, { logged = log(), nowMs = SOON_MS, state = "waiting" } = {}) => laneOf({ naive: state, semel: "other" }, "naive", attempts, logged, nowMs);
const texts = (attempts, options) => lane(attempts, options).marks.map(({ text }) => text);

describe("the outcome of an attempt", () => {
  test("is what the page saw if the log has nothing of it", () => {
    for (const fate of ["sent", "lost", "executed", "replayed", "late", "refused"]) assert.equal(outcomeOf(attempt({ fate }), log(), SOON_MS).fate, fate);
  });

  test("is what the server logged, whatever the page saw and however long ago", () => {
    for (const [status, fate] of [["executed", "executed"], ["replayed", "replayed"], ["attempt-expired", "late"], ["unauthorized", "refused"], ["failed", "refused"]]) {
      for (const seen of [onItsWay(), lost("server"), attempt(), attempt({ fate: "refused" })]) {
        for (const nowMs of [SOON_MS, SILENT_MS]) {
          const outcome = outcomeOf(seen, log(["1-naive-b", "none"], [seen.id, status]), nowMs);
          assert.deepEqual([outcome.fate, outcome.status], [fate, status]);
        }
      }
    }
  });

  test("of an attempt under way is open until it was silent too long, and then it is lost", () => {
    const last = SENT_MS + SILENT_MS_MAX;
    assert.equal(outcomeOf(onItsWay(), log(), last).fate, "sent");
    assert.equal(outcomeOf(onItsWay(), log(), last + 1).fate, "lost");
    assert.equal(outcomeOf(attempt(), log(), last + 1).fate, "executed", "one that was heard of stays what it was");
  });

  test("is unheard if the attempt reached the server and nobody got the answer", () => {
    const isUnheard = (seen, nowMs, ...entries) => outcomeOf(seen, log(...entries), nowMs).isUnheard;
    const logged = ["1-naive-a", "executed"];
    assert.equal(isUnheard(attempt(), SOON_MS), false);
    assert.equal(isUnheard(attempt(), SILENT_MS, logged), false, "it was heard then");
    assert.equal(isUnheard(attempt({ answer: "lost" }), SOON_MS), true);
    assert.equal(isUnheard(onItsWay(), SOON_MS, logged), false, "it may still be heard");
    assert.equal(isUnheard(onItsWay(), SENT_MS + SILENT_MS_MAX, logged), false);
    assert.equal(isUnheard(onItsWay(), SENT_MS + SILENT_MS_MAX + 1, logged), true);
    assert.equal(isUnheard(onItsWay({ answer: "lost" }), SOON_MS, logged), true, "its client has stopped waiting");
    assert.equal(isUnheard(lost("server"), SOON_MS, logged), true, "the server died before the answer left");
    for (const why of ["request", "offline", "server"]) assert.equal(isUnheard(lost(why), SOON_MS), false, "what did not arrive has no answer");
    assert.equal(isUnheard(onItsWay({ answer: "lost" }), SOON_MS), false);
    assert.equal(isUnheard(onItsWay(), SILENT_MS), false);
  });

  test("carries the id, whether it is a copy, why it was lost, and the times", () => {
    const outcome = outcomeOf(lost("offline", { isCopy: true }), log(), SOON_MS);
    assert.deepEqual(outcome, { id: "1-naive-a", fate: "lost", status: undefined, isUnheard: false, isCopy: true, why: "offline", startMs: SENT_MS, endMs: SENT_MS + 20 });
  });
});

describe("the attempts of a click", () => {
  test("are grouped by lane, in the order in which they were sent, whatever order they are stored in", () => {
    const all = [attempt({ id: "late", sentMs: 30 }), attempt({ id: "semel", lane: "semel", sentMs: 20 }), attempt({ id: "early", sentMs: 10 })];
    const { naive, semel } = byLane(new Map(all.map((one) => [one.id, one])).values());
    const ids = (list) => list.map(({ id }) => id);
    assert.deepEqual([ids(naive), ids(semel)], [["early", "late"], ["semel"]]);
    assert.deepEqual(byLane([]), { naive: [], semel: [] });
  });

  test("put a copy after its original if both were sent at once", () => {
    const [first, copy] = [attempt({ id: "b" }), attempt({ id: "a", isCopy: true })];
    for (const stored of [[first, copy], [copy, first]]) assert.deepEqual(byLane(stored).naive, [first, copy]);
  });
});

describe("a lane of a click", () => {
  test("has a mark for each attempt, with its words", () => {
    const words = [
      [onItsWay(), "sent"],
      [lost("request"), "lost, lost on the way"],
      [lost("offline"), "lost, offline"],
      [lost("server"), "lost, the server was down"],
      [lost("offline", { isCopy: true }), "lost, offline, a copy that the network made"],
      [attempt(), "executed"],
      [attempt({ fate: "replayed", answer: "lost" }), "replayed, its answer was lost"],
      [attempt({ fate: "late" }), "late"],
      [attempt({ fate: "refused" }), "refused"],
      [attempt({ fate: "replayed", answer: "lost", isCopy: true }), "replayed, a copy that the network made"],
    ];
    for (const [one, text] of words) {
      const { marks } = lane([one]);
      assert.deepEqual(marks.map(({ text, id, ids, count, startMs }) => [text, id, ids, count, startMs]), [[text, one.id, [one.id], 1, one.sentMs]]);
    }
    assert.deepEqual(texts([onItsWay()], { nowMs: SILENT_MS }), ["lost"], "nobody knows why");
  });

  test("counts executions, and marks each after the first as executed again", () => {
    const attempts = many(attempt(), lost("request"), attempt({ answer: "lost" }), attempt());
    const { marks, executed } = lane(attempts);
    assert.equal(executed, 3);
    assert.deepEqual(marks.map(({ fate }) => fate), ["executed", "lost", "again", "again"]);
    assert.deepEqual(marks.map(({ text }) => text), ["executed", "lost, lost on the way", "executed again, its answer was lost", "executed again"]);
    assert.equal(lane(many(onItsWay(), onItsWay()), { logged: log(["1-naive-1", "executed"]) }).executed, 1, "as the log has it");
    assert.deepEqual(lane(many(attempt({ fate: "replayed" }), attempt())).executed, 1);
  });

  test("has no marks, and is under way, before anything is sent", () => {
    assert.deepEqual(lane([]), { marks: [], executed: 0, result: { kind: "open", text: "under way" } });
  });

  test("draws four or more in a row with one fate as one mark, with all their ids", () => {
    const offline = lost("offline");
    assert.equal(lane(many(offline, offline, offline)).marks.length, 3);
    const attempts = many(attempt(), offline, offline, offline, offline, attempt());
    const { marks } = lane(attempts);
    assert.deepEqual(marks.map(({ count }) => count), [1, 4, 1]);
    assert.deepEqual(marks.map(({ ids }) => ids), [["1-naive-0"], ["1-naive-1", "1-naive-2", "1-naive-3", "1-naive-4"], ["1-naive-5"]]);
    const [, row] = marks;
    assert.deepEqual([row.fate, row.startMs, row.text], ["lost", SENT_MS + 1, "4 times lost, offline"]);
    const ended = many(offline, offline, offline, offline).map((one, k) => ({ ...one, endMs: 100 + k }));
    assert.equal(lane(ended).marks[0].endMs, 103);
  });

  test("does not draw attempts as one mark if their fate differs, or only some were heard", () => {
    const heard = attempt({ fate: "replayed" });
    const unheard = attempt({ fate: "replayed", answer: "lost" });
    assert.deepEqual(lane(many(heard, heard, unheard, unheard)).marks.map(({ count }) => count), [1, 1, 1, 1]);
    assert.deepEqual(lane(many(heard, heard, heard, heard, unheard)).marks.map(({ count, isUnheard }) => [count, isUnheard]), [[4, false], [1, true]]);
    const late = attempt({ fate: "late" });
    assert.deepEqual(lane(many(heard, late, heard, late, heard)).marks.map(({ count }) => count), [1, 1, 1, 1, 1]);
    const executed = many(attempt(), attempt(), attempt(), attempt(), attempt());
    assert.deepEqual(lane(executed).marks.map(({ fate, count, text }) => [fate, count, text]), [["executed", 1, "executed"], ["again", 4, "4 times executed again"]]);
  });

  test("lists in the words of a mark for many each kind of attempt, with its count", () => {
    const [way, offline] = [lost("request"), lost("offline")];
    assert.deepEqual(texts(many(way, offline, offline, way, offline)), ["2 times lost, lost on the way; 3 times lost, offline"]);
    assert.deepEqual(texts(many(offline, offline, offline, lost("server"))), ["3 times lost, offline; once lost, the server was down"]);
    const unheard = attempt({ fate: "late", answer: "lost" });
    const copy = attempt({ fate: "late", answer: "lost", isCopy: true });
    const [mixed] = lane(many(copy, unheard, copy, unheard)).marks;
    assert.deepEqual([mixed.text, mixed.isCopy], ["2 times late, a copy that the network made; 2 times late, its answer was lost", false]);
    assert.equal(lane(many(copy, copy, copy, copy)).marks[0].isCopy, true);
  });

  test("has a result for each state of a click and number of executions", () => {
    const once = [attempt()];
    const result = (state, attempts) => lane(attempts, { state }).result;
    const cases = [
      ["waiting", 0, "open", "under way"],
      ["waiting", 1, "open", "once, unanswered"],
      ["answered", 0, "open", "answered"],
      ["answered", 1, "right", "once"],
      ["forgotten", 0, "wrong", `never: −$${AMOUNT}`],
      ["forgotten", 1, "open", "once, forgotten"],
      ["paused", 0, "wrong", "paused"],
      ["paused", 1, "wrong", "paused"],
      ["failed", 0, "wrong", "failed"],
      ["failed", 1, "wrong", "failed"],
      ...["waiting", "answered", "forgotten", "paused", "failed"].flatMap((state) => [
        [state, 2, "wrong", `twice: +$${AMOUNT}`],
        [state, 3, "wrong", `3 times: +$${2 * AMOUNT}`],
      ]),
    ];
    for (const [state, times, kind, text] of cases) assert.deepEqual(result(state, Array(times).fill(once).flat()), { kind, text }, `${state}, executed ${times} times`);
    assert.deepEqual(laneOf({ naive: "waiting", semel: "answered" }, "semel", once, log(), SOON_MS).result, { kind: "right", text: "once" }, "each lane has its own");
  });

  test("has a name and words for every fate", () => {
    assert.deepEqual(Object.keys(FATES), ["sent", "lost", "executed", "again", "replayed", "late", "refused"]);
    for (const { title, detail } of Object.values(FATES)) assert.ok(title && detail);
  });
});

describe("the totals", () => {
  const click = (members) => ({ atMs: 100, naive: "answered", naiveMs: 200, semel: "answered", semelMs: 300, ...members });
  const account = (balance) => ({ balance, entries: balance / AMOUNT });
  const quiet = { naive: { sent: 0, endMs: -Infinity }, semel: { sent: 0, endMs: -Infinity } };
  const totals = (clicks, { naive = 10, semel = 10, asOfMs = 1_000, counts = quiet } = {}) => totalsOf(clicks, { accounts: { naive: account(naive), semel: account(semel) }, asOfMs }, counts);

  test("count all clicks, and a lane's difference is its balance less what was clicked", () => {
    const { clicks, clicked, lanes } = totals(new Set([click(), click(), click()]).values(), { naive: 50, semel: 20 });
    assert.deepEqual([clicks, clicked], [3, 3 * AMOUNT]);
    assert.deepEqual([lanes.naive.balance, lanes.naive.difference, lanes.semel.balance, lanes.semel.difference], [50, 20, 20, -10]);
  });

  test("have no difference before the server has told a balance", () => {
    const { lanes } = totalsOf([click()], { accounts: {}, asOfMs: 0 }, quiet);
    assert.deepEqual(lanes.naive, { balance: undefined, open: 0, forgotten: 0, isSettled: false, difference: undefined });
  });

  test("count open and forgotten clicks for each lane", () => {
    const { lanes } = totals([click({ naive: "waiting" }), click({ semel: "paused" }), click({ semel: "waiting" }), click({ naive: "forgotten" }), click({ semel: "failed" })]);
    assert.deepEqual([lanes.naive.open, lanes.naive.forgotten, lanes.semel.open, lanes.semel.forgotten], [1, 1, 2, 0]);
  });

  test("are settled in a lane if no click is open and the server was asked after the last answer", () => {
    const isSettled = (clicks, asOfMs) => {
      const { naive, semel } = totals(clicks, { asOfMs }).lanes;
      return [naive.isSettled, semel.isSettled];
    };
    assert.deepEqual(isSettled([click()], 1_000), [true, true]);
    assert.deepEqual(isSettled([click()], 300), [true, false], "at that very instant is too early");
    assert.deepEqual(isSettled([click()], 301), [true, true]);
    assert.deepEqual(isSettled([click()], 200), [false, false]);
    assert.deepEqual(isSettled([click(), click({ naiveMs: 2_000 })], 1_000), [false, true], "each answer counts");
    assert.deepEqual(isSettled([click({ naive: "waiting", naiveMs: undefined })], 1_000), [false, true]);
    assert.deepEqual(isSettled([click({ semel: "paused", semelMs: undefined })], 1_000), [true, false]);
    assert.deepEqual(isSettled([click({ naive: "forgotten" }), click({ semel: "failed" })], 1_000), [true, true], "what comes to nothing more is settled too");
    assert.deepEqual(isSettled([click({ atMs: 2_000, semelMs: undefined })], 1_000), [true, false], "without an instant, from its click on");
    assert.deepEqual(isSettled([], 0), [true, true]);
  });

  test("are not settled in a lane while an attempt of it is under way", () => {
    const { naive, semel } = totals([click()], { counts: { ...quiet, naive: { sent: 1, endMs: -Infinity } } }).lanes;
    assert.deepEqual([naive.isSettled, semel.isSettled], [false, true]);
  });

  test("are not settled in a lane if the server was asked before its last attempt ended", () => {
    for (const [endMs, isSettled] of [[999, true], [1_000, false], [1_001, false]]) {
      const { naive, semel } = totals([click()], { counts: { ...quiet, naive: { sent: 0, endMs } } }).lanes;
      assert.deepEqual([naive.isSettled, semel.isSettled], [isSettled, true]);
    }
  });

  test("count the clicks that Semel answered with an outcome", () => {
    assert.equal(totals([click(), click({ semel: "waiting" }), click({ semel: "failed" })]).answered, 1);
  });
});

test("the counts are of attempts that reached the server, as drawn and as logged, for each lane", () => {
  const attempts = [
    onItsWay({ id: "1-naive-a" }),
    lost("server", { id: "1-naive-b" }),
    lost("request", { id: "1-naive-c" }),
    attempt({ id: "1-naive-d", endMs: SENT_MS + 40 }),
    attempt({ id: "1-naive-e" }),
    onItsWay({ id: "1-semel-a", lane: "semel" }),
    attempt({ id: "1-semel-b", lane: "semel", fate: "replayed" }),
    attempt({ id: "1-semel-c", lane: "semel", fate: "refused" }),
  ];
  const logged = log(["1-naive-b", "executed"], ["1-naive-d", "executed"], ["1-naive-f", "failed"], ["1-semel-a", "attempt-expired"], ["1-semel-b", "replayed"], ["not one of the lab's", "executed"]);
  const none = { executed: 0, replayed: 0, late: 0, refused: 0 };
  assert.deepEqual(countsOf(attempts, logged, SOON_MS), {
    naive: { sent: 1, endMs: SENT_MS + 40, drawn: { ...none, executed: 3 }, logged: { ...none, executed: 2, refused: 1 } },
    semel: { sent: 0, endMs: SENT_MS + 20, drawn: { ...none, late: 1, replayed: 1, refused: 1 }, logged: { ...none, late: 1, replayed: 1 } },
  });
  assert.deepEqual(countsOf([], log(), SOON_MS).naive, { sent: 0, endMs: -Infinity, drawn: none, logged: none });
  const silent = countsOf([onItsWay({ id: "1-naive-a" })], log(), SILENT_MS).naive;
  assert.deepEqual([silent.sent, silent.drawn], [0, none], "what was silent too long did not arrive");
});
