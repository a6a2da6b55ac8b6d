// The bound of the ledger's deposits. bound.js explains what a bound is.

import { boundBy, serveBound } from "./bound.js";

const ACCOUNT = "CREATE TABLE IF NOT EXISTS account (only_row INTEGER PRIMARY KEY CHECK (only_row = 1), balance INTEGER NOT NULL, entries INTEGER NOT NULL) STRICT";
const DEPOSIT = "INSERT INTO account VALUES (1, ?1, 1) ON CONFLICT DO UPDATE SET balance = balance + ?1, entries = entries + 1 RETURNING balance, entries";

const accountOf = (pathname) => pathname.split("/").at(-2);

export const Bound = boundBy(ACCOUNT, (sql, pathname, { amount }) => ({ status: 200, body: { id: accountOf(pathname), ...sql.exec(DEPOSIT, amount).one() } }));

export default {
  fetch: (request, env) => serveBound(request, env.BOUND, accountOf),
};
