// `semel/worker`: a Worker whose handler is written in JavaScript or TypeScript.
//
// Invariant: mistakes in the class that can be seen without a request throw in `worker()`, and not at the first request.

import { Effects } from "./effects.js";
import * as gathering from "./gathering.js";
import { SemelObject as Hosted, sendBy } from "./host.js";
import { valueIn } from "./lines.js";
import { note, restart } from "./module.js";
import { gatherBy, serve } from "./router.js";
import { NO_PROMISE, bind, setKeyRule } from "./script.js";

export { consumer } from "./queue.js";
export { SemelRegistry } from "./registry.js";

sendBy(Effects);
// A group that contains the deletion of a key runs one by one: the handler's key-value entries must be deleted after the engine has deleted the key, and
// before the next request runs.
gatherBy({ ...gathering, group: (attempts, ...more) => (attempts.some((attempt) => isDeletion(attempt())) ? undefined : gathering.group(attempts, ...more)) });

/** The methods that the runtime and Semel call. A subclass that defined one would break the object. */
const TAKEN = Object.getOwnPropertyNames(Hosted.prototype).filter((name) => name !== "constructor");

/** Finds statements that turn foreign keys off. Turning them on is harmless, and hand-written entries begin with it. */
const KEYS_OFF = /\bPRAGMA\s+(?:\w+\s*\.\s*)?foreign_keys\s*[=(](?!\s*["']?(?:on|yes|true|1)\b)/i;
/** The end of that error's message. */
const KEYS_STAY_ON =
  "does nothing in a transaction, and an entry is in one: to drop a table then deletes or changes the rows that refer to it by ON DELETE. Take it out; add columns, or put those rows aside and back in the same entry";

/** The path at which an administrator deletes everything of a key. Letters and digits may be percent-encoded. */
const ADMIN_KEY = /^\/semel\/v1\/admin\/keys\/[^/]+$/;
const ESCAPED = /%[3-7][0-9a-f]/gi;
const isDeletion = ([method, pathname]) => method === "DELETE" && ADMIN_KEY.test(pathname.replace(ESCAPED, decodeURIComponent));
/** How many values are read at a time, to be deleted: each may have 2 MB. */
const VALUES_MAX = 8;

export class SemelObject extends Hosted {
  constructor(ctx, env) {
    super(ctx, env);
    const { abort } = ctx;
    ctx.abort = (...given) => {
      // `abort` does not return. If a handler calls it, the call into the module never ends, so the instance must be replaced.
      restart();
      abort.apply(ctx, given);
    };
    // One turn later, because the fields and the constructor of the subclass come after this.
    ctx.blockConcurrencyWhile(async () => {
      await undefined;
      checkNames(this.constructor.name, this);
    });
  }

  storage() {
    return bind(super.storage(), this);
  }

  run(attempt, known) {
    const answer = super.run(attempt, known);
    if (isDeletion(attempt())) this.#deleted(answer);
    return answer;
  }

  /** Called with the answer to an administrator who deletes everything of the key. */
  #deleted([status, lines]) {
    if (status === 503) {
      // A cursor that a handler has not read to its end keeps its table from being dropped. Only the end of the object ends the cursor.
      note("warn", "a key could not be deleted, and its object ends: the next attempt finds no table in use, as one is by a cursor that was not read to its end");
      this.ctx.abort("a key could not be deleted");
    }
    // A replay must not delete what was written since. These deletions are in the commit of the engine's.
    if (valueIn(lines, "semel-status") !== "executed") return;
    const { kv } = this.ctx.storage;
    const { remove } = this.storage();
    for (let values; (values = [...kv.list({ limit: VALUES_MAX })]).length > 0; ) for (const [name] of values) remove(name);
  }
}

/** Throws if a class or an instance has a property of a name that Semel needs. */
function checkNames(name, its) {
  const taken = TAKEN.find((each) => Object.hasOwn(its, each));
  if (taken) throw new TypeError(`${name}.${taken} is Semel's own: give it another name`);
}

let named;

/** Makes the Worker of a class of objects. */
export function worker(Application) {
  if (!(Application?.prototype instanceof SemelObject)) throw new TypeError("worker() takes a class that extends SemelObject");
  check(Application);
  const rule = ruleOf(Application);
  // A class of the same name is allowed: a development server may have loaded the module again.
  if (named !== undefined && named.name !== Application.name) throw new TypeError(`worker() has ${named.name} already: a Worker has one class of objects`);
  named = Application;
  setKeyRule(rule);
  // One turn later: if a handler calls this `fetch`, a call into the module is under way, and the module takes one at a time.
  return { fetch: async (request, env) => (await undefined, serve(request, env)) };
}

function check({ name, prototype, schema = [] }) {
  if (!Array.isArray(schema) || schema.some((entry) => typeof entry !== "string")) throw new TypeError(`${name}.schema is a list of statements in SQL, an entry for each version`);
  // Migration tools write this when they rebuild a table. Inside a transaction it has no effect, and rows that refer to the table would be lost silently.
  if (schema.some((entry) => KEYS_OFF.test(entry))) throw new TypeError(`${name}.schema turns PRAGMA foreign_keys off, which ${KEYS_STAY_ON}`);
  if (typeof prototype.handle !== "function") throw new TypeError(`${name} has no method handle(ctx, request); a field with a function is none`);
  if (isAsync(prototype.handle)) throw new TypeError(`${name}.handle must not be async: ${NO_PROMISE}`);
  for (let its = prototype; its !== SemelObject.prototype; its = Object.getPrototypeOf(its)) checkNames(name, its);
}

/** Also true for generators. Both have other constructors than this arrow function. The global `Function` is no measure: test runners replace it. */
const isAsync = ({ constructor }) => constructor !== (() => {}).constructor;

function ruleOf(Application) {
  const { name, key } = Application;
  if (key === undefined) return undefined;
  if (typeof key === "function") {
    if (isAsync(key)) throw new TypeError(`${name}.key must not be async: it says at once which key a request is of`);
    return (head) => Application.key(head);
  }
  const [root, ...parts] = typeof key === "string" ? key.split("/") : [];
  const isOpen = parts.at(-1) === "*";
  if (isOpen) parts.pop();
  // A pattern is compared with decoded segments, so one with an escape, or with a name in braces, would silently match nothing.
  const isPart = (part) => part !== "" && !/[*%{}]/.test(part);
  if (root !== "" || parts.length === 0 || !parts.every(isPart)) throw new TypeError(`${name}.key is a function, or a pattern such as "/shops/:shop/*", written decoded`);
  return ({ segments }) => {
    const isLong = isOpen ? segments.length >= parts.length : segments.length === parts.length;
    const fits = isLong && parts.every((part, at) => part.startsWith(":") || part === segments[at]);
    return fits ? segments.slice(0, parts.length).join("/") : null;
  };
}
