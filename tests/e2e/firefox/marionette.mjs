// Marionette, by which Firefox is driven from outside: commands over TCP, each answered in turn.
//
// Invariant: one command at a time. A session has one current window, so whoever means a window switches to it first.

import { connect } from "node:net";

/** Connects, and resolves to a session with `send(command, parameters)`. */
export async function startSession(port) {
  const socket = connect({ host: "127.0.0.1", port });
  const incoming = messages(socket);
  await incoming.next();
  let number = 0;
  let last = Promise.resolve();
  const exchange = async (command, parameters) => {
    number += 1;
    const text = JSON.stringify([0, number, command, parameters]);
    socket.write(`${Buffer.byteLength(text)}:${text}`);
    const { value } = await incoming.next();
    if (value === undefined) throw new Error(`${command}: Firefox is gone`);
    const [, , error, result] = value;
    if (error) throw new Error(`${command}: ${error.error}: ${error.message}`);
    return result;
  };
  /** What `work` does with `send` is not mixed with what others do. */
  const inTurn = (work) => {
    const own = last.then(() => work(exchange));
    last = own.catch(() => {});
    return own;
  };
  await inTurn((send) => send("WebDriver:NewSession", { strictFileInteractability: false }));
  return { inTurn, close: () => socket.destroy() };
}

/** The messages of a socket, `length:json` each, until it ends. */
async function* messages(socket) {
  let bytes = Buffer.alloc(0);
  try {
    for await (const chunk of socket) {
      bytes = Buffer.concat([bytes, chunk]);
      for (;;) {
        const colon = bytes.indexOf(":");
        const length = Number(bytes.subarray(0, Math.max(colon, 0)));
        if (colon < 0 || bytes.length < colon + 1 + length) break;
        yield JSON.parse(bytes.subarray(colon + 1, colon + 1 + length));
        bytes = bytes.subarray(colon + 1 + length);
      }
    }
  } catch {
    // It was killed.
  }
}
