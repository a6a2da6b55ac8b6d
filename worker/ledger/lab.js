// The server's part of the lab, the demonstration's page: a log of what became of each attempt, written by the object that decided; and a way to kill the
// server, where that is possible.
//
// Invariants:
// - A row of the log is written in the same turn as the attempt's effect, so both are one commit: after a crash the log has exactly what the account has.
// - Requests without the lab's header write nothing, and create no log.
// - The log has a limit. Once it is full it says so, and does not change any more.
// - Only the server's own page can have it killed. The browser sends the page's origin, and the supervisor checks the host name of the request too, because
//   somebody else's name may lead to this server as well.

import { linesOf, valueIn } from "./lines.js";
import { objectOf } from "./objects.js";
import { answerOf, left } from "./router.js";

const HEADER = "lab-attempt";
const ATTEMPT = /^[A-Za-z0-9._-]{1,64}$/;
const ROWS_MAX = 20_000;
const PAGE_ROWS_MAX = 1_000;
const WAIT_MS = 10_000;

const TABLE = "CREATE TABLE lab_attempts (n INTEGER PRIMARY KEY, attempt TEXT NOT NULL, status TEXT NOT NULL, at_ms INTEGER NOT NULL) STRICT";

/** A deployment is the demonstration if NAIVE is bound. Elsewhere nothing is logged. */
const isLab = (env) => env.NAIVE !== undefined;

/** The log of one object, and its account's balance. */
class Log {
  #sql;
  #rowsMax;
  /** The number of the last row, which is also the number of rows; undefined until it is looked up. */
  #last;

  constructor({ sql }, env) {
    this.#sql = sql;
    this.#rowsMax = Number(env.LAB_ROWS_MAX ?? ROWS_MAX);
  }

  add(attempt, status, atMs) {
    if (this.#isFull()) return;
    const last = this.#lastRow();
    // Checked each time: an administrator may have deleted everything of the key.
    if (!this.#has("lab_attempts")) this.#sql.exec(TABLE);
    this.#sql.exec("INSERT INTO lab_attempts VALUES (?1, ?2, ?3, ?4)", last + 1, attempt, status, atMs);
    this.#last = last + 1;
  }

  /** The account at this instant, and the rows after number `after`. */
  since(after, [records, tombstones]) {
    const [account] = this.#rows("account", "SELECT balance, entries FROM account");
    const page = "SELECT n, attempt, status, at_ms AS atMs FROM lab_attempts WHERE n > ?1 ORDER BY n LIMIT ?2";
    const attempts = this.#rows("lab_attempts", page, after, PAGE_ROWS_MAX);
    const last = attempts.at(-1)?.n ?? after;
    return { balance: 0, entries: 0, ...account, records, tombstones, full: this.#isFull(), last, attempts };
  }

  /** Also true if the limit is not a number. */
  #isFull() {
    return !(this.#lastRow() < this.#rowsMax);
  }

  #lastRow() {
    this.#last ??= this.#rows("lab_attempts", "SELECT max(n) AS last FROM lab_attempts")[0]?.last ?? 0;
    return this.#last;
  }

  /** No rows if the table does not exist. Reading does not create it. */
  #rows(table, statement, ...values) {
    return this.#has(table) ? this.#sql.exec(statement, ...values).toArray() : [];
  }

  #has(table) {
    return this.#sql.exec("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?1", table).toArray().length > 0;
  }
}

/** The name of the lab's attempt that a request is; undefined if it has none, or does not change an account. */
function attemptOf([method, pathname, , lines]) {
  const attempt = valueIn(lines, HEADER);
  if (attempt === undefined || !ATTEMPT.test(attempt) || method === "GET" || method === "HEAD") return undefined;
  // Acknowledgements are not attempts, though they may have the same status.
  return pathname.startsWith("/semel/") ? undefined : attempt;
}

/** Adds a log to the class of an account's object, which must have `run(attempt)`, `storage()` and `count()`. */
export const withLog = (Account, statusOf) =>
  class extends Account {
    #log;

    run(attempt, known) {
      const answer = super.run(attempt, known);
      const logged = isLab(this.env) ? attemptOf(attempt()) : undefined;
      if (logged !== undefined) this.#logOf().add(logged, statusOf(answer), Date.now());
      return answer;
    }

    /** Called by the Worker only: no request reaches it directly. */
    lab(after) {
      const count = this.count();
      if (count === undefined) throw new Error("the account's storage can't be read");
      return this.#logOf().since(after, count);
    }

    #logOf() {
      this.#log ??= new Log(this.storage(), this.env);
      return this.#log;
    }
  };

const NO_STORE = { headers: { "cache-control": "no-store" } };
const nothing = (status) => new Response(null, { ...NO_STORE, status });

/** Whether a path belongs to the lab. */
export const isForLab = (pathname) => pathname.startsWith("/lab/");

/** Answers the lab's requests. */
export async function serveLab(request, env) {
  const url = new URL(request.url);
  const asked = `${request.method} ${url.pathname}`;
  if (asked === "GET /lab/server") return Response.json({ canKill: env.LAB !== undefined }, NO_STORE);
  if (asked === "POST /lab/server/kill" && env.LAB) return kill(request, url, env);
  const [, account, side] = /^GET \/lab\/accounts\/([A-Za-z0-9-]{1,64})\/(semel|naive)$/.exec(asked) ?? [];
  return account && isLab(env) ? accountAt(request, url, account, side, env) : nothing(404);
}

async function kill(request, url, env) {
  if (request.headers.get("origin") !== url.origin) return nothing(403);
  const headers = { "lab-host": url.host };
  const ask = async () => nothing((await env.LAB.fetch("http://lab/kill", { method: "POST", headers })).status);
  return asked(env, request, ask);
}

/** Resolves to the response that `ask` gives, or to `unavailable` if it fails or takes too long. */
async function asked(env, { method, headers }, ask) {
  const answer = await answerOf(env, [method, linesOf(headers)], ask, WAIT_MS);
  return Array.isArray(answer) ? left(answer) : answer;
}

async function accountAt(request, url, account, side, env) {
  const after = url.searchParams.get("after") ?? "0";
  if (!/^\d{1,15}$/.test(after)) return nothing(400);
  const stub = side === "naive" ? env.NAIVE.get(env.NAIVE.idFromName(account)) : objectOf(env, "SEMEL", `accounts/${account}`);
  return asked(env, request, async () => Response.json(await stub.lab(Number(after)), NO_STORE));
}
