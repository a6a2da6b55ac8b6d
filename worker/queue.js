// A consumer of Cloudflare Queues: gives each message to the handler of a key, exactly once however often it is delivered.
//
// Invariants:
// - A message is acknowledged once its outcome is recorded, or once a dead letter holds it: never before, and each by itself.
// - Its id is the same at each delivery, and so is what it asks for.
// - What is no option, or none of its kind, is told when the consumer is made: each message would fail by it.
// - What can't come to anything, however often it is delivered, becomes a dead letter that says why. Whatever may pass is delivered again.
// - Every wait has a deadline: where one message were waited for without end, the platform would end the batch, and deliver all of it again.
// - A letter says that its message never runs, by `retry` "never", only where its key has that recorded: the acknowledgement may be lost, and a later
//   delivery come. So what may yet pass is cancelled before its letter is sent; but for an id of one's own, under which it can be put in again.

import { within } from "./chores.js";
import { jsonOf } from "./json.js";
import { note } from "./module.js";
import { asMessage } from "./router.js";

/** So many messages of a batch are under way at a time. A batch has 100 at most. */
const UNDER_WAY_MAX = 16;
/** The handler fails at each delivery: at this one it is given up. Queues deliver four times, unless told otherwise. */
const DELIVERIES = 3;
/** How long to wait for an answer or a letter, and, where it says nothing of it, until the next delivery: an interval that does not grow. */
const WAIT_SECONDS = 20;
const RETRY_SECONDS = 5;
/** So much of what an answer says is in a letter, which may have 128 kB with its message. */
const DETAIL_CHARS_MAX = 1_000;

/** The `queue` of a Worker. See `ConsumerOptions` of the types. */
export function consumer({ path, id, method = "POST", deadLetters = "DEAD_LETTERS", deliveries = DELIVERIES, retries = Infinity, ...others } = {}) {
  const wrong = (name, wanted) => new TypeError(`consumer(): ${name} is ${wanted}`);
  const isText = typeof path === "string";
  if (typeof path !== "function" && !(isText && path.startsWith("/"))) throw wrong("path", 'a template such as "/shops/{shop}/orders", or a function');
  // As a pattern of keys has it: it would be taken as it is, and all messages would be of one key.
  if (isText && path.includes("/:")) throw new TypeError(`consumer() has ${path}: a name is in braces there, as {name}`);
  if (!/^(undefined|string|function)$/.test(typeof id)) throw wrong("id", "the name of a member, or a function");
  // What it comes to is a promise, by which each message would fail.
  for (const [name, made] of Object.entries({ path, id })) if (/^Async/.test(made?.[Symbol.toStringTag])) throw wrong(name, "a function that is not async");
  if (typeof method !== "string" || !/^(POST|PUT|PATCH|DELETE)$/i.test(method)) throw wrong("method", "POST, PUT, PATCH or DELETE");
  if (typeof deadLetters !== "string") throw wrong("deadLetters", "the name of a binding");
  if (typeof deliveries !== "number" || !(deliveries >= 1)) throw wrong("deliveries", "a number from 1 on");
  if (typeof retries !== "number" || !(retries >= 0)) throw wrong("retries", "a number from 0 on");
  for (const name in others) throw wrong(name, "no option");
  const pathOf = typeof path === "function" ? path : (body) => path.replace(/\{([^{}]*)\}/g, (_, name) => segment(member(body, name)));
  const idOf = typeof id === "string" ? (body) => member(body, id) : id;
  // Of "patch" the runtime makes no method that anything handles.
  const asked = (message) => requestOf(message, { method: method.toUpperCase(), pathOf, idOf });
  const isNamed = idOf !== undefined;
  return async function queue(batch, env) {
    const left = [...batch.messages];
    const next = async () => {
      for (let message = left.shift(); message; message = left.shift()) await consume(message, { queue: batch.queue, env, asked, isNamed, letters: env[deadLetters], deliveries, retries });
    };
    await Promise.all(Array.from({ length: UNDER_WAY_MAX }, next));
  };
}

async function consume(message, { queue, env, asked, isNamed, letters, deliveries, retries }) {
  const tell = (reason) => note("warn", `a message of the queue ${queue} is a dead letter: ${JSON.stringify({ message: message.id, ...reason })}`);
  try {
    // Without a letter it is delivered again, and may pass.
    const cancels = letters !== undefined && !isNamed;
    const reason = await reasonOf(message, env, asked, { cancels, deliveries, retries, tell });
    if (reason === undefined) return message.ack();
    if (reason.retrySeconds !== undefined) return message.retry({ delaySeconds: reason.retrySeconds });
    // What a handler has answered is in the letter alone: no body is in the log.
    tell(reason.code === "refused" ? { ...reason, detail: undefined } : reason);
    // Without a queue for it the platform's own takes it in the end, without the reason.
    if (letters === undefined) return message.retry({ delaySeconds: RETRY_SECONDS });
    await within(WAIT_SECONDS * 1_000, send(letters, { queue, id: message.id, timestamp: message.timestamp.getTime(), attempts: message.attempts, reason, body: message.body }));
    message.ack();
  } catch (error) {
    note("error", `a message of the queue ${queue} could not be consumed: ${error}`);
    message.retry({ delaySeconds: RETRY_SECONDS });
  }
}

/** Why a message is a dead letter, or in how many seconds it is to be delivered again; undefined: it has had its effect. */
async function reasonOf(message, env, asked, { cancels, deliveries, retries, tell }) {
  let request;
  try {
    request = asked(message);
  } catch (error) {
    return { code: "message-invalid", executed: "no", retry: "after-fix", detail: wordsOf(error).slice(0, DETAIL_CHARS_MAX) };
  }
  const answer = await asMessage(request, env);
  const status = answer.headers.get("semel-status");
  const text = await answer.text();
  if (status === "executed" || status === "replayed") return refusal(answer.status, text);
  const { code, executed, retry, detail } = JSON.parse(text);
  if (code === "acknowledged" && executed === "yes") return undefined;
  const fails = code === "rolled-back" && message.attempts >= deliveries;
  // The queue would not deliver it again, and nobody would be told why.
  const isLast = message.attempts > retries;
  if (retry === "same-id" && !fails && !isLast) return { retrySeconds: Number(answer.headers.get("retry-after")) || RETRY_SECONDS };
  const reason = { code, status: answer.status, executed, retry, detail };
  const key = answer.headers.get("semel-key");
  // What no key was asked for can't be cancelled at any, and another's id is not this message's to cancel.
  const mayRun = executed === "no" && retry !== "never" && code !== "fingerprint-mismatch" && key !== null;
  if (!cancels || !mayRun) return reason;
  // Should nobody hear that it is cancelled, the next delivery is told no more than that.
  tell(reason);
  const { state, outcome, retry: again } = await cancelled(message, key, env);
  if (state === "cancelled") return { ...reason, retry: "never" };
  // Another delivery came before.
  if (state === "executed") return refusal(outcome.status, textOf(outcome.body));
  // What can't be cancelled as it is never can.
  return isLast || again === "after-fix" ? reason : { retrySeconds: RETRY_SECONDS };
}

/** What was thrown. Not every object has words for itself. */
function wordsOf(thrown) {
  try {
    return String(thrown);
  } catch {
    return "what was thrown can't be written as text";
  }
}

/** Why an outcome makes its message a dead letter; undefined: it does not. */
function refusal(status, text) {
  if (status >= 200 && status < 300) return undefined;
  return { code: "refused", status, executed: "yes", retry: "never", detail: text.slice(0, DETAIL_CHARS_MAX) };
}

/** A body of an outcome in JSON, of which the answer itself would be the same text. */
function textOf(body) {
  return typeof body === "string" ? body : new TextDecoder().decode(Uint8Array.from(atob(body.base64), (character) => character.charCodeAt(0)));
}

/** What a key says to the cancellation of a message under its own id: its `state`, or a problem. `key`: as in `Semel-Key`. */
async function cancelled({ id, timestamp }, key, env) {
  const headers = { "content-type": "application/json", prefer: `wait=${WAIT_SECONDS}`, "idempotency-key": quoted(crypto.randomUUID()), "semel-first-sent": sentAt(new Date()) };
  const path = `/semel/v1/keys/${key.slice(1, -1).replaceAll("/", "%2F")}/cancel`;
  const body = JSON.stringify({ id, firstSent: secondsOf(timestamp) });
  const answer = await asMessage(new Request(`https://queue${path}`, { method: "POST", headers, body }), env, true);
  return answer.json();
}

/** A message as a request. What throws here throws at each delivery. */
function requestOf(message, { method, pathOf, idOf }) {
  const { body, timestamp } = message;
  const [type, content] = contentOf(body);
  const headers = { "content-type": type, prefer: `wait=${WAIT_SECONDS}` };
  headers["idempotency-key"] = quoted(idOf === undefined ? message.id : idOf(body, message));
  // Two messages that mean the same were not sent at the same time.
  if (idOf === undefined) headers["semel-first-sent"] = sentAt(timestamp);
  const path = pathOf(body, message);
  if (typeof path !== "string" || !path.startsWith("/")) throw new TypeError("the path of a message begins with /");
  return new Request(`https://queue${path}`, { method, headers, body: content });
}

const secondsOf = (date) => Math.floor(date.getTime() / 1000);

const sentAt = (date) => `@${secondsOf(date)}`;

function contentOf(body) {
  if (typeof body === "string") return ["text/plain; charset=utf-8", body];
  if (body instanceof ArrayBuffer || ArrayBuffer.isView(body)) return ["application/octet-stream", body];
  return ["application/json", jsonOf(body)];
}

/** A member of a body, which is not inherited. */
function member(body, name) {
  const value = typeof body === "object" && body !== null && Object.hasOwn(body, name) ? body[name] : undefined;
  if ((typeof value !== "string" || value === "") && !Number.isSafeInteger(value)) throw new TypeError(`the body has no ${name} that is a text or a whole number`);
  return String(value);
}

/** A segment of a path, and no way out of it. */
function segment(text) {
  if (/^\.{1,2}$/.test(text)) throw new TypeError(`${JSON.stringify(text)} can be no segment of a path`);
  return encodeURIComponent(text);
}

/** A string of a structured field. What it can't hold is told by who reads it. */
function quoted(id) {
  if (typeof id !== "string") throw new TypeError("the id of a message is a text");
  if (!/^[ -~]{1,255}$/.test(id)) throw new TypeError("the id of a message has 1 to 255 characters of printable ASCII");
  return `"${id.replace(/["\\]/g, "\\$&")}"`;
}

/** JSON, which everybody can read, unless it would lose some of the body. */
function send(letters, letter) {
  const { body } = letter;
  let contentType = "json";
  try {
    if (typeof body !== "string") jsonOf(body);
  } catch {
    contentType = "v8";
  }
  return letters.send(letter, { contentType });
}
