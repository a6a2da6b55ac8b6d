// A consumer of Cloudflare Queues: gives each message to the handler of a key, exactly once however often it is delivered.
//
// Invariants:
// - A message is acknowledged once its outcome is recorded, or once a dead letter holds it. Never earlier, and each message by itself.
// - A message makes the same request, with the same id, at each delivery.
// - A wrong option throws when the consumer is made. Otherwise every message would fail by it.
// - A message that can never succeed becomes a dead letter that says why. A message that may succeed later is delivered again.
// - Every wait has a deadline. If one message were waited for without end, the platform would end the batch and deliver all of it again.
// - A letter says `retry` "never" only if the key has recorded that the message never runs, because the acknowledgement may be lost and the message
//   delivered again. So a message that might still run is cancelled before its letter is sent. The exception is an id of the application's own: the
//   application can send the message again under it.

import { within } from "./chores.js";
import { jsonOf } from "./json.js";
import { note } from "./module.js";
import { asMessage } from "./router.js";

/** How many messages of a batch are under way at a time. A batch has at most 100. */
const UNDER_WAY_MAX = 16;
/** At this delivery, a message that the handler still fails is given up. Queues deliver four times by default. */
const DELIVERIES = 3;
/** How long to wait for an answer or for the sending of a letter; and the constant interval between deliveries, unless the answer names one. */
const WAIT_SECONDS = 20;
const RETRY_SECONDS = 5;
/** How much of an answer's text is in a letter. Letter and message together may have 128 kB. */
const DETAIL_CHARS_MAX = 1_000;

/** Makes the `queue` handler of a Worker. See `ConsumerOptions` in worker.d.ts. */
export function consumer({ path, id, method = "POST", deadLetters = "DEAD_LETTERS", deliveries = DELIVERIES, retries = Infinity, ...others } = {}) {
  const wrong = (name, wanted) => new TypeError(`consumer(): ${name} is ${wanted}`);
  const isText = typeof path === "string";
  if (typeof path !== "function" && !(isText && path.startsWith("/"))) throw wrong("path", 'a template such as "/shops/{shop}/orders", or a function');
  // `/:name` is the notation of `static key`. Here it would be taken literally, and all messages would have the same key.
  if (isText && path.includes("/:")) throw new TypeError(`consumer() has ${path}: a name is in braces there, as {name}`);
  if (!/^(undefined|string|function)$/.test(typeof id)) throw wrong("id", "the name of a member, or a function");
  // An async function returns a promise, and each message would fail by it.
  for (const [name, made] of Object.entries({ path, id })) if (/^Async/.test(made?.[Symbol.toStringTag])) throw wrong(name, "a function that is not async");
  if (typeof method !== "string" || !/^(POST|PUT|PATCH|DELETE)$/i.test(method)) throw wrong("method", "POST, PUT, PATCH or DELETE");
  if (typeof deadLetters !== "string") throw wrong("deadLetters", "the name of a binding");
  if (typeof deliveries !== "number" || !(deliveries >= 1)) throw wrong("deliveries", "a number from 1 on");
  if (typeof retries !== "number" || !(retries >= 0)) throw wrong("retries", "a number from 0 on");
  for (const name in others) throw wrong(name, "no option");
  const pathOf = typeof path === "function" ? path : (body) => path.replace(/\{([^{}]*)\}/g, (_, name) => segment(member(body, name)));
  const idOf = typeof id === "string" ? (body) => member(body, id) : id;
  // In capitals, because the runtime leaves "patch" as it is, and no handler knows such a method.
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
    // Without a queue for letters the message is delivered again, and may succeed: it must not be cancelled.
    const cancels = letters !== undefined && !isNamed;
    const reason = await reasonOf(message, env, asked, { cancels, deliveries, retries, tell });
    if (reason === undefined) return message.ack();
    if (reason.retrySeconds !== undefined) return message.retry({ delaySeconds: reason.retrySeconds });
    // A handler's answer is only in the letter: no body may be in the log.
    tell(reason.code === "refused" ? { ...reason, detail: undefined } : reason);
    // Without a queue for letters, the platform's own dead letter queue takes it in the end, without the reason.
    if (letters === undefined) return message.retry({ delaySeconds: RETRY_SECONDS });
    await within(WAIT_SECONDS * 1_000, send(letters, { queue, id: message.id, timestamp: message.timestamp.getTime(), attempts: message.attempts, reason, body: message.body }));
    message.ack();
  } catch (error) {
    note("error", `a message of the queue ${queue} could not be consumed: ${error}`);
    message.retry({ delaySeconds: RETRY_SECONDS });
  }
}

/** Resolves to the reason why a message is a dead letter, to `{ retrySeconds }` if it is to be delivered again, or to undefined if it had its effect. */
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
  // The queue would not deliver it again, and nobody would learn the reason.
  const isLast = message.attempts > retries;
  if (retry === "same-id" && !fails && !isLast) return { retrySeconds: Number(answer.headers.get("retry-after")) || RETRY_SECONDS };
  const reason = { code, status: answer.status, executed, retry, detail };
  const key = answer.headers.get("semel-key");
  // Without a key there is nothing to cancel at, and after a fingerprint mismatch the id belongs to another message.
  const mayRun = executed === "no" && retry !== "never" && code !== "fingerprint-mismatch" && key !== null;
  if (!cancels || !mayRun) return reason;
  // Logged before the cancellation: if its answer is lost, the next delivery only learns that the message is cancelled, and not why.
  tell(reason);
  const { state, outcome, retry: again } = await cancelled(message, key, env);
  if (state === "cancelled") return { ...reason, retry: "never" };
  // Another delivery has run it.
  if (state === "executed") return refusal(outcome.status, textOf(outcome.body));
  // `after-fix`: it can't be cancelled in this state, so trying again is no use.
  return isLast || again === "after-fix" ? reason : { retrySeconds: RETRY_SECONDS };
}

/** The text of whatever was thrown. Not every object can be made text. */
function wordsOf(thrown) {
  try {
    return String(thrown);
  } catch {
    return "what was thrown can't be written as text";
  }
}

/** The reason why a message with this outcome is a dead letter; undefined: it is none. */
function refusal(status, text) {
  if (status < 300) return undefined;
  return { code: "refused", status, executed: "yes", retry: "never", detail: text.slice(0, DETAIL_CHARS_MAX) };
}

/** The text of an outcome's body as the answer to a cancellation has it: a string, or base64. */
function textOf(body) {
  return typeof body === "string" ? body : new TextDecoder().decode(Uint8Array.from(atob(body.base64), (character) => character.charCodeAt(0)));
}

/** Asks the key to cancel a message by its id. Resolves to the answer, which has a `state`, or to a problem. `key`: as in `Semel-Key`. */
async function cancelled({ id, timestamp }, key, env) {
  const headers = { "content-type": "application/json", prefer: `wait=${WAIT_SECONDS}`, "idempotency-key": quoted(crypto.randomUUID()), "semel-first-sent": sentAt(new Date()) };
  const path = `/semel/v1/keys/${key.slice(1, -1).replaceAll("/", "%2F")}/cancel`;
  const body = JSON.stringify({ id, firstSent: secondsOf(timestamp) });
  const answer = await asMessage(new Request(`https://queue${path}`, { method: "POST", headers, body }), env, true);
  return answer.json();
}

/** Makes the request of a message. If this throws, it throws at each delivery. */
function requestOf(message, { method, pathOf, idOf }) {
  const { body, timestamp } = message;
  const [type, content] = contentOf(body);
  const headers = { "content-type": type, prefer: `wait=${WAIT_SECONDS}` };
  headers["idempotency-key"] = quoted(idOf === undefined ? message.id : idOf(body, message));
  // With an id of the application's own, two messages may mean the same request, but have different instants.
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

/** An own (not inherited) member of a body, as text. */
function member(body, name) {
  const value = typeof body === "object" && body !== null && Object.hasOwn(body, name) ? body[name] : undefined;
  if ((typeof value !== "string" || value === "") && !Number.isSafeInteger(value)) throw new TypeError(`the body has no ${name} that is a text or a whole number`);
  return String(value);
}

/** Encodes text as one segment of a path. `.` and `..` would lead elsewhere. */
function segment(text) {
  if (/^\.{1,2}$/.test(text)) throw new TypeError(`${JSON.stringify(text)} can be no segment of a path`);
  return encodeURIComponent(text);
}

/** A string of a structured field (RFC 9651). */
function quoted(id) {
  if (typeof id !== "string") throw new TypeError("the id of a message is a text");
  if (!/^[ -~]{1,255}$/.test(id)) throw new TypeError("the id of a message has 1 to 255 characters of printable ASCII");
  return `"${id.replace(/["\\]/g, "\\$&")}"`;
}

/** Sends a letter as JSON, which everybody can read, unless JSON would lose part of the body. */
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
