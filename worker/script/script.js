// What the module calls of a handler in JavaScript, and how it finds it.
//
// Invariants:
// - Nothing that an application throws leaves these functions: to the module it would be a trap of its own. What went wrong is
//   told as text, for the log. A trap of the module's own leaves them, whatever the application has made of it.
// - A handler answers at once. What it did after an `await` would be another commit than the record of its request.
// - What a handler has written by is read to its end before its transaction goes on: SQLite would neither commit nor undo one.
// - Nothing that a handler only promised is begun here, and what it goes on to do has no statement: it would be done by each retry once more.

import { answerOf } from "./answers.js";
import { Context, Head, Request } from "./requests.js";
import { exec } from "./storage.js";

/** What the engines of objects were made over, by the storage of their objects. */
const engines = new WeakMap();
/** Of the handler that is being asked: cursors of what has written, perhaps half read. */
const cursors = [];
/** Whose handler is being asked. It stays where the runtime has cut that off, and its object is gone: so nobody else takes it for their own. */
let asked;
let keyRule;

/** What is told of who gives a promise. */
export const NO_PROMISE =
  "it has to answer at once, without async and await: what it did after an await would be another commit than the record of its request, and could happen twice or not at all. " +
  "ctx.sql answers at once; what has to be awaited belongs into the Worker's fetch, before the request or after its answer";
/** What is told of whoever goes on after that. */
const LEFT = "storage is the handler's alone, since it gave a promise: what that writes would be another commit";

/** What the engine of an object is made over: its storage, by a way of its own. */
export function bind(storage, object) {
  if (!engines.has(storage)) engines.set(storage, watch(storage, object));
  return engines.get(storage);
}

/** Has what a handler writes by remembered, whichever way it comes to it, and read to its end where a transaction of its own ends. */
function watch(storage, object) {
  const { sql, kv, transactionSync } = storage;
  const plain = { exec: sql.exec.bind(sql), get databaseSize() { return sql.databaseSize; } };
  const own = { sql: plain, transactionSync: transactionSync.bind(storage), remove: kv.delete.bind(kv), storage, object, hasPromised: false };
  const left = () => {
    if (own.hasPromised && asked !== own) throw new Error(LEFT);
  };
  guard(kv, ["put", "delete"], left);
  guard(storage, ["put", "delete", "transaction", "deleteAll"], left);
  // The alarm is also set by what Semel itself does, where nobody is asked.
  guard(storage, ["transaction", "deleteAll", "setAlarm", "deleteAlarm"], (name) => {
    if (asked === own) throw new Error(`storage.${name} is not for handle: what it does is another commit, or Semel's own; transactionSync is in this one`);
  });
  // What the runtime refuses of it, its promise would tell, which nobody waits for.
  guard(storage, ["put"], (_, key, value) => {
    if (asked === own) Object.entries(typeof key === "string" ? { [key]: value } : key).forEach((each) => kv.put(...each));
  });
  sql.exec = (statement, ...values) => {
    left();
    const cursor = exec(plain, statement, values);
    // A statement has written all by the time that its first row is there.
    // One without columns has no row to be left unread, and there may be very many of these.
    if (asked === own && cursor.rowsWritten > 0 && cursor.columnNames.length > 0) cursors.push(cursor);
    return cursor;
  };
  storage.transactionSync = (work) => transactionSync.call(storage, asked === own ? () => whole(() => atOnce(own, "a transaction", work())) : work);
  return own;
}

/** Has methods throw where `check` does. */
function guard(its, names, check) {
  for (const name of names) {
    const method = its[name];
    its[name] = (...given) => {
      check(name, ...given);
      return method.apply(its, given);
    };
  }
}

/** What `work` gives or throws, once all that it has written by is read to its end. */
function whole(work) {
  const from = cursors.length;
  let result;
  try {
    result = work();
  } catch (error) {
    readFrom(from);
    throw error;
  }
  const wrong = readFrom(from);
  if (wrong !== undefined) throw wrong;
  return result;
}

/** Reads each of them, whatever comes of those before it; gives what went wrong. */
function readFrom(from) {
  let wrong;
  while (cursors.length > from) {
    const cursor = cursors.pop();
    try {
      // Whoever reads on fails: no more rows would look as if there had been none.
      const { next } = cursor;
      while (!next.call(cursor).done) Object.setPrototypeOf(cursor, null);
    } catch (error) {
      wrong = error;
    }
  }
  return wrong;
}

/** The rule of all keys: of a `Head`, the key, or null where nothing handles it. */
export function setKeyRule(rule) {
  keyRule = rule;
}

export function keyOf(method, url) {
  if (keyRule === undefined) return undefined;
  try {
    const key = keyRule(new Head(method, url));
    if (key === null || typeof key === "string") return key;
    return [`static key gave ${nameOf(key)}: a key is a text, or null where nothing handles the request`];
  } catch (error) {
    return [wordsOf(error)];
  }
}

export function versionsOf(own) {
  return schemaOf(own).length;
}

export function migrate(own, from) {
  const schema = schemaOf(own);
  let version = from;
  try {
    for (; version < schema.length; version += 1) exec(own.sql, schema[version], []).toArray();
    return undefined;
  } catch (error) {
    return `entry ${version} of the schema: ${wordsOf(error)}`;
  }
}

const schemaOf = ({ object }) => object.constructor.schema ?? [];

export function handle(own, method, url, lines, body, now, key, principal, store) {
  const context = new Context(own.storage, store, now, key, principal);
  const answer = answered(context, own, new Request(method, url, lines, body));
  if (context.trap !== undefined) throw context.trap.error;
  return answer;
}

function answered(context, own, request) {
  asked = own;
  try {
    return whole(() => answerTo(context, own, request));
  } catch (error) {
    // The module knows what it has refused, and the client is told that.
    return error !== undefined && error === context.refused ? undefined : wordsOf(error);
  } finally {
    asked = undefined;
    context.end();
  }
}

function answerTo(context, own, request) {
  const answer = own.object.handle(context, request);
  if (answer === null) return null;
  return answerOf(atOnce(own, "handle", answer));
}

/** What was given, unless it is only promised. */
function atOnce(own, who, given) {
  if (!isPromise(given)) return given;
  own.hasPromised = true;
  // It is nobody's any more: what it rejects with is no news. To ask anything else than a promise for its end would have it begin: a query, say.
  if (given instanceof Promise) given.catch(() => {});
  throw new TypeError(`${who} gave a promise: ${NO_PROMISE}`);
}

const isPromise = (value) => typeof value === "object" && typeof value?.then === "function";

/** What is thrown may be anything, and may throw where it is looked at. */
function wordsOf(error) {
  try {
    const words = String(error?.stack ?? error);
    // First, for a stack is long, and a line of the log is cut.
    return error?.cause === undefined ? words : `${error.cause}, so ${words}`;
  } catch {
    return "what was thrown can't be told as text";
  }
}

function nameOf(value) {
  return value === undefined ? "nothing" : isPromise(value) ? "a promise" : `a ${typeof value}`;
}
