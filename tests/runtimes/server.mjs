// Starts the ledger behind a proxy that loses the first answer to each request.

import { startLossy } from "../e2e/lossy.mjs";
import { serve } from "../e2e/server.mjs";

/** Starts both for a test file. `after` is the one of node:test. */
export async function serveLossily(after) {
  const server = await serve(after, "ledger");
  const seen = new Set();
  const spare = ({ method, headers }) => {
    const id = headers["idempotency-key"];
    return method !== "POST" || id === undefined || seen.size === seen.add(id).size;
  };
  const proxy = await startLossy({ target: () => server.url, seed: 1, loseAnswers: 1, spare });
  after(() => proxy.close());
  return { url: proxy.url, account: (name) => server.account(name) };
}

/** The result of a round trip with a new account: the change was made once, and the second attempt got its answer. */
export function expected(account) {
  return {
    status: 200,
    replayed: "true",
    body: { id: account, balance: 5, entries: 1 },
    read: { id: account, balance: 5, entries: 1 },
    session: [1, 2, 3].map((entries) => ({ id: `${account}-session`, balance: 5 * entries, entries })),
    pending: 0,
    isOfClasses: [true, true, true],
  };
}
