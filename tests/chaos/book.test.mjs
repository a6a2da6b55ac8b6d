// The oracle of the chaos run: what it must find, case by case.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Book } from "./book.mjs";

const outcome = (id, balance, entries) => ({ by: "promise", status: 200, text: JSON.stringify({ id, balance, entries }) });
const refusal = (code, executed = "no") => ({ by: "promise", error: { name: "SemelError", code, executed } });

/** What a book finds wrong after two deposits to one account, of 1 and 2. `then` tells it what became of them. */
function found({ balance, entries, then, heard = [[], []] }) {
  const book = new Book(1);
  const deposits = [];
  const others = [];
  while (deposits.length < 2) {
    const deposit = book.next("client");
    (deposit.account === "chaos-0" ? deposits : others).push(deposit);
  }
  book.deposits = deposits.map(({ n }, index) => ({ ...book.deposits[n], n: index, abortMs: undefined }));
  then(book);
  const balances = new Map(book.accounts.map((id) => [id, { balance: 0, entries: 0 }]));
  balances.set("chaos-0", { balance, entries });
  const sent = new Map(heard.map((statuses, n) => [n, { ids: new Set(["id"]), heard: new Set(statuses) }]).filter(([n]) => heard[n] !== undefined));
  return book.violations({ balances, sent });
}

const both = (book) => {
  book.told(0, outcome("chaos-0", 1, 1));
  book.told(1, outcome("chaos-0", 3, 2));
};

test("the oracle finds nothing wrong with two deposits that were made and answered", () => {
  assert.deepEqual(found({ balance: 3, entries: 2, then: both }), []);
});

for (const [what, wrong, pattern] of [
  ["a deposit that was made twice", { balance: 4, entries: 3, then: both }, /made twice/],
  ["a deposit that was made twice, in place of another", { balance: 2, entries: 2, then: both }, /made twice/],
  ["a deposit that was answered, and is gone", { balance: 2, entries: 1, then: both }, /says that it was made, and it is not/],
  ["a caller who was never answered", { balance: 3, entries: 2, then: (book) => book.told(0, outcome("chaos-0", 1, 1)) }, /deposit 1 .* never answered/],
  ["an outcome without its body", { balance: 3, entries: 2, then: (book) => [both(book), book.told(0, { status: 200, text: "" })] }, /its answer by undefined was 200 ""/],
  ["two different answers to one deposit", { balance: 3, entries: 2, then: (book) => [both(book), book.told(0, outcome("chaos-0", 3, 2))] }, /several answers/],
  ["a deposit that got the answer to another", { balance: 3, entries: 2, then: (book) => [book.told(0, outcome("chaos-0", 2, 1)), book.told(1, outcome("chaos-0", 3, 2))] }, /not its own/],
  ["a deposit that was refused as not run, and was made", { balance: 3, entries: 2, then: (book) => [book.told(0, refusal("poisoned")), book.told(1, outcome("chaos-0", 3, 2))] }, /heard that it was not made/],
  ["a cancellation that nobody asked for", { balance: 2, entries: 1, then: (book) => [book.told(0, refusal("cancelled")), book.told(1, outcome("chaos-0", 2, 1))] }, /nobody asked for that/],
  ["a refusal that leaves unknown whether the deposit ran", { balance: 3, entries: 2, then: (book) => [book.told(0, refusal("outcome-lost", "unknown")), book.told(1, outcome("chaos-0", 3, 2))] }, /its caller got/],
]) {
  test(`the oracle finds ${what}`, () => assert.ok(found(wrong).some((line) => pattern.test(line)), found(wrong).join("\n")));
}

const first = (more) => (book) => {
  book.told(1, outcome("chaos-0", 3, 2));
  more(book);
};
const KILLED = {
  "stored, and not answered": [{ balance: 3, entries: 2, then: first((book) => book.reopened([0], [0])) }, /answer never came/],
  "neither stored nor answered, though it was sent": [{ balance: 3, entries: 2, then: first((book) => book.reopened([0], [])) }, /did not know it any more/],
  "answered as the client died, and is gone": [{ balance: 2, entries: 1, then: first((book) => book.reopened([0], [])), heard: [["executed"], []] }, /is not in the balance/],
  "never sent, and yet made": [{ balance: 3, entries: 2, then: first((book) => book.reopened([0], [])), heard: [undefined, []] }, /never sent, and it is in/],
  "given up, answered as the client died, and is gone": [{ balance: 2, entries: 1, then: first((book) => [(book.deposits[0].abortMs = 100), book.reopened([0], [])]), heard: [["executed"], []] }, /is not in the balance/],
  "answered as the client died, and made": [{ balance: 3, entries: 2, then: first((book) => book.reopened([0], [])), heard: [["replayed"], []] }, undefined],
};
for (const [what, [situation, pattern]] of Object.entries(KILLED)) {
  test(`a deposit of a killed client that was ${what} is ${pattern ? "found" : "right"}`, () => {
    const violations = found(situation);
    if (pattern) assert.ok(violations.some((line) => pattern.test(line)), violations.join("\n"));
    else assert.deepEqual(violations, []);
  });
}
