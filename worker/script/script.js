// Connects the module with a handler in JavaScript: the functions that the module calls.
//
// Invariants:
// - Errors of the application never leave these functions, because the module would take one for a trap of its own. They are returned as text, for the log.
//   A trap of the module itself does leave them, even if the application has caught it.
// - A handler answers synchronously. Whatever it did after an `await` would be in another commit than the record of its request.
// - Cursors of statements that wrote are read to their end before the transaction goes on: SQLite could neither commit nor undo it otherwise.
// - If a handler returns a promise or another thenable, that is not awaited, and a handler that goes on afterwards can't write: each retry would do it again.

import { answerOf } from "./answers.js";
import { Context, Head, Request } from "./requests.js";
import { exec } from "./storage.js";

/** For the storage of each object, what its engine was given instead: see `bind`. */
const engines = new WeakMap();
/** The cursors of the current handler's statements that wrote and may not be read to their end. */
const cursors = [];
/**
 * The object whose handler is running. If the runtime cuts a handler off, it keeps its value; that object is gone then, and no other compares equal.
 */
let asked;
let keyRule;

/** The error if a handler returns a promise. */
export const NO_PROMISE =
  "it has to answer at once, without async and await: what it did after an await would be another commit than the record of its request, and could happen twice or not at all. " +
  "ctx.sql answers at once; what has to be awaited belongs into the Worker's fetch, before the request or after its answer";
/** The error if such a handler then uses the storage. */
const LEFT = "storage is the handler's alone, since it gave a promise: what that writes would be another commit";

/** Returns what an object's engine gets for its storage: access that is not guarded. The object's own `ctx.storage` is guarded from then on. */
export function bind(storage, object) {
  if (!engines.has(storage)) engines.set(storage, watch(storage, object));
  return engines.get(storage);
}

/** Guards `storage`, whichever way a handler gets to it: remembers its cursors, reads them to their end, and refuses what would be another commit. */
function watch(storage, object) {
  const { sql, kv, transactionSync } = storage;
  const plain = { exec: sql.exec.bind(sql), get databaseSize() { return sql.databaseSize; } };
  const own = { sql: plain, transactionSync: transactionSync.bind(storage), remove: kv.delete.bind(kv), storage, object, hasPromised: false };
  const left = () => {
    if (own.hasPromised && asked !== own) throw new Error(LEFT);
  };
  guard(kv, ["put", "delete"], left);
  guard(storage, ["put", "delete", "transaction", "deleteAll"], left);
  // Only while a handler runs: Semel itself sets the alarm at other times.
  guard(storage, ["transaction", "deleteAll", "setAlarm", "deleteAlarm"], (name) => {
    if (asked === own) throw new Error(`storage.${name} is not for handle: what it does is another commit, or Semel's own; transactionSync is in this one`);
  });
  // `storage.put` reports refusals by a promise that no handler can await. `kv.put` throws them.
  guard(storage, ["put"], (_, key, value) => {
    if (asked === own) Object.entries(typeof key === "string" ? { [key]: value } : key).forEach((each) => kv.put(...each));
  });
  sql.exec = (statement, ...values) => {
    left();
    const cursor = exec(plain, statement, values);
    // When its first row is there, a statement has written everything, so `rowsWritten` is final.
    // Statements without columns have no rows to read, and there may be very many of them.
    if (asked === own && cursor.rowsWritten > 0 && cursor.columnNames.length > 0) cursors.push(cursor);
    return cursor;
  };
  storage.transactionSync = (work) => transactionSync.call(storage, asked === own ? () => whole(() => atOnce(own, "a transaction", work())) : work);
  return own;
}

/** Makes methods call `check` first, and throw if it does. */
function guard(its, names, check) {
  for (const name of names) {
    const method = its[name];
    its[name] = (...given) => {
      check(name, ...given);
      return method.apply(its, given);
    };
  }
}

/** Runs `work`, and then reads its cursors to their end. Returns or throws what `work` does. */
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

/** Reads all cursors from an index on to their end, even if one fails. Returns the last error. */
function readFrom(from) {
  let wrong;
  while (cursors.length > from) {
    const cursor = cursors.pop();
    try {
      // The handler must not go on reading: the end of the rows would look like no rows. Without a prototype, each use of the cursor throws.
      const { next } = cursor;
      while (!next.call(cursor).done) Object.setPrototypeOf(cursor, null);
    } catch (error) {
      wrong = error;
    }
  }
  return wrong;
}

/** Sets the key rule: a function of a `Head` that returns the key, or null if nothing handles the request. */
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
    // If the engine refused an effect, it knows the reason, and tells the client.
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

/** Returns `given`. Throws if it is a promise. */
function atOnce(own, who, given) {
  if (!isPromise(given)) return given;
  own.hasPromised = true;
  // Nobody awaits it, so a rejection would be reported as unhandled. Only for real promises: calling `then` of another thenable, such as a query, starts it.
  if (given instanceof Promise) given.catch(() => {});
  throw new TypeError(`${who} gave a promise: ${NO_PROMISE}`);
}

/** Not only objects: what a call to another object or Worker gives can itself be called. */
const isPromise = (value) => typeof value?.then === "function";

/** The text of whatever was thrown, which may be anything, and may itself throw when it is read. */
function wordsOf(error) {
  try {
    const words = String(error?.stack ?? error);
    // The cause first: a stack is long, and a line of the log is cut off.
    return error?.cause === undefined ? words : `${error.cause}, so ${words}`;
  } catch {
    return "what was thrown can't be told as text";
  }
}

function nameOf(value) {
  return value === undefined ? "nothing" : isPromise(value) ? "a promise" : `a ${typeof value}`;
}
