// The oracle of sessions: what it must find, case by case.

import assert from "node:assert/strict";
import { test } from "node:test";
import { SessionBook } from "./session-book.mjs";

const FIRST = 100;
const refusal = (code, executed = "no") => ({ by: "promise", error: { name: "SemelError", code, executed } });

/**
 * What a book finds wrong after four deposits, the even ones by one client and the odd ones by another, made in the order of `made`. `then` may tell
 * it more.
 */
function found({ made = [0, 1, 2, 3], heard = made, isContended = true, then = () => {}, lastSeq, extra = 0, unsent = [], statuses = {}, isSeen = true }) {
  const book = new SessionBook({ seed: 1, name: "till", first: FIRST, isContended });
  const deposits = [0, 1, 2, 3].map((at) => book.next(`client-${at % 2}`));
  for (const { n } of deposits) book.deposits.get(n).abortMs = undefined;
  let balance = 0;
  for (const [at, index] of made.entries()) {
    balance += deposits[index].amount;
    if (heard.includes(index)) book.told(FIRST + index, { by: "promise", status: 200, text: JSON.stringify({ id: "till-0", balance, entries: at + 1 }) });
  }
  then(book, deposits);
  const sent = new Map(deposits.filter((_, at) => !unsent.includes(at)).map(({ n }, at) => [n, { heard: new Set(statuses[at] ?? (heard.includes(at) ? ["executed"] : [])) }]));
  const balances = new Map([["till-0", { balance: balance + extra, entries: made.length + (extra > 0 ? 1 : 0) }]]);
  return book.violations({ balances, lastSeqs: new Map([["till-0", lastSeq ?? made.length]]), sent, isSeen: () => isSeen });
}

const killed = (numbers, stored = []) => (book) => book.reopened(numbers.map((at) => FIRST + at), stored.map((at) => FIRST + at));

for (const [what, right] of Object.entries({
  "all deposits are made and answered": {},
  "the deposits of one caller are all made before those of the other": { made: [1, 3, 0, 2] },
  "one deposit was fenced, and not made": { made: [0, 1, 3], then: (book) => book.told(FIRST + 2, refusal("fenced")) },
  "one deposit was fenced with executed unknown, and was made": { heard: [0, 1, 3], then: (book) => book.told(FIRST + 2, refusal("fenced", "unknown")) },
  "one deposit was fenced with executed unknown, and was not made": { made: [0, 1, 3], then: (book) => book.told(FIRST + 2, refusal("fenced", "unknown")) },
  "a later holder acknowledged the outcome of one deposit": { heard: [0, 1, 3], then: (book) => book.told(FIRST + 2, refusal("acknowledged", "unknown")) },
  "two deposits on a socket lost their answers with their process": { heard: [0, 3], then: killed([1, 2]), isSeen: false },
  "one deposit lost its answer with its process": { heard: [0, 1, 3], statuses: { 2: ["unavailable", "replayed"] }, then: killed([2]) },
  "the caller of one deposit hears both closed and its outcome": { then: (book) => book.told(FIRST, refusal("closed", "unknown")) },
  "one deposit was cancelled on request, and took a number": { made: [0, 1, 3], lastSeq: 4, then: (book) => [(book.deposits.get(FIRST + 2).abortMs = 5), book.told(FIRST + 2, refusal("cancelled"))] },
})) {
  test(`the oracle finds nothing wrong if ${what}`, () => assert.deepEqual(found(right), []));
}

for (const [what, [wrong, pattern]] of Object.entries({
  "a deposit that was made twice": [{ made: [0, 1, 1, 2, 3], heard: [0, 2, 3], then: killed([1]), isSeen: false }, /does not follow/],
  "an effect too many after the last deposit": [{ extra: 7 }, /its end.* does not follow/],
  "a deposit that got the answer of another": [{ made: [0, 1], heard: [0], then: (book, [, , other]) => [book.told(FIRST + 1, { status: 200, text: JSON.stringify({ id: "till-0", balance: other.amount, entries: 2 }) }), book.told(FIRST + 2, refusal("fenced")), book.told(FIRST + 3, refusal("fenced"))] }, /does not follow/],
  "two different answers to one deposit": [{ then: (book) => book.told(FIRST, refusal("fenced")) }, /several answers/],
  "a deposit that was refused as not run, and was made": [{ heard: [0, 1, 3], then: (book) => book.told(FIRST + 2, refusal("fenced")) }, /does not follow/],
  "calls of one client that took effect in another order": [{ made: [2, 1, 0, 3] }, /deposit 100 of client-0 comes after 102/],
  "a caller who was never answered": [{ heard: [0, 1, 3] }, /deposit 102 of client-0: its caller was never answered/],
  "a deposit that was stored, and never answered": [{ heard: [0, 1, 3], then: killed([2], [2]) }, /its answer never came/],
  "a deposit that its client forgot": [{ heard: [0, 1, 3], then: killed([2]) }, /did not know it any more/],
  "a deposit that its client forgot after it was only told to send again": [{ heard: [0, 1, 3], statuses: { 2: ["unavailable"] }, then: killed([2]) }, /did not know it any more/],
  "a deposit that was answered as its process died, and is gone": [{ made: [0, 1, 3], statuses: { 2: ["executed"] }, then: killed([2]) }, /answered with its outcome, and it is not there/],
  "a deposit that was made though it was never sent": [{ heard: [0, 1, 2], unsent: [3], then: killed([3]) }, /its end.* does not follow/],
  "a fenced deposit in a session that nobody else holds": [{ made: [0, 1, 3], isContended: false, then: (book) => book.told(FIRST + 2, refusal("fenced")) }, /nobody else holds/],
  "an unknown outcome in a session that nobody else holds": [{ made: [0, 1, 3], isContended: false, then: (book) => book.told(FIRST + 2, refusal("acknowledged", "unknown")) }, /its caller got/],
  "a deposit that was answered acknowledged, and was not made": [{ made: [0, 1, 3], then: (book) => book.told(FIRST + 2, refusal("acknowledged", "unknown")) }, /acknowledged, and it is not there/],
  "a cancellation that nobody asked for": [{ made: [0, 1, 3], then: (book) => book.told(FIRST + 2, refusal("cancelled")) }, /nobody asked for that/],
  "a session that counts more numbers than deposits": [{ lastSeq: 5 }, /it has taken 5 numbers/],
  "a session that counts fewer numbers than deposits": [{ lastSeq: 3 }, /it has taken 3 numbers/],
  "an outcome without its body": [{ then: (book) => book.told(FIRST, { by: "promise", status: 200, text: "" }) }, /was 200 ""/],
})) {
  test(`the oracle finds ${what}`, () => assert.ok(found(wrong).some((line) => pattern.test(line)), `found ${JSON.stringify(found(wrong))}`));
}
