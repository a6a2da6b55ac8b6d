// The stub as a server on this machine, for the real `fetch`, and for other processes.
//
// Invariant: a call that is lost in the stub ends its connection without an answer. `call.init` has the connection as `socket`, and the response as
// `response`, for tests that answer by themselves.

import { createServer } from "node:http";
import { Stub } from "./stub.mjs";

/** Resolves to the stub and its address. The server is closed after the test. */
export async function serveStub(t) {
  const stub = new Stub();
  const server = createServer(async (request, response) => {
    const { url, method, headers, socket } = request;
    const chunks = await request.toArray();
    const answer = await stub.fetch(new URL(url, address), { method, headers, socket, response, body: Buffer.concat(chunks) }).catch(() => undefined);
    if (answer === undefined) return socket.destroy();
    const body = Buffer.from(await answer.arrayBuffer());
    response.writeHead(answer.status, { ...Object.fromEntries(answer.headers), "content-length": body.length }).end(body);
  });
  await new Promise((resolve, reject) => server.on("error", reject).listen(0, "127.0.0.1", resolve));
  const address = `http://127.0.0.1:${server.address().port}`;
  t.after(() => {
    const closed = new Promise((resolve) => server.close(resolve));
    server.closeAllConnections();
    return closed;
  });
  return { stub, url: address };
}
