// The server of a token issuer, for tests of keys that come from a URL.

import { once } from "node:events";
import { createServer } from "node:http";
import { jwks } from "./tokens.mjs";

/** Starts it. It answers with `answer`, which can be replaced, and counts requests as `asked`. */
export async function issuer(t, answer) {
  const told = { answer, asked: 0 };
  const http = createServer((request, response) => {
    told.asked += 1;
    told.answer(response);
  });
  http.listen(0, "127.0.0.1");
  await once(http, "listening");
  t.after(() => {
    http.closeAllConnections();
    http.close();
  });
  told.url = `http://127.0.0.1:${http.address().port}/jwks`;
  return told;
}

/** An answer with a set of these keys. */
export const gives = (...signers) => (response) => response.end(jwks(...signers));
