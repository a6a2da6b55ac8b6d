// An issuer's server, for the tests of keys that come from a URL.

import { once } from "node:events";
import { createServer } from "node:http";
import { jwks } from "./tokens.mjs";

/** An issuer's server: answers with what it is told to, and counts who asks. */
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

/** Answers with a set of these keys. */
export const gives = (...signers) => (response) => response.end(jwks(...signers));
