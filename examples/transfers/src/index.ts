// Accounts that send money to each other: `POST /accounts/{id}/deposit`, `/transfer` with `{"to","amount"}`, `GET /accounts/{id}`.
// Nothing here checks whose account it is. Limit each token to its own keys, or check `ctx.principal`.

import { type Answer, type Context, type HandlerRequest, SemelObject, SemelRegistry, worker } from "semel/worker";

type Movement = { amount?: unknown; to?: unknown };

export class Accounts extends SemelObject<Env> {
  static key = "/accounts/:id/*";

  // Past 2^53 - 1 a balance would be rounded. A deposit that goes past it fails and is undone; a credit is sent again until there is room for it.
  static schema = ["CREATE TABLE account (balance INTEGER NOT NULL CHECK (balance BETWEEN 0 AND 9007199254740991), credits INTEGER NOT NULL) STRICT; INSERT INTO account VALUES (0, 0)"];

  handle(ctx: Context, request: HandlerRequest): Answer | null {
    const [, id, what] = request.segments;
    if (request.method === "GET" && what === undefined) return { status: 200, body: ctx.sql.exec<{ balance: number; credits: number }>("SELECT balance, credits FROM account").one() };
    if (request.method !== "POST") return null;
    const { amount, to } = read(request);
    if (!Number.isSafeInteger(amount) || Number(amount) < 1) return { status: 400, body: { error: "invalid" } };
    switch (what) {
      case "deposit":
        return moved(ctx, Number(amount), 0);
      case "credit":
        // Only another account may credit: no client can have this principal.
        return ctx.principal === "semel:emit" ? moved(ctx, Number(amount), 1) : { status: 403, body: { error: "forbidden" } };
      case "transfer": {
        if (typeof to !== "string" || !/^[\w-]{1,64}$/.test(to) || to === id) return { status: 400, body: { error: "invalid" } };
        const { balance } = ctx.sql.exec<{ balance: number }>("SELECT balance FROM account").one();
        if (balance < Number(amount)) return { status: 409, body: { error: "insufficient-funds" } };
        // Committed together with the withdrawal below. The credit arrives exactly once, whatever fails on the way.
        ctx.emit(`accounts/${to}`, { path: `/accounts/${to}/credit`, body: { amount: Number(amount) } });
        return moved(ctx, -Number(amount), 0);
      }
      default:
        return null;
    }
  }
}

function read(request: HandlerRequest): Movement {
  try {
    return request.json<Movement | null>() ?? {};
  } catch {
    return {};
  }
}

function moved(ctx: Context, amount: number, credits: number): Answer {
  const statement = "UPDATE account SET balance = balance + ?, credits = credits + ? RETURNING balance";
  return { status: 200, body: ctx.sql.exec<{ balance: number }>(statement, amount, credits).one() };
}

export { SemelRegistry };
export default worker(Accounts);
