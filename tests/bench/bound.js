// The bound: what the protocol demands of any server, in plain JavaScript, and nothing else. If each request has a commit of its own, no engine can
// save what the bound takes more than the floor, however fast it is. If requests share commits, an engine can do better.
//
// It is no server of the protocol: it checks, parses and knows nothing, and a retry fails. It does what no server can leave out. Head and body go to
// the
// object, and the wait for the answer is limited. Effect and record are one transaction, and the record replaces the row of the one that is
// acknowledged. The answer has its headers.
// Below `/unread`, the Worker does not even read head and body: it passes the request on as it is, waits without a limit, and passes the answer back.

import { DurableObject } from "cloudflare:workers";
import { bodyOf } from "../../worker/bodies.js";
import { linesOf, pathOf, responseOf, valueIn } from "../../worker/lines.js";

export const UNREAD = "/unread";
const WAIT_MS = 30_000;
const RECORDS = `CREATE TABLE IF NOT EXISTS records (id TEXT PRIMARY KEY, at_ms INTEGER NOT NULL, deadline INTEGER, print BLOB NOT NULL, status INTEGER NOT NULL, headers TEXT NOT NULL,
  body BLOB NOT NULL) STRICT, WITHOUT ROWID`;
const EXPOSED = "Semel-Status, Semel-Now, Idempotent-Replayed, Semel-Key, Semel-Expires, Semel-Offset, Retry-After, content-type, cache-control";
const HEADERS = `content-type:application/json\ncache-control:no-store\naccess-control-allow-origin:*\naccess-control-expose-headers:${EXPOSED}\nidempotent-replayed:false\nsemel-status:executed\n`;
/** As long as a fingerprint. */
const PRINT = new Uint8Array(32);
const DECODER = new TextDecoder();
const ENCODER = new TextEncoder();

/** Makes an object class for a handler. The handler gets SQL, the path and the parsed body, and returns `{ status, body }`. */
export const boundBy = (schema, handle) =>
  class extends DurableObject {
    constructor(ctx, env) {
      super(ctx, env);
      for (const statement of [schema, RECORDS]) ctx.storage.sql.exec(statement);
    }

    ask(method, pathname, lines, body) {
      const { storage } = this.ctx;
      return storage.transactionSync(() => {
        const { sql } = storage;
        const { status, body: said } = handle(sql, pathname, JSON.parse(DECODER.decode(body)));
        const bytes = ENCODER.encode(JSON.stringify(said));
        const nowMs = Date.now();
        const row = [valueIn(lines, "idempotency-key"), nowMs, Number(valueIn(lines, "semel-deadline")), PRINT, status, HEADERS, bytes];
        const acknowledged = valueIn(lines, "semel-ack")?.split('"', 2)[1];
        if (acknowledged === undefined) sql.exec("INSERT INTO records VALUES (?, ?, ?, ?, ?, ?, ?)", ...row);
        else sql.exec("UPDATE records SET id = ?, at_ms = ?, deadline = ?, print = ?, status = ?, headers = ?, body = ? WHERE id = ?", ...row, acknowledged);
        return [status, `${HEADERS}semel-expires:@${Math.floor(nowMs / 1000)}\nsemel-key:"${pathname}"\nsemel-now:${nowMs}\n`, bytes];
      });
    }

    async fetch(request) {
      return responseOf(this.ask(request.method, pathOf(request.url).pathname, linesOf(request.headers), await bodyOf(request)));
    }
  };

/** The Worker in front of the objects of `namespace`. `nameOf(path)` is the name of an object. */
export async function serveBound(request, namespace, nameOf) {
  const { pathname } = pathOf(request.url);
  const object = namespace.get(namespace.idFromName(nameOf(pathname)));
  if (pathname.startsWith(UNREAD)) return object.fetch(request);
  const call = [request.method, pathname, linesOf(request.headers), await bodyOf(request)];
  let timer;
  const answer = await new Promise((resolve, reject) => {
    timer = setTimeout(reject, WAIT_MS, new Error("no answer"));
    object.ask(...call).then(resolve, reject);
  });
  clearTimeout(timer);
  return responseOf(answer);
}
