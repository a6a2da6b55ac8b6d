// A queue that delivers like Cloudflare's: a message that is not acknowledged comes again, and sometimes one that is. And the queue for dead letters.

import { once } from "node:events";
import { createServer } from "node:http";
import { deserialize } from "node:v8";

/** The answer that the runtime expects to a message that it has sent. */
const SENT = JSON.stringify({ metadata: { metrics: { backlogCount: 0, backlogBytes: 0, oldestMessageTimestamp: 0 } } });

/** Starts a server that keeps the letters. `after` is node:test's. */
export async function deadLetters(after) {
  const side = { letters: [], fails: 0 };
  const server = createServer(async (request, response) => {
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    const isBroken = side.fails > 0;
    side.fails -= isBroken ? 1 : 0;
    if (!isBroken) {
      const body = Buffer.concat(chunks);
      side.letters.push(request.headers["x-msg-fmt"] === "v8" ? deserialize(body) : JSON.parse(body));
    }
    response.writeHead(isBroken ? 500 : 200).end(SENT);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  after(() => server.close());
  side.address = `127.0.0.1:${server.address().port}`;
  return side;
}

/** Delivers messages to a consumer once. Resolves to `acknowledged`, the ids, and to `again`, the delay of each by its id. */
export async function deliver(server, queue, messages) {
  const now = Date.now();
  const body = JSON.stringify({ queue, messages: messages.map((message) => ({ timestamp: now, attempts: 1, ...message })) });
  const response = await fetch(`${server.url}/deliver`, { method: "POST", body, signal: AbortSignal.timeout(30_000) });
  const { outcome, explicitAcks, retryMessages } = await response.json();
  if (outcome !== "ok") throw new Error(`the consumer ended with ${outcome}`);
  return { acknowledged: explicitAcks, again: Object.fromEntries(retryMessages.map(({ msgId, delaySeconds }) => [msgId, delaySeconds])) };
}
