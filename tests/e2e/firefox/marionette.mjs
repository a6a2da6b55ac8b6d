// Marionette, the protocol that controls Firefox from outside: WebDriver commands over TCP.
//
// Invariant: commands are sent one at a time: each is answered before the next is sent.

import { connect } from "node:net";

/** Connects. Resolves to a session, whose `send(command, parameters)` resolves to the command's result. */
export async function startSession(port) {
  const socket = connect({ host: "127.0.0.1", port });
  const incoming = messages(socket);
  await incoming.next();
  let number = 0;
  const send = async (command, parameters = {}) => {
    number += 1;
    const text = JSON.stringify([0, number, `WebDriver:${command}`, parameters]);
    socket.write(`${Buffer.byteLength(text)}:${text}`);
    const { value } = await incoming.next();
    if (value === undefined) throw new Error(`${command}: Firefox is gone`);
    const [, , error, result] = value;
    if (error) throw new Error(`${command}: ${error.error}: ${error.message}`);
    // A result that is not an object comes as the member of one.
    return "value" in result ? result.value : result;
  };
  await send("NewSession", { strictFileInteractability: false });
  return { send, close: () => socket.destroy() };
}

/** The messages of a socket, each `length:json`, until the socket ends. */
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
    // The browser was killed.
  }
}
