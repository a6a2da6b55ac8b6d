// What a client of the run does with the SDK: the same in the page and in a Node process.
//
// Invariants:
// - Each answer is told as soon as it is there; one by `onrecovered`, before the SDK may forget it.
// - Every URL of a deposit carries its number: `?n=17`.

/** More than any account ever has: a withdrawal of it is an outcome that changes nothing. */
const TOO_MUCH = 2 ** 52;
/** As much as a small answer with its headers. */
const LEAKED_BYTES = 1024;

export class Client {
  #semel;
  #tell;
  /** What a client that leaks keeps. */
  #leaked = [];

  /** `tell(n, answer)` resolves once the run has it. */
  constructor(tell) {
    this.#tell = tell;
  }

  /** Opens the outbox, and returns the numbers of the deposits that it has stored from before. */
  async open(Semel, options) {
    this.#semel = await Semel.open(options);
    return this.pending();
  }

  async pending() {
    return (await this.#semel.pending()).map(({ url }) => numberOf(url));
  }

  /** Takes the answers to what was stored before, from now on. */
  takeRecovered() {
    this.#semel.onrecovered = async ({ url, response, error }) => {
      const n = numberOf(url);
      // Of the load, which is about no deposit, nobody keeps a book.
      if (n !== undefined) await this.#tell(n, { by: "onrecovered", ...(error ? refusal(error) : await outcome(response)) });
    };
  }

  /** Makes a deposit. With `abortMs`, its caller loses patience after so long. */
  async deposit({ n, account, amount, abortMs }) {
    const signal = abortMs === undefined ? undefined : AbortSignal.timeout(abortMs);
    const request = { method: "POST", body: JSON.stringify({ amount }), signal };
    const answer = await this.#semel.fetch(`/accounts/${account}/deposit?n=${n}`, request).then(outcome, refusal);
    await this.#tell(n, { by: "promise", ...answer });
  }

  /**
   * So many changes that are recorded and acknowledged and leave the balance as it is, some at a time: a load that can be
   * repeated. Each caller has an account of its own: at one, they would wait for one another. `leaks`: something of each answer is
   * kept for good, which must be found.
   */
  async load(accounts, count, leaks) {
    let left = count;
    const caller = async (account) => {
      while (left > 0) {
        left -= 1;
        const request = { method: "POST", body: JSON.stringify({ amount: TOO_MUCH }) };
        const answer = await this.#semel.fetch(`/accounts/${account}/withdraw`, request).then(outcome, refusal);
        // A caller that gave up has its answer by `onrecovered`.
        if (answer.status !== 409 && answer.error?.code !== "gave-up") throw new Error(`a withdrawal of too much was answered with ${JSON.stringify(answer)}`);
        if (leaks) this.#leaked.push(new Uint8Array(LEAKED_BYTES));
      }
    };
    await Promise.all(accounts.map(caller));
  }
}

export async function outcome(response) {
  return { status: response.status, semel: response.headers.get("semel-status"), text: await response.text() };
}

/** A reason that is no error of the SDK has no code: nothing was stored. */
export function refusal({ name, code, executed, message, requestId }) {
  return { error: requestId === undefined ? { name, message } : { name, code, executed, message } };
}

export function numberOf(url) {
  const n = new URL(url).searchParams.get("n");
  return n === null ? undefined : Number(n);
}
