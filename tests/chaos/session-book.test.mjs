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
  "all are made and answered": {},
  "in another order of two callers": { made: [1, 3, 0, 2] },
  "one was fenced": { made: [0, 1, 3], then: (book) => book.told(FIRST + 2, refusal("fenced")) },
  "nobody knows of one, and it was made": { heard: [0, 1, 3], then: (book) => book.told(FIRST + 2, refusal("fenced", "unknown")) },
  "nobody knows of one, and it was not made": { made: [0, 1, 3], then: (book) => book.told(FIRST + 2, refusal("fenced", "unknown")) },
  "the answer of one was acknowledged by a later holder": { heard: [0, 1, 3], then: (book) => book.told(FIRST + 2, refusal("acknowledged", "unknown")) },
  "the answers of two died with their process, by a socket": { heard: [0, 3], then: killed([1, 2]), isSeen: false },
  "the answer of one died with its process": { heard: [0, 1, 3], statuses: { 2: ["unavailable", "replayed"] }, then: killed([2]) },
  "one was closed, and told later": { then: (book) => book.told(FIRST, refusal("closed", "unknown")) },
  "one was cancelled, and took a number": { made: [0, 1, 3], lastSeq: 4, then: (book) => [(book.deposits.get(FIRST + 2).abortMs = 5), book.told(FIRST + 2, refusal("cancelled"))] },
})) {
  test(`it is right where ${what}`, () => assert.deepEqual(found(right), []));
}

for (const [what, [wrong, pattern]] of Object.entries({
  "one that was made twice": [{ made: [0, 1, 1, 2, 3], heard: [0, 2, 3], then: killed([1]), isSeen: false }, /does not follow/],
  "one that was made twice at the end": [{ extra: 7 }, /its end.* does not follow/],
  "the answer of another": [{ made: [0, 1], heard: [0], then: (book, [, , other]) => [book.told(FIRST + 1, { status: 200, text: JSON.stringify({ id: "till-0", balance: other.amount, entries: 2 }) }), book.told(FIRST + 2, refusal("fenced")), book.told(FIRST + 3, refusal("fenced"))] }, /does not follow/],
  "two answers to one": [{ then: (book) => book.told(FIRST, refusal("fenced")) }, /several answers/],
  "one that was refused and made": [{ heard: [0, 1, 3], then: (book) => book.told(FIRST + 2, refusal("fenced")) }, /does not follow/],
  "calls of one that took effect in another order": [{ made: [2, 1, 0, 3] }, /deposit 100 of client-0 comes after 102/],
  "a caller who was never answered": [{ heard: [0, 1, 3] }, /deposit 102 of client-0: its caller was never answered/],
  "one that was stored, and never answered": [{ heard: [0, 1, 3], then: killed([2], [2]) }, /its answer never came/],
  "one that its client forgot": [{ heard: [0, 1, 3], then: killed([2]) }, /did not know it any more/],
  "one that its client forgot, and of which it had heard nothing but to send again": [{ heard: [0, 1, 3], statuses: { 2: ["unavailable"] }, then: killed([2]) }, /did not know it any more/],
  "one that was answered as its process died, and is gone": [{ made: [0, 1, 3], statuses: { 2: ["executed"] }, then: killed([2]) }, /answered with its outcome, and it is not there/],
  "one that was never sent, and made": [{ heard: [0, 1, 2], unsent: [3], then: killed([3]) }, /its end.* does not follow/],
  "a fenced one where nobody else holds the session": [{ made: [0, 1, 3], isContended: false, then: (book) => book.told(FIRST + 2, refusal("fenced")) }, /nobody else holds/],
  "what is not known, where nobody else holds the session": [{ made: [0, 1, 3], isContended: false, then: (book) => book.told(FIRST + 2, refusal("acknowledged", "unknown")) }, /its caller got/],
  "one that was acknowledged, and not made": [{ made: [0, 1, 3], then: (book) => book.told(FIRST + 2, refusal("acknowledged", "unknown")) }, /acknowledged, and it is not there/],
  "a cancellation that nobody wanted": [{ made: [0, 1, 3], then: (book) => book.told(FIRST + 2, refusal("cancelled")) }, /nobody asked for that/],
  "a number that nothing took": [{ lastSeq: 5 }, /it has taken 5 numbers/],
  "a number that is missing": [{ lastSeq: 3 }, /it has taken 3 numbers/],
  "an outcome without its body": [{ then: (book) => book.told(FIRST, { by: "promise", status: 200, text: "" }) }, /was 200 ""/],
})) {
  test(`it finds ${what}`, () => assert.ok(found(wrong).some((line) => pattern.test(line)), `found ${JSON.stringify(found(wrong))}`));
}
