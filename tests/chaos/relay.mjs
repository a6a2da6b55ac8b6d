// Relays a WebSocket through the proxy: bytes go both ways until one side ends, or until the fault strikes.
//
// Invariants:
// - A fault strikes after a drawn number of bytes in one direction. What came before it has passed.
// - When one connection ends, the other ends as soon as everything on its way has passed.

/** A fault strikes within this many bytes of a direction, which are some frames. */
const FAULT_BYTES = 2_000;
/** How much of a socket is kept to be sent again. */
const SENT_BYTES_MAX = 64 * 1024;

/**
 * Passes bytes on. Resolves to what the client sent, its head included. `first`: what has come from the client so far. `dealt()`: called when the fault
 * strikes. `side`: "request" for what the client sends.
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
