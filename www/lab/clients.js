// The two clients that are compared: `fetch` with retries as it is often written, and `semel.fetch`.
//
// Invariants:
// - Both retry at one interval, with one timeout, and through one network. They differ in nothing but Semel.
// - What becomes of a click is on record as soon as it is known.

import { Semel } from "semel";
import { AMOUNT, ATTEMPT_TIMEOUT_MS, RETRY_INTERVAL_MS } from "./limits.js";

const deposit = { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ amount: AMOUNT }) };

/** Retries until there is an answer. It has no memory beyond this page, and its requests have no name. */
export function makeNaive({ account, network, journal }) {
  async function once(click) {
    const url = `/naive/accounts/${account}/deposit?n=${click}`;
    const response = await network.send("naive", click, url, { ...deposit, signal: AbortSignal.timeout(ATTEMPT_TIMEOUT_MS) });
    if (!response.ok) throw new Error(`it answers ${response.status}`);
  }
  return {
    async deposit(click) {
      for (;;) {
        const isAnswered = await once(click).then(
          () => true,
          () => false,
        );
        // The journal's troubles are no reason to send again.
        if (isAnswered) return journal.change(click, { naive: "answered", naiveMs: Date.now() });
        await new Promise((resolve) => setTimeout(resolve, RETRY_INTERVAL_MS));
      }
    },
  };
}

/** The outbox of `account`, which is its identity as well: each account's requests are stored apart. */
export async function makeSemel({ account, network, journal }) {
  const clickOf = (url) => Number(new URL(url, location.origin).searchParams.get("n")) || undefined;
  const semel = await Semel.open({
    url: location.origin,
    identity: account,
    headers: { authorization: `Bearer ${account}` },
    retryIntervalMs: RETRY_INTERVAL_MS,
    attemptTimeoutMs: ATTEMPT_TIMEOUT_MS,
    // Deposits may come in any order, as those of the other client do.
    ordered: false,
    fetch: (url, init) => network.send("semel", init.method === "POST" ? clickOf(url) : undefined, url, init),
    onpaused: ({ url, error }) => journal.change(clickOf(url), { semel: "paused", error: error.message }),
  });
  semel.onrecovered = async ({ url, error }) => {
    await journal.change(clickOf(url), { ...settled(error), isRecovered: true });
  };
  return {
    semel,
    async deposit(click) {
      const error = await semel.fetch(`/accounts/${account}/deposit?n=${click}`, deposit).then(
        () => undefined,
        (error) => error,
      );
      await journal.change(click, settled(error));
    },
    /** The clicks that Semel has stored and that have no answer yet, of every tab. */
    async stored() {
      return new Set((await semel.pending()).map(({ url }) => clickOf(url)));
    },
  };
}

const settled = (error) => ({ semel: error ? "failed" : "answered", semelMs: Date.now(), ...(error && { error: error.message }) });
