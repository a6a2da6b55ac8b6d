// `semel/worker`: a Worker whose handler is written in JavaScript or TypeScript.
//
// Invariant: what would only fail once a request comes fails where the class is named, if that can be told by looking at it.

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
// What a handler has beside its tables goes after the engine has deleted the key, and before whatever comes then.
gatherBy({ ...gathering, group: (attempts, ...more) => (attempts.some((attempt) => isDeletion(attempt())) ? undefined : gathering.group(attempts, ...more)) });

/** What the runtime and Semel call of an object: a subclass that had its own would break it. */
const TAKEN = Object.getOwnPropertyNames(Hosted.prototype).filter((name) => name !== "constructor");

/** Who would turn foreign keys off. To turn on what is on does no harm, and hand-written entries begin so. */
const KEYS_OFF = /\bPRAGMA\s+(?:\w+\s*\.\s*)?foreign_keys\s*[=(](?!\s*["']?(?:on|yes|true|1)\b)/i;
/** What is told of it. */
const KEYS_STAY_ON =
  "does nothing in a transaction, and an entry is in one: to drop a table then deletes or changes the rows that refer to it by ON DELETE. Take it out; add columns, or put those rows aside and back in the same entry";

/** Where an administrator deletes all of a key. Letters and digits may be escaped there. */
const ADMIN_KEY = /^\/semel\/v1\/admin\/keys\/[^/]+$/;
const ESCAPED = /%[3-7][0-9a-f]/gi;
const isDeletion = ([method, pathname]) => method === "DELETE" && ADMIN_KEY.test(pathname.replace(ESCAPED, decodeURIComponent));
/** So many values are read at a time, to be deleted: each may have 2 MB. */
const VALUES_MAX = 8;

export class SemelObject extends Hosted {
  constructor(ctx, env) {
    super(ctx, env);
    const { abort } = ctx;
    ctx.abort = (...given) => {
      // A handler that calls it does not come back into the module.
      restart();
      abort.apply(ctx, given);
    };
    // A subclass has its fields, and has done its own, a turn later.
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

  /** An administrator has all of the key deleted, and is answered this. */
  #deleted([status, lines]) {
    if (status === 503) {
      // A cursor that a handler has not read to its end keeps its table from being dropped, and nothing ends it but the end of the object.
      note("warn", "a key could not be deleted, and its object ends: the next attempt finds no table in use, as one is by a cursor that was not read to its end");
      this.ctx.abort("a key could not be deleted");
    }
    // A replay deletes nothing of what came since. What is written here, the engine can't see, and it is in the commit of the deletion.
    if (valueIn(lines, "semel-status") !== "executed") return;
    const { kv } = this.ctx.storage;
    const { remove } = this.storage();
    for (let values; (values = [...kv.list({ limit: VALUES_MAX })]).length > 0; ) for (const [name] of values) remove(name);
  }
}

/** Whether what a class has itself leaves Semel what is its own. */
function checkNames(name, its) {
  const taken = TAKEN.find((each) => Object.hasOwn(its, each));
  if (taken) throw new TypeError(`${name}.${taken} is Semel's own: give it another name`);
}

let named;

/** The Worker of a class of objects. */
export function worker(Application) {
  if (!(Application?.prototype instanceof SemelObject)) throw new TypeError("worker() takes a class that extends SemelObject");
  check(Application);
  const rule = ruleOf(Application);
  // One of the same name is the same, of a module that a server for developers has loaded again.
  if (named !== undefined && named.name !== Application.name) throw new TypeError(`worker() has ${named.name} already: a Worker has one class of objects`);
  named = Application;
  setKeyRule(rule);
  // A handler that calls it is inside of the module, which is for one at a time.
  return { fetch: async (request, env) => (await undefined, serve(request, env)) };
}

function check({ name, prototype, schema = [] }) {
  if (!Array.isArray(schema) || schema.some((entry) => typeof entry !== "string")) throw new TypeError(`${name}.schema is a list of statements in SQL, an entry for each version`);
  // Tools write it for a table that is made anew; and where others refer to that, rows would be lost that nobody looks for.
  if (schema.some((entry) => KEYS_OFF.test(entry))) throw new TypeError(`${name}.schema turns PRAGMA foreign_keys off, which ${KEYS_STAY_ON}`);
  if (typeof prototype.handle !== "function") throw new TypeError(`${name} has no handle(ctx, request)`);
  // What is async, or a generator, is made by another.
  if (prototype.handle.constructor !== Function) throw new TypeError(`${name}.handle must not be async: ${NO_PROMISE}`);
  for (let its = prototype; its !== SemelObject.prototype; its = Object.getPrototypeOf(its)) checkNames(name, its);
}

function ruleOf(Application) {
  const { name, key } = Application;
  if (key === undefined) return undefined;
  if (typeof key === "function") {
    if (key.constructor !== Function) throw new TypeError(`${name}.key must not be async: it says at once which key a request is of`);
    return (head) => Application.key(head);
  }
  const [root, ...parts] = typeof key === "string" ? key.split("/") : [];
  const isOpen = parts.at(-1) === "*";
  if (isOpen) parts.pop();
  // It is compared with what is decoded: with an escape it would name no request, in silence.
  const isPart = (part) => part !== "" && !/[*%]/.test(part);
  if (root !== "" || parts.length === 0 || !parts.every(isPart)) throw new TypeError(`${name}.key is a function, or a pattern such as "/shops/:shop/*", written decoded`);
  return ({ segments }) => {
    const isLong = isOpen ? segments.length >= parts.length : segments.length === parts.length;
    const fits = isLong && parts.every((part, at) => part.startsWith(":") || part === segments[at]);
    return fits ? segments.slice(0, parts.length).join("/") : null;
  };
}
