// The two clients that are compared: `fetch` with retries as it is often written, and `semel.fetch`.
//
// Invariants:
// - Both retry at the same interval, with the same timeout, and through the same network. Nothing but Semel differs.
// - What becomes of a click is recorded as soon as it is known.

import { Semel } from "semel";
import { AMOUNT, ATTEMPT_TIMEOUT_MS, RETRY_INTERVAL_MS } from "./limits.js";

const deposit = { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ amount: AMOUNT }) };

/** Retries until there is an answer. Its memory is this page, and its requests have no id. */
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
        // An error of the journal is no reason to send again.
        if (isAnswered) return journal.change(click, { naive: "answered", naiveMs: Date.now() });
        await new Promise((resolve) => setTimeout(resolve, RETRY_INTERVAL_MS));
      }
    },
  };
}

/** Opens the outbox of `account`. The account is also its identity, so that each account's requests are stored apart. */
export async function makeSemel({ account, network, journal }) {
  const clickOf = (url) => Number(new URL(url, location.origin).searchParams.get("n")) || undefined;
  const semel = await Semel.open({
    url: location.origin,
    identity: account,
    headers: { authorization: `Bearer ${account}` },
    retryIntervalMs: RETRY_INTERVAL_MS,
    attemptTimeoutMs: ATTEMPT_TIMEOUT_MS,
    // Deposits may come in any order, like those of the other client.
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
    /** Resolves to the clicks of all tabs that Semel has stored and that have no answer yet. */
    async stored() {
      return new Set((await semel.pending()).map(({ url }) => clickOf(url)));
    },
  };
}

const settled = (error) => ({ semel: error ? "failed" : "answered", semelMs: Date.now(), ...(error && { error: error.message }) });
