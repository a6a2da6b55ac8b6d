// What a client of a run does with the SDK, both in a page and in a Node process.
//
// Invariants:
// - Each answer is told as soon as it is there; one that comes by `onrecovered` is told before the SDK may forget it.
// - Every URL of a deposit carries its number: `?n=17`.

/** More than any account ever has: withdrawing it has an outcome, but changes nothing. */
const TOO_MUCH = 2 ** 52;
/** The size of a small answer with its headers. */
const LEAKED_BYTES = 1024;

export class Client {
  #semel;
  #tell;
  /** What a client keeps that leaks. */
  #leaked = [];

  /** `tell(n, answer)` resolves once the run has it. */
  constructor(tell) {
    this.#tell = tell;
  }

  /** Opens the outbox. Resolves to the numbers of the deposits that it had stored before. */
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
      // Requests of the load belong to no deposit, and are not in the book.
      if (n !== undefined) await this.#tell(n, { by: "onrecovered", ...(error ? refusal(error) : await outcome(response)) });
    };
  }

  /** Makes a deposit. With `abortMs`, its caller loses patience after that time. */
  async deposit({ n, account, amount, abortMs }) {
    const signal = abortMs === undefined ? undefined : AbortSignal.timeout(abortMs);
    const request = { method: "POST", body: JSON.stringify({ amount }), signal };
    const answer = await this.#semel.fetch(`/accounts/${account}/deposit?n=${n}`, request).then(outcome, refusal);
    await this.#tell(n, { by: "promise", ...answer });
  }

  /**
   * A load that can be repeated: makes `count` changes that are recorded and acknowledged, but leave the balance as it is. There is a caller for each
   * account, because at one account they would wait for one another. With `leaks`, something of each answer is kept for good, which the run must
   * find.
   */
  async load(accounts, count, leaks) {
    let left = count;
    const caller = async (account) => {
      while (left > 0) {
        left -= 1;
        const request = { method: "POST", body: JSON.stringify({ amount: TOO_MUCH }) };
        const answer = await this.#semel.fetch(`/accounts/${account}/withdraw`, request).then(outcome, refusal);
        // A caller that gave up gets its answer by `onrecovered`.
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
