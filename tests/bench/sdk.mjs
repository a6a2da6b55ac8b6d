// Loads a server with the SDK in Node: `session.fetch` in a loop.

import { randomUUID } from "node:crypto";

/** How many calls wait at a time: twice as many as may be under way. The SDK takes a thousand, but each then costs it more. */
const CALLERS = 128;

/** Deposits 1, `requests` times. Resolves to deposits a second. */
export async function sessionLoop(url, account, requests) {
  const { Semel } = await import("../../sdk/npm/node.js");
  const semel = await Semel.open({ url, durability: "memory" });
  const session = await semel.session(`accounts/${account}`, randomUUID(), { transport: "auto" });
  let left = requests;
  const caller = async () => {
    while (left > 0) {
      left -= 1;
      const response = await session.fetch(`/accounts/${account}/deposit`, { method: "POST", body: '{"amount":1}' });
      if (response.status !== 200) throw new Error(`a deposit got ${response.status}`);
    }
  };
  const startedMs = performance.now();
  await Promise.all(Array.from({ length: Math.min(CALLERS, requests) }, caller));
  const rate = (requests * 1000) / (performance.now() - startedMs);
  await session.close();
  await semel.close();
  return rate;
}
