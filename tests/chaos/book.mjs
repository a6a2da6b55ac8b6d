// The oracle: which deposits there are, what their clients were told of each, and whether that is true.
//
// The amounts of an account are powers of two, each once. So its balance tells which deposits it contains; and if it has as many entries as the
// balance has
// bits, each was made once.
//
// For every deposit:
// - Its caller got a definite answer, or the caller's process was killed meanwhile.
// - An outcome means that the balance contains it, once. An error with `executed` "no" means that the balance never contains it.
// - What the client still had in its store after a kill is answered later. What it had not was never sent, and is not in the balance; or its answer had
//   reached the process, and died with it.

import { stream } from "./random.mjs";

/** Balances are exact up to 2^53. */
const DEPOSITS_OF_AN_ACCOUNT = 50;
const ACCOUNTS_AT_A_TIME = 6;
/** The share of callers that lose patience, and after how many ms. */
const IMPATIENT = 0.15;
const PATIENCE_MS = [0, 600];
/** The codes with which a deposit may be refused for good: it was cancelled, or it was under way in too many kills of the server. */
const REFUSALS = ["cancelled", "poisoned"];

export class Book {
  deposits = [];
  /** What the run itself found wrong. */
  faults = [];
  #random;
  #accounts = [];
  #open = [];

  constructor(seed) {
    this.#random = stream(seed, "deposits");
  }

  get accounts() {
    return this.#accounts.map(({ id }) => id);
  }

  /** A new deposit, for a client to make. */
  next(client) {
    while (this.#open.length < ACCOUNTS_AT_A_TIME) {
      const account = { id: `chaos-${this.#accounts.length}`, deposits: 0 };
      this.#accounts.push(account);
      this.#open.push(account);
    }
    const account = this.#open[this.#random.below(ACCOUNTS_AT_A_TIME)];
    const [impatience, abortMs] = [this.#random.next(), Math.round(this.#random.between(...PATIENCE_MS))];
    const deposit = { n: this.deposits.length, account: account.id, amount: 2 ** account.deposits, abortMs: impatience < IMPATIENT ? abortMs : undefined };
    account.deposits += 1;
    if (account.deposits === DEPOSITS_OF_AN_ACCOUNT) this.#open.splice(this.#open.indexOf(account), 1);
    this.deposits.push({ ...deposit, client, answers: [], wasKilled: false, wasStored: false });
    return deposit;
  }

  /** Notes an answer that a client told. Returns whether it is definite. */
  told(n, answer) {
    this.deposits[n].answers.push(answer);
    return isDefinite(answer);
  }

  /** A client was killed while the deposits `underWay` waited. The next one found `stored` in its store. */
  reopened(underWay, stored) {
    for (const n of underWay) this.deposits[n].wasKilled = true;
    for (const n of stored) this.deposits[n].wasStored = true;
  }

  isAnswered({ answers }) {
    return answers.some(isDefinite);
  }

  /**
   * Everything that is wrong, a line each. `balances`: `{ balance, entries }` of each account, by its id. `sent`: by the number of a deposit, its ids
   * and the answers to it that the proxy passed completely.
   */
  violations({ balances, sent }) {
    const found = [...this.faults];
    for (const deposit of this.deposits) {
      const isMade = has(balances.get(deposit.account).balance, deposit.amount);
      for (const wrong of wrongWith(deposit, isMade, sent.get(deposit.n))) found.push(`deposit ${deposit.n} of ${deposit.client}: ${wrong}`);
    }
    for (const id of this.accounts) {
      const answers = this.deposits.filter(({ account }) => account === id).flatMap(outcomesOf);
      for (const wrong of wrongWithAccount(id, balances.get(id), answers)) found.push(`account ${id}: ${wrong}`);
    }
    return found;
  }
}

const isDefinite = ({ error }) => error?.code !== "gave-up";
/** Whether an outcome is complete: its body ends as the ledger's do. */
const isOutcome = ({ status, text }) => status === 200 && /^\{"id":"[^"]+","balance":\d+,"entries":\d+\}$/.test(text);
const has = (balance, amount) => Math.floor(balance / amount) % 2 === 1;
const bits = (balance) => balance.toString(2).replaceAll("0", "").length;

function outcomesOf(deposit) {
  const texts = new Set(deposit.answers.filter(isOutcome).map(({ text }) => text));
  return [...texts].map((text) => ({ ...JSON.parse(text), deposit }));
}

/** What is wrong with one deposit. */
function* wrongWith(deposit, isMade, sent) {
  const definite = deposit.answers.filter(isDefinite);
  if (sent && sent.ids.size > 1) yield `it was sent under ${sent.ids.size} ids`;
  for (const answer of definite) {
    const { status, text, error, by } = answer;
    if (error === undefined) {
      if (!isOutcome(answer)) yield `its answer by ${by} was ${status} ${JSON.stringify(text)}`;
      else if (!isMade) yield `its answer says that it was made, and it is not in the balance`;
    } else if (error.code === undefined ? deposit.abortMs === undefined : error.executed !== "no" || !REFUSALS.includes(error.code)) {
      yield `its caller got ${JSON.stringify(error)}`;
    } else if (isMade) {
      yield `its caller heard that it was not made (${error.code ?? error.name}), and it is in the balance`;
    } else if (error.code === "cancelled" && deposit.abortMs === undefined) {
      yield `it was cancelled, and nobody asked for that`;
    }
  }
  if (new Set(definite.map(({ text, error }) => text ?? error.code)).size > 1) yield `its caller got several answers: ${JSON.stringify(definite)}`;
  if (definite.length === 0) yield* wrongWithUnanswered(deposit, isMade, sent);
}

function* wrongWithUnanswered({ wasKilled, wasStored, abortMs }, isMade, sent) {
  if (!wasKilled) yield `its caller was never answered`;
  else if (wasStored) yield `it was stored, and its answer never came`;
  else if (!sent) {
    if (isMade) yield `it was never sent, and it is in the balance`;
  } else {
    const isHeard = sent.heard.has("executed") || sent.heard.has("replayed");
    if (isHeard && !isMade) yield `it was answered with its outcome, and is not in the balance`;
    if (!isHeard && !sent.heard.has("poisoned") && abortMs === undefined) yield `it was sent and had no answer, and its client did not know it any more`;
  }
}

/** What is wrong with an account, from its final state and from all answers before. */
function* wrongWithAccount(id, { balance, entries }, answers) {
  if (bits(balance) !== entries) yield `${entries} entries make ${balance}, which is ${bits(balance)} deposits: some were made twice`;
  const ordered = answers.sort((one, other) => one.entries - other.entries);
  let before = { balance: 0, entries: 0 };
  for (const answer of ordered) {
    const { n, amount } = answer.deposit;
    if (answer.id !== id || !has(answer.balance, amount) || bits(answer.balance) !== answer.entries) yield `deposit ${n} got an answer that is not its own: ${JSON.stringify(answer)}`;
    if (answer.entries === before.entries) yield `deposit ${n} has the place of another: ${JSON.stringify(answer)}`;
    if (answer.entries === before.entries + 1 && answer.balance !== before.balance + amount) yield `between two answers there is more than deposit ${n}: ${JSON.stringify(answer)}`;
    if (!isWithin(before.balance, answer.balance)) yield `deposit ${n} found less than there had been before: ${JSON.stringify(answer)}`;
    before = answer;
  }
  if (!isWithin(before.balance, balance)) yield `it had ${before.balance} once, and has ${balance}`;
}

/** Whether every deposit in one balance is in the other. */
function isWithin(some, all) {
  return (BigInt(some) & BigInt(all)) === BigInt(some);
}
