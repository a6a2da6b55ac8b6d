// What a client of a run does with sessions, both in pages and in Node processes.
//
// Invariants:
// - Each answer is told as soon as it is there; one that comes by `onrecovered` is told before the SDK may forget it.
// - Calls at an account are made in the order in which they were asked for. If another client has taken the session over, it is taken back: once all
//   its calls
//   have their answers, after a pause, and when there is something to go on with.

import { numberOf, outcome, refusal } from "./client.js";

const NAME = "till";
/** The account of the load. */
const WEIGHED = "weighed-till";
/** More than any account ever has: withdrawing it has an outcome, but changes nothing. */
const TOO_MUCH = 2 ** 52 + 2 ** 51;

export class Tills {
  #tell;
  #rows;
  #semel;
  #transport;
  #store;
  #pauseMs;
  /** The sessions, by account. */
  #tills = new Map();

  /** `tell(n, answer)` resolves once the run has it. `rows()` resolves to what is stored of sessions, in bytes. */
  constructor(tell, rows) {
    this.#tell = tell;
    this.#rows = rows;
  }

  /** Opens what makes sessions. Resolves to the numbers of the deposits that were stored before. */
  async open(Semel, options, { transport, store, pauseMs }) {
    this.#transport = transport;
    this.#store = store;
    this.#pauseMs = pauseMs;
    this.#semel = await Semel.open(options);
    return this.pending();
  }

  /** Resolves to the numbers of what is stored. The format of rows is the SDK's own, but the URL is in them as it is sent. */
  async pending() {
    const texts = (await this.#rows()).map((row) => new TextDecoder("latin1").decode(row));
    return texts.flatMap((text) => /[?]n=(\d+)&till/.exec(text)?.[1] ?? []).map(Number);
  }

  /** Takes the sessions over, so that what was stored before goes on. */
  takeRecovered(accounts) {
    for (const account of accounts) this.#till(account);
  }

  /** Makes a deposit. With `abortMs`, its caller loses patience after that time. */
  async deposit({ n, account, amount, abortMs }) {
    const signal = abortMs === undefined ? undefined : AbortSignal.timeout(abortMs);
    const answer = await this.#call(account, `/accounts/${account}/deposit?n=${n}&till`, { amount }, signal);
    await this.#tell(n, { by: "promise", ...answer });
  }

  /** Makes the same load as `Client` does, with as many callers as there are accounts, but all in one session. */
  async load(accounts, count) {
    let left = count;
    const caller = async () => {
      while (left > 0) {
        left -= 1;
        const answer = await this.#call(WEIGHED, `/accounts/${WEIGHED}/withdraw`, { amount: TOO_MUCH });
        if (answer.status !== 409) throw new Error(`a withdrawal of too much was answered with ${JSON.stringify(answer)}`);
      }
    };
    await Promise.all(accounts.map(caller));
  }

  async #call(account, path, json, signal) {
    const till = this.#till(account);
    till.calls += 1;
    till.wanted?.();
    let answer;
    try {
      const session = await till.session;
      answer = await session.fetch(path, { method: "POST", body: JSON.stringify(json), signal }).then(outcome, refusal);
    } catch (error) {
      answer = refusal(error);
    }
    till.calls -= 1;
    if ((await till.session.catch(() => undefined)) === undefined) this.#over(account, till);
    if (till.calls === 0) till.idle?.();
    return answer;
  }

  #till(account) {
    if (!this.#tills.has(account)) this.#tills.set(account, this.#taken(account));
    return this.#tills.get(account);
  }

  #over(account, till) {
    if (this.#tills.get(account) === till) this.#tills.set(account, this.#taken(account, till));
  }

  /** Takes a session over, once nothing is under way in the session `before`. */
  #taken(account, before) {
    const till = { calls: 0 };
    till.session = (async () => {
      if (before) {
        if (before.calls > 0) await new Promise((resolve) => (before.idle = resolve));
        await (await before.session.catch(() => undefined))?.close();
        await new Promise((resolve) => setTimeout(resolve, this.#pauseMs));
        if (till.calls === 0 && (await this.#rows()).length === 0) await new Promise((resolve) => (till.wanted = resolve));
      }
      const onrecovered = async ({ url, response, error }) => {
        const n = numberOf(url);
        // Requests of the load belong to no deposit, and are not in the book.
        if (n !== undefined) await this.#tell(n, { by: "onrecovered", ...(error ? refusal(error) : await outcome(response)) });
      };
      return this.#semel.session(`accounts/${account}`, NAME, { transport: this.#transport, store: this.#store?.(), onrecovered, onended: () => this.#over(account, till) });
    })();
    till.session.catch(() => {});
    return till;
  }
}
