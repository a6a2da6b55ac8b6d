// The oracle of one session that several callers may contend for: which deposits there are, and whether what their callers were told is true.
//
// Amounts are drawn from so many numbers that two sets of a few deposits hardly ever have the same sum. So the answers, ordered by their entries, are
// a chain:
// between two of them is a set of deposits without a known answer, which their number and sum identify.
//
// What must hold:
// - There is one order. Each deposit is in it at most once, and its own caller's answer tells its place there.
// - Deposits of one caller are in the order of its calls, even over kills and take-overs.
// - Every caller gets a definite answer, or its process was killed meanwhile. An error with `executed` "no" is about a deposit that is not in the
//   order.
// - What a killed process still had in its store is answered later. What it had not was never sent, and is not in the order; or its answer had
//   reached the
//   process, and died with it. A deposit that was answered with its outcome is in the order, whoever got the answer.
// - If an answer is said to be acknowledged by a later holder, the deposit is in the order.
// - The session has taken no more numbers than there are deposits that are made, or that were refused in a way that takes a number.

import { stream } from "./random.mjs";

/** With these limits the sum of a session stays below 2^53. After that many deposits, another session begins. */
const AMOUNT_MAX = 2 ** 39;
const DEPOSITS_OF_A_SESSION = 2 ** 13;
const IMPATIENT = 0.1;
const PATIENCE_MS = [0, 600];
/** The codes with which a deposit may be refused for good: see `Book`. */
const REFUSALS = ["cancelled", "poisoned", "fenced"];
/** All that may be known if others hold the session: so many have held it since, or its holder has released the answer. */
const UNTOLD = ["fenced", "acknowledged"];
/** Answers that the proxy may have passed to a process that died with them. A caller that got any other had to send again. */
const OUTCOMES = ["executed", "replayed"];
const ANSWERS = [...OUTCOMES, ...REFUSALS, ...UNTOLD];

export class SessionBook {
  deposits = new Map();
  /** What the run itself found wrong. */
  faults = [];
  #name;
  #first;
  #isContended;
  #random;
  #amounts = new Set();

  /** `name`: of its accounts. `first`: its first number, so that no other book has the same. `isContended`: whether the session has several holders. */
  constructor({ seed, name, first, isContended }) {
    this.#name = name;
    this.#first = first;
    this.#isContended = isContended;
    this.#random = stream(seed, `session ${name}`);
  }

  get accounts() {
    return [...new Set([...this.deposits.values()].map(({ account }) => account))];
  }

  /** A new deposit, for a client to make. */
  next(client) {
    const count = this.deposits.size;
    const [impatience, abortMs] = [this.#random.next(), Math.round(this.#random.between(...PATIENCE_MS))];
    const account = `${this.#name}-${Math.floor(count / DEPOSITS_OF_A_SESSION)}`;
    const deposit = { n: this.#first + count, account, amount: this.#amount(), abortMs: impatience < IMPATIENT ? abortMs : undefined };
    this.deposits.set(deposit.n, { ...deposit, client, answers: [], wasKilled: false, wasStored: false });
    return deposit;
  }

  #amount() {
    for (;;) {
      const amount = 1 + this.#random.below(AMOUNT_MAX);
      if (this.#amounts.size < this.#amounts.add(amount).size) return amount;
    }
  }

  /** Notes an answer that a client told. Returns whether it is definite. */
  told(n, answer) {
    this.deposits.get(n).answers.push(answer);
    return isDefinite(answer);
  }

  /** A client was killed while the deposits `underWay` waited. The next one found `stored` in its store. */
  reopened(underWay, stored) {
    for (const n of underWay) this.deposits.get(n).wasKilled = true;
    for (const n of stored) this.deposits.get(n).wasStored = true;
  }

  /** The client that makes a deposit. */
  clientOf(n) {
    return this.deposits.get(n).client;
  }

  isAnswered(n) {
    return this.deposits.get(n).answers.some(isDefinite);
  }

  /** How many callers got an outcome, and how many were told that another client holds the session. */
  get counts() {
    const all = [...this.deposits.values()].flatMap(({ answers }) => answers);
    return { made: all.filter(isOutcome).length, fenced: all.filter(({ error }) => error?.code === "fenced").length };
  }

  /**
   * Everything that is wrong, a line each. `balances`: `{ balance, entries }` of each account, by its id. `lastSeqs`: the last number of the session
   * at each. `sent`: what the proxy saw of a deposit, by its number. `isSeen`: whether the proxy sees what a client sends.
   */
  violations({ balances, lastSeqs, sent, isSeen }) {
    const found = [...this.faults];
    for (const deposit of this.deposits.values()) {
      const seen = isSeen(deposit.client) ? (sent.get(deposit.n) ?? UNSENT) : undefined;
      for (const wrong of wrongWith(deposit, seen, this.#isContended)) found.push(`deposit ${deposit.n} of ${deposit.client}: ${wrong}`);
    }
    for (const id of this.accounts) {
      const own = [...this.deposits.values()].filter(({ account }) => account === id);
      const mayBeMade = (deposit) => !(isSeen(deposit.client) && !sent.has(deposit.n));
      const isTold = ({ n }) => hasHeard(sent.get(n) ?? UNSENT, OUTCOMES);
      for (const wrong of wrongWithSession(own, { id, ...balances.get(id) }, lastSeqs.get(id), { mayBeMade, isTold })) found.push(`session of ${id}: ${wrong}`);
    }
    return found;
  }
}

const UNSENT = { heard: new Set() };
const hasHeard = ({ heard }, statuses) => statuses.some((semel) => heard.has(semel));

/** A session that was closed leaves its requests to the next one. */
const isDefinite = ({ error }) => error?.code !== "closed";
/** Whether an outcome is complete: its body ends as the ledger's do. */
const isOutcome = ({ status, text }) => status === 200 && /^\{"id":"[^"]+","balance":\d+,"entries":\d+\}$/.test(text);
/** Whether an answer says nothing about what became of the deposit. */
const isUntold = ({ error }) => error?.executed === "unknown" && UNTOLD.includes(error.code);

function* wrongWith(deposit, seen, isContended) {
  const definite = deposit.answers.filter(isDefinite);
  for (const answer of definite) {
    const { status, text, error, by } = answer;
    if (error === undefined) {
      if (!isOutcome(answer)) yield `its answer by ${by} was ${status} ${JSON.stringify(text)}`;
    } else if (error.code === undefined) {
      if (deposit.abortMs === undefined) yield `its caller got ${JSON.stringify(error)}`;
    } else if (isUntold(answer) ? !isContended : error.executed !== "no" || !REFUSALS.includes(error.code)) {
      yield `its caller got ${JSON.stringify(error)}`;
    } else if (error.code === "cancelled" && deposit.abortMs === undefined) {
      yield `it was cancelled, and nobody asked for that`;
    } else if (error.code === "fenced" && !isContended) {
      yield `it was fenced, and nobody else holds its session`;
    }
  }
  if (new Set(definite.map(({ text, error }) => text ?? error.code)).size > 1) yield `its caller got several answers: ${JSON.stringify(definite)}`;
  if (definite.length > 0) return;
  if (!deposit.wasKilled) yield `its caller was never answered`;
  else if (deposit.wasStored) yield `it was stored, and its answer never came`;
  else if (seen && seen !== UNSENT && !hasHeard(seen, ANSWERS) && deposit.abortMs === undefined) yield `it was sent and had no answer, and its client did not know it any more`;
}

/** What is wrong with the order of all deposits. */
function* wrongWithSession(deposits, account, lastSeq, { mayBeMade, isTold }) {
  const answered = deposits.flatMap((deposit) => outcomesOf(deposit)).sort((one, other) => one.entries - other.entries);
  const unheard = new Set(deposits.filter((deposit) => mayBeMade(deposit) && deposit.answers.filter(isDefinite).every(isUntold)));
  const order = [];
  let before = { balance: 0, entries: 0 };
  for (const answer of [...answered, account]) {
    const { deposit } = answer;
    if (answer.id !== account.id) yield `deposit ${deposit.n} got the answer of ${answer.id}`;
    const own = deposit ? [deposit] : [];
    const between = answer.entries - before.entries - own.length;
    const sum = answer.balance - before.balance - (deposit?.amount ?? 0);
    const found = between < 0 ? undefined : setOf([...unheard], between, sum);
    const what = deposit ? `the answer to deposit ${deposit.n}, ${answer.balance} ${answer.entries}` : `its end, ${answer.balance} ${answer.entries}`;
    if (!found) yield `${what}, does not follow from ${before.balance} ${before.entries}: there would be ${between} more, of ${sum}`;
    for (const each of found ?? []) unheard.delete(each);
    order.push(...(found ?? []).map((deposit) => ({ deposit, isUnheard: true })), ...own.map((deposit) => ({ deposit })));
    before = answer;
  }
  yield* wrongWithOrder(order);
  const made = new Set(order.map(({ deposit }) => deposit));
  // A place that was taken without effect was closed, or the deposit was poisoned. Only impatient callers close places.
  const isFreed = ({ abortMs, answers }) => abortMs === undefined && answers.some(({ error }) => error?.code === "acknowledged");
  for (const { n } of deposits.filter((deposit) => isFreed(deposit) && !made.has(deposit))) yield `of deposit ${n} it was said that its answer is acknowledged, and it is not there`;
  for (const { n } of deposits.filter((deposit) => isTold(deposit) && !made.has(deposit))) yield `deposit ${n} was answered with its outcome, and it is not there`;
  const takesNumber = ({ abortMs, answers }) => abortMs !== undefined || answers.some(({ error }) => error?.code === "poisoned");
  const numbers = account.entries + deposits.filter(takesNumber).length;
  if (lastSeq !== undefined && !(lastSeq >= account.entries && lastSeq <= numbers)) yield `it has taken ${lastSeq} numbers, for ${account.entries} deposits that are made and at most ${numbers - account.entries} that took a number and were not`;
}

/** What is wrong with the order of each caller's deposits. Between two answers, the order is not known. */
function* wrongWithOrder(order) {
  const last = new Map();
  for (const { deposit, isUnheard } of order) {
    if (isUnheard) continue;
    const { client, n } = deposit;
    if (last.get(client) > n) yield `deposit ${n} of ${client} comes after ${last.get(client)}, which was called for later`;
    last.set(client, n);
  }
}

function outcomesOf(deposit) {
  const texts = new Set(deposit.answers.filter(isOutcome).map(({ text }) => text));
  return [...texts].map((text) => ({ ...JSON.parse(text), deposit }));
}

/** Finds `count` deposits with that sum; undefined if there are none. */
function setOf(deposits, count, sum, from = 0) {
  if (count === 0) return sum === 0 ? [] : undefined;
  for (let at = from; at <= deposits.length - count; at += 1) {
    if (deposits[at].amount > sum) continue;
    const others = setOf(deposits, count - 1, sum - deposits[at].amount, at + 1);
    if (others) return [deposits[at], ...others];
  }
  return undefined;
}
