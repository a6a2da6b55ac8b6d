// A WebSocket through the proxy: bytes go both ways until one side ends, or the fault strikes.
//
// Invariants:
// - A fault strikes after so many bytes in one direction. What came before it has passed.
// - No connection outlives the other by more than what is on its way.

/** Within so many bytes of a direction a fault strikes: some frames. */
const FAULT_BYTES = 2_000;
/** What is kept of a socket to be sent once more. */
const SENT_BYTES_MAX = 64 * 1024;

/**
 * Passes bytes on; resolves to what the client sent, its head in front. `first`: what came of it so far; `dealt()` is called where the fault strikes;
 * `side`: "request" for what the client sends.
 */
export async function relay({ client, server, first, fault, side, place, stallMs, dealt, pause }) {
  const sent = [first];
  let sentBytes = first.length;
  const pass = async (from, to, isFaulty) => {
    let left = isFaulty ? Math.floor(place * FAULT_BYTES) : Infinity;
    for await (const chunk of from) {
      if (from === client && (sentBytes += chunk.length) <= SENT_BYTES_MAX) sent.push(chunk);
      const before = chunk.subarray(0, left);
      left -= before.length;
      await write(to, before);
      if (before.length === chunk.length) continue;
      dealt();
      if (fault === "cut") return void [from, to].map((socket) => socket.resetAndDestroy());
      if (fault === "truncate") break;
      await pause(stallMs);
      left = Infinity;
      await write(to, chunk.subarray(before.length));
    }
    to.end();
    from.destroy();
  };
  server.write(first);
  const isFaulty = (own) => fault !== undefined && side === own;
  await Promise.allSettled([pass(client, server, isFaulty("request")), pass(server, client, isFaulty("answer"))]);
  return Buffer.concat(sent);
}

function write(socket, bytes) {
  return new Promise((resolve, reject) => socket.write(bytes, (error) => (error ? reject(error) : resolve())));
}
