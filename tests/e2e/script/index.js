// A handler in JavaScript that does what its path says, even the worst; and classes that can't be served at all.

import { SemelObject, SemelRegistry, worker } from "semel/worker";

/** What is done after an answer, when a test asks for it. */
let late;
/** A result that was read only in part. */
let half;

const recurse = (depth) => recurse(depth + 1) + depth;
const worst = { get [Symbol.toPrimitive]() { throw new Error("looked at"); }, get stack() { throw new Error("looked at"); } };

const THROWN = {
  error: () => { throw new Error("the reason is nobody's business"); },
  null: () => { throw null; },
  undefined: () => { throw undefined; },
  worst: () => { throw worst; },
  range: () => recurse(0),
  unasked: () => { throw new Error("nobody waits for its answer"); },
  trap: () => { throw new WebAssembly.RuntimeError("unreachable"); },
  sql: ({ sql }) => sql.exec("SELECT * FROM nowhere"),
  cause: () => { throw new Error("no order was placed", { cause: new Error("there is one of that name") }); },
};

const ANSWERS = {
  nothing: () => undefined,
  text: () => "hello",
  promise: async () => ({ status: 200 }),
  thenable: () => ({ then: () => {} }),
  rejected: () => Promise.reject(new Error("late")),
  response: () => new Response("hello"),
  status: () => ({ status: "200" }),
  "no-status": () => ({ body: "hello" }),
  fraction: () => ({ status: 200.5 }),
  // 200, if it is cut to sixteen bits.
  beyond: () => ({ status: 65_736 }),
  "header-break": () => ({ status: 200, headers: { "x-bad": "a\r\nx-injected: b" } }),
  "header-name": () => ({ status: 200, headers: { "x bad": "a" } }),
  "header-type": () => ({ status: 200, headers: { "x-bad": ["a"] } }),
  stream: () => ({ status: 200, body: new ReadableStream() }),
  map: () => ({ status: 200, body: new Map() }),
  "body-promise": () => ({ status: 200, body: Promise.resolve("hello") }),
  bigint: () => ({ status: 200, body: { big: 1n } }),
  nan: () => ({ status: 200, body: Number.NaN }),
  function: () => ({ status: 200, body: () => {} }),
  "bytes-inside": ({ sql }) => ({ status: 200, body: sql.exec("SELECT x'0102' AS data").one() }),
  blob: ({ sql }) => ({ status: 200, body: sql.exec("SELECT x'0102' AS data").one().data }),
  "map-inside": () => ({ status: 200, body: { list: [new Map([[1, 2]])] } }),
  "nan-inside": () => ({ status: 200, body: { list: [Number.NaN] } }),
  "function-inside": () => ({ status: 200, body: { method() {} } }),
  "symbol-inside": () => ({ status: 200, body: { a: Symbol("left out") } }),
  "undefined-inside": () => ({ status: 200, body: { none: undefined, list: [1, undefined, 3] } }),
  "headers-text": () => ({ status: 200, headers: "x-a: b" }),
  "no-json": () => ({ status: 200, body: { toJSON: () => undefined } }),
  redirect: () => ({ status: 302 }),
  large: () => ({ status: 200, body: "x".repeat((1 << 20) + 1) }),
  "with-204": () => ({ status: 204, body: "x" }),
};

const GIVEN = {
  json: () => ({ status: 200, body: { a: [1, null, "\u00e9"] } }),
  array: () => ({ status: 200, body: [] }),
  number: () => ({ status: 200, body: 0 }),
  date: () => ({ status: 200, body: new Date(0) }),
  text: () => ({ status: 200, body: "caf\u00e9" }),
  typed: () => ({ status: 200, headers: { "x-before": "1", "Content-Type": "text/csv" }, body: "a,b" }),
  bytes: () => ({ status: 200, headers: [["x-one", 1], ["x-one", "2"]], body: new Uint8Array([0, 255]) }),
  headers: () => ({ status: 404, headers: new Headers({ "x-one": "1" }), body: null }),
  empty: () => ({ status: 204, headers: null }),
};

const TO_SHELF = { path: "/shelf?key=shelf" };
const often = (ctx, count) => { for (let n = 0; n < count; n += 1) ctx.emit("shelf", TO_SHELF); };
/** The message of what `work` throws. */
const thrown = (work) => { try { work(); } catch (error) { return error.message; } };

const SENDS = {
  undone: (ctx, storage) => thrown(() => storage.transactionSync(() => { often(ctx, 3); throw new Error("undone"); })),
  "undone-first": (ctx, storage) => { SENDS.undone(ctx, storage); often(ctx, 2); },
  nested: (ctx, storage) => storage.transactionSync(() => often(ctx, 2)),
  caught: (ctx) => thrown(() => ctx.emit("shelf", { path: "/elsewhere" })),
  "too-many": (ctx) => often(ctx, 65),
  "too-many-caught": (ctx) => thrown(() => often(ctx, 65)),
  "too-many-told": (ctx) => { throw new Error(SENDS["too-many-caught"](ctx)); },
  wrong: (ctx) => ctx.emit("shelf", { path: "/elsewhere" }),
  failing: (ctx) => ctx.emit("failing", { path: "/throws/unasked?key=failing" }),
  lossy: (ctx) => ctx.emit("shelf", { ...TO_SHELF, body: { data: new Uint8Array(1) } }),
  endless: (ctx, { kv }) => { if (!kv.get("ended")) ctx.emit("endless", { path: "/sends/endless?key=endless" }); },
  ended: (_, { kv }) => { kv.put("ended", true); },
};

const TAKE = "UPDATE many SET n = n - 2 RETURNING n";
const take = (sql) => { for (const { n } of sql.exec(TAKE)) if (n < 0) throw new Error("out of stock"); };
/** Statements that write three rows, of which one is read, or none. */
const WRITES = {
  first: ({ sql }) => { const [row] = sql.exec("UPDATE many SET n = n + 1 RETURNING n"); return row; },
  next: ({ sql }) => sql.exec("INSERT INTO many VALUES (7), (8), (9) RETURNING n").next().value,
  raw: ({ sql }) => sql.exec("DELETE FROM many RETURNING n").raw().next().value,
  unread: ({ sql }) => { sql.exec(TAKE); },
  several: ({ sql }) => { sql.exec(TAKE).next(); sql.exec("INSERT INTO many VALUES (7), (8) RETURNING n").next(); },
  "its-own": (ctx, storage) => storage.sql.exec(TAKE).next().value,
  sends: (ctx) => { ctx.emit("shelf", TO_SHELF); return ctx.sql.exec(TAKE).next().value; },
  "in-json": ({ sql }) => ({ toJSON: () => sql.exec(TAKE).next().value }),
  nested: ({ sql }, storage) => storage.transactionSync(() => sql.exec(TAKE).next().value),
  undone: ({ sql }, storage) => { sql.exec("INSERT INTO many VALUES (4)"); return thrown(() => storage.transactionSync(() => take(sql))); },
  throws: ({ sql }) => take(sql),
  "nested-throws": ({ sql }, storage) => storage.transactionSync(() => take(sql)),
  "late-in-nested": ({ sql }, storage) => storage.transactionSync(() => sql.exec(TAKE)).toArray(),
  "over-nested": ({ sql }, storage) => { for (const { n } of sql.exec(TAKE)) storage.transactionSync(() => sql.exec("INSERT INTO many VALUES (?)", n)); },
  "sends-each": (ctx) => { for (const _ of ctx.sql.exec(TAKE)) ctx.emit("shelf", TO_SHELF); },
  "awaits-in-nested": ({ sql }, storage) => { storage.transactionSync(async () => take(sql)); },
  "goes-on-in-nested": (_, storage) => { storage.transactionSync(async () => { await undefined; storage.sql.exec("INSERT INTO many VALUES (4)"); }); },
  "then-in-nested": (_, storage) => storage.transactionSync(() => ({ then: (done) => setTimeout(() => done(storage.sql.exec("INSERT INTO many VALUES (5)"))) })),
  unreadable: ({ sql }) => { const rows = sql.exec(TAKE); rows.next = () => { rows.toArray(); throw new Error("not to be read"); }; },
  promise: async ({ sql }) => sql.exec(TAKE).next().value,
  "promise-goes-on": async (_, storage) => { await undefined; storage.transactionSync(() => storage.sql.exec("INSERT INTO many VALUES (6)")); },
  "promise-stores": async (_, storage) => {
    await undefined;
    const puts = [() => storage.kv.put("late", 1), () => storage.put("late too", 1), () => storage.transaction((its) => its.put("late as well", 1))];
    for (const put of puts) thrown(put);
  },
  transaction: (_, storage) => { storage.transaction(async () => storage.sql.exec("INSERT INTO many VALUES (8)")); },
  deleteAll: (_, storage) => { storage.deleteAll(); },
  setAlarm: (_, storage) => { storage.setAlarm(Date.now() + 1_000_000); },
  deleteAlarm: (_, storage) => { storage.deleteAlarm(); },
  conflicts: ({ sql }) => {
    sql.exec("CREATE TABLE IF NOT EXISTS only (n UNIQUE); INSERT OR IGNORE INTO only VALUES (1)");
    const reason = thrown(() => sql.exec("INSERT INTO only VALUES (1)"));
    sql.exec("INSERT INTO many VALUES (5)");
    return reason;
  },
  "rolls-back": ({ sql }) => {
    sql.exec("CREATE TABLE IF NOT EXISTS only (n UNIQUE); INSERT OR IGNORE INTO only VALUES (1)");
    const reason = thrown(() => sql.exec("INSERT OR ROLLBACK INTO only VALUES (1)"));
    sql.exec("INSERT INTO many VALUES (5)");
    return reason;
  },
  "puts-wrong": (_, storage) => { storage.put("a function", () => {}).catch(() => {}); },
  "puts-one-wrong": (_, storage) => { storage.put({ one: 1, other: () => {} }); },
  puts: (_, storage) => { storage.put("one", 1).then(() => {}); storage.put({ other: 2, third: [3] }); return [...storage.kv.list()]; },
  put: (_, storage) => { storage.put("one", 1); storage.kv.put("other", 1); throw new Error("after both"); },
  null: ({ sql }) => { sql.exec(TAKE).next(); return null; },
};

export class Probe extends SemelObject {
  static key({ segments, query }) {
    if (segments[0] !== "key") return query.get("key") ?? "probe";
    return { throws: () => THROWN.error(), recurses: () => recurse(0), promise: async () => "probe", nothing: () => undefined, null: () => null }[segments[1]]();
  }

  static schema = ["PRAGMA foreign_keys = ON; CREATE TABLE probe (runs INTEGER NOT NULL) STRICT; INSERT INTO probe VALUES (0)", "CREATE TABLE many (n INTEGER) STRICT; INSERT INTO many VALUES (1), (2), (3) RETURNING n"];

  constructor(ctx, env) {
    super(ctx, env);
    if (ctx.id.name === "field") this.storage = ctx.storage;
    if (ctx.id.name === "keys-off") ctx.storage.sql.exec("PRAGMA foreign_keys = OFF");
  }

  handle(ctx, request) {
    const { sql } = ctx;
    sql.exec("UPDATE probe SET runs = runs + 1");
    const [what, name] = request.segments;
    if (what === "throws") return THROWN[name](ctx);
    if (what === "answers") return ANSWERS[name](ctx);
    if (what === "gives") return GIVEN[name]();
    if (what === "runs") return { status: 200, body: sql.exec("SELECT runs FROM probe").one().runs };
    if (what === "late") return this.late(ctx);
    if (what === "calls") return this.env.SEMEL.get(this.env.SEMEL.idFromName("called")).nothing();
    if (what === "told") return { status: 200, body: late ?? null };
    if (what === "sends") return { status: 200, body: SENDS[name](ctx, this.ctx.storage) ?? null };
    if (what === "serves") {
      served.fetch(new Request("https://semel/gives/text?key=other", { method: "POST", headers: { "idempotency-key": name } }), this.env);
      return { status: 200, body: "asked for" };
    }
    if (what === "aborts") this.ctx.abort("it was the handler");
    if (what === "many") return { status: 200, body: [...sql.exec("SELECT n FROM many ORDER BY rowid").raw()].flat() };
    if (what === "writes") {
      const written = WRITES[name](ctx, this.ctx.storage);
      if (name.startsWith("promise") || written === null) return written;
      return { status: 200, body: written ?? "done" };
    }
    if (what === "kept") {
      const { kv } = this.ctx.storage;
      if (request.method !== "GET") for (let n = 0; n < 20; n += 1) kv.put(`who-${n}`, "ann@example.com");
      return { status: 200, body: [...kv.list()].length };
    }
    if (what === "half") {
      sql.exec("CREATE TABLE half (n INTEGER NOT NULL) STRICT; INSERT INTO half VALUES (1), (2), (3)");
      half = sql.exec("SELECT n FROM half");
      return { status: 200, body: half.next().value };
    }
    if (what === "null") return null;
    const { method, path, segments, headers, body } = request;
    const seen = { method, path, segments, query: [...request.query], type: headers.get("content-type"), from: headers.get("semel-from"), bytes: body.length, text: request.text(), now: ctx.now, key: ctx.key, principal: ctx.principal };
    return { status: 200, body: { ...seen, id: this.ctx.id.name, open: this.env.SEMEL_OPEN } };
  }

  async late(ctx) {
    await Promise.resolve();
    try {
      ctx.sql.exec("UPDATE probe SET runs = runs + 100");
    } catch (error) {
      late = error.message;
    }
    return { status: 200 };
  }
}

const REFUSED = {
  nothing: () => undefined,
  "no object": () => class {},
  "no handle": () => class Orders extends SemelObject {},
  "handle as a field": () => class Orders extends SemelObject { handle = () => {}; },
  async: () => class Orders extends SemelObject { async handle() {} },
  generator: () => class Orders extends SemelObject { *handle() {} },
  taken: () => class Orders extends (class extends SemelObject { count() {} }) { handle() {} },
  schema: () => class Orders extends SemelObject { static schema = "CREATE TABLE"; handle() {} },
  "keys off": () => class Orders extends SemelObject { static schema = ["CREATE TABLE a (n)", "pragma foreign_keys=OFF; DROP TABLE a"]; handle() {} },
  "keys of main off": () => class Orders extends SemelObject { static schema = ["PRAGMA main.foreign_keys(0); DROP TABLE a"]; handle() {} },
  "key async": () => class Orders extends SemelObject { static async key() {} handle() {} },
  "key of numbers": () => class Orders extends SemelObject { static key = 5; handle() {} },
  "key of nothing": () => class Orders extends SemelObject { static key = "/*"; handle() {} },
  "key in braces": () => class Orders extends SemelObject { static key = "/shops/{shop}/*"; handle() {} },
  "key escaped": () => class Orders extends SemelObject { static key = "/caf%C3%A9/:x"; handle() {} },
  "key inside": () => class Orders extends SemelObject { static key = "/a/*/b"; handle() {} },
  "another one": () => class Orders extends SemelObject { handle() {} },
  // As after a hot reload: another class of the same name.
  "loaded again": () => ({ Probe: class extends Probe {} }).Probe,
};

const served = worker(Probe);

export { SemelRegistry };
export default {
  fetch(request, env) {
    const { pathname } = new URL(request.url);
    if (pathname !== "/refused") return served.fetch(request, env);
    const reasons = {};
    for (const [name, make] of Object.entries(REFUSED)) {
      try {
        worker(make());
        reasons[name] = "served";
      } catch (error) {
        reasons[name] = error.message;
      }
    }
    return Response.json(reasons);
  },
};
