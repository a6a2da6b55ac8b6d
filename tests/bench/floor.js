// The floor: the ledger's deposit in a plain Durable Object in JavaScript. It has no id, no record and no engine: a retry deposits again.
//
// Invariant: it does what the ledger's handler does, written as anybody would. It writes the same row and gives the same answer.

import { DurableObject } from "cloudflare:workers";

const BALANCE_MAX = Number.MAX_SAFE_INTEGER;

export class Floor extends DurableObject {
  constructor(ctx, env) {
    super(ctx, env);
    ctx.storage.sql.exec("CREATE TABLE IF NOT EXISTS account (only_row INTEGER PRIMARY KEY CHECK (only_row = 1), balance INTEGER NOT NULL, entries INTEGER NOT NULL) STRICT");
  }

  async fetch(request) {
    const id = accountOf(request);
    const { amount } = await request.json();
    if (!Number.isSafeInteger(amount) || amount < 1) return Response.json({ error: "invalid-amount" }, { status: 400 });
    const { sql } = this.ctx.storage;
    const [before = { balance: 0, entries: 0 }] = sql.exec("SELECT balance, entries FROM account LIMIT 1").toArray();
    if (amount > BALANCE_MAX - before.balance) return Response.json({ error: "balance-too-large" }, { status: 400 });
    const after = { id, balance: before.balance + amount, entries: before.entries + 1 };
    sql.exec("INSERT OR REPLACE INTO account VALUES (1, ?, ?)", after.balance, after.entries);
    return Response.json(after);
  }
}

const accountOf = (request) => new URL(request.url).pathname.split("/")[2];

export default {
  fetch(request, env) {
    return env.FLOOR.get(env.FLOOR.idFromName(accountOf(request))).fetch(request);
  },
};
