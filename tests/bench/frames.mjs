// Loads one key over one WebSocket: with frames of many requests, a few of them under way at a time.

import { open } from "../e2e/websocket.mjs";
import { DEADLINE_MS, requestId } from "./load.mjs";

/** Two, so that the next frame is under way while one is answered. */
const UNDER_WAY = 2;

/**
 * For `forMs`, sends frames of `size` deposits to an account. Each frame acknowledges the deposits of an answered one; at the end, frames of one deposit
 * acknowledge the rest. Resolves to deposits a second.
 */
export async function frames(url, { account, size, forMs }) {
  const { status, socket } = await open(url, `/semel/v1/keys/accounts%2F${account}/socket`);
  if (status !== 101) throw new Error(`the socket was refused with ${status}`);
  socket.send("{}");
  let number = 0;
  let done = 0;
  const sent = [];
  const send = (many, answered = []) => {
    const now = Date.now();
    const ids = Array.from({ length: many }, () => requestId());
    const times = { firstSent: Math.floor(now / 1000), deadline: now + DEADLINE_MS };
    const requests = ids.map((id) => ({ id, ...times, method: "POST", path: `/accounts/${account}/deposit`, body: '{"amount":1}' }));
    number += 1;
    socket.send(JSON.stringify({ frame: number, requests, acks: answered.map((id) => ({ id, until: now })) }));
    sent.push(ids);
  };
  const answered = async () => {
    const { answers } = JSON.parse(await socket.next());
    const ids = sent.shift();
    const wrong = answers.find((answer) => answer.headers["semel-status"] !== "executed");
    if (wrong || answers.length !== ids.length) throw new Error(`unexpected answer: ${JSON.stringify(wrong)}`);
    return ids;
  };
  const startedMs = performance.now();
  for (let each = 0; each < UNDER_WAY; each += 1) send(size);
  const left = [];
  while (sent.length > 0) {
    const ids = await answered();
    done += ids.length;
    if (performance.now() - startedMs < forMs) send(size, ids);
    else left.push(ids);
  }
  const rate = (done * 1000) / (performance.now() - startedMs);
  // Otherwise each round would leave records, and the next round would work with more of them.
  for (const ids of left) send(1, ids);
  while (sent.length > 0) await answered();
  socket.destroy();
  return rate;
}
