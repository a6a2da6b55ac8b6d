// Sends to the other side, as a careful proxy does.
//
// Invariants:
// - Nothing goes anywhere but to the configured origin, or the bound service. Redirects are not followed.
// - What belongs to one connection, to the page, or to this layer stays here, credentials too: the other side's own are a setting.
// - An answer is whole, within its limit and in time, or it is no answer.
// - That surely nothing was sent is said only where a connection was to be made first, and could not be: of a request that fails the
//   runtime says the same whether or not it has left.

import { connect } from "cloudflare:sockets";

const TIMEOUT_SECONDS = 25;
const TIMEOUT_SECONDS_MAX = 600;
/** What the engine can record. */
const BODY_BYTES_MAX = 1 << 20;

/** Of one connection, or of the client's own. What begins with one of the others as well. */
const KEPT_HERE = new Set(
  "accept-encoding authorization connection content-length cookie expect forwarded host idempotency-key keep-alive origin prefer proxy-authenticate proxy-authorization proxy-connection referer te trailer transfer-encoding upgrade via".split(" "),
);
const KEPT_HERE_FROM = ["semel-", "cf-", "sec-", "access-control-", "x-forwarded-", "x-real-ip"];

/** So long a connection may take. */
const CONNECT_MS_MAX = 5_000;

/** What sends: to `SEMEL_UPSTREAM`, or to the service that is bound as UPSTREAM. It resolves to what came of a call, and never rejects. */
export function senderOf(env) {
  const settings = settingsOf(env);
  return async (call, _answer, [method, pathname, search, lines, body]) => {
    const [, probe, , id] = call;
    const head = headOf(lines, env, id);
    if (probe !== undefined) head.headers.delete("content-type");
    const asked = probe === undefined ? { method, path: pathname + search, body } : { method: "GET", path: probe };
    if (asked.method === "GET" || asked.method === "HEAD") asked.body = undefined;
    try {
      return await settings.send({ ...head, ...asked });
    } catch (error) {
      return [error instanceof Unconnected, String(error)];
    }
  };
}

function settingsOf(env) {
  const seconds = Number(env.SEMEL_UPSTREAM_TIMEOUT_SECONDS ?? TIMEOUT_SECONDS);
  if (!(seconds > 0 && seconds <= TIMEOUT_SECONDS_MAX)) throw new Error(`SEMEL_UPSTREAM_TIMEOUT_SECONDS must be above 0, and at most ${TIMEOUT_SECONDS_MAX}`);
  const timeoutMs = seconds * 1000;
  try {
    new Headers({ authorization: env.SEMEL_UPSTREAM_AUTHORIZATION ?? "" });
  } catch {
    // What is thrown may have some of it in it.
    throw new Error("SEMEL_UPSTREAM_AUTHORIZATION can't be the value of a header");
  }
  const { UPSTREAM: service, SEMEL_UPSTREAM: address, SEMEL_UPSTREAM_METHOD: name } = env;
  if (service && address === undefined) {
    return { send: (asked) => (name === undefined ? fetched((request) => service.fetch(request), "https://upstream", asked, timeoutMs) : called(service, name, asked, timeoutMs)) };
  }
  if (address === undefined) throw new Error("SEMEL_UPSTREAM is not set, and no service is bound as UPSTREAM");
  const base = new URL(address);
  const isPlain = base.username === "" && base.password === "" && base.search === "" && base.hash === "";
  if (!["http:", "https:"].includes(base.protocol) || !isPlain) throw new Error("SEMEL_UPSTREAM must be an origin, with a path at most");
  const root = base.origin + base.pathname.replace(/\/$/, "");
  const first = { true: () => connected(base), false: () => {} }[env.SEMEL_UPSTREAM_CONNECT_FIRST ?? false];
  if (!first) throw new Error("SEMEL_UPSTREAM_CONNECT_FIRST must be true or false");
  const send = async (asked) => {
    await first();
    return fetched((request) => fetch(request), root, asked, timeoutMs);
  };
  return { send };
}

/** No connection could be made, so nothing was sent. */
class Unconnected extends Error {}

async function connected({ hostname, port, protocol }) {
  const socket = connect({ hostname, port: Number(port) || (protocol === "http:" ? 80 : 443) });
  // It is told by `opened`; nobody else is to hear it again.
  socket.closed.catch(() => {});
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error("no connection in time")), CONNECT_MS_MAX);
  });
  try {
    await Promise.race([socket.opened, late]);
  } catch (error) {
    throw new Unconnected(`no connection: ${error}`);
  } finally {
    clearTimeout(timer);
    socket.close().catch(() => {});
  }
}

/** `id` is the engine's: a client may have sent none, or the same in another form. */
function headOf(lines, env, id) {
  const headers = new Headers();
  const named = new Set();
  const each = lines
    .split("\n")
    .map((line) => [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 1)])
    .filter(([name]) => name !== "");
  for (const [name, value] of each) if (name === "connection") for (const one of value.split(",")) named.add(one.trim().toLowerCase());
  let key;
  let principal;
  for (const [name, value] of each) {
    if (name === "semel-key") key = value;
    else if (name === "semel-principal") principal = value;
    if (KEPT_HERE.has(name) || named.has(name) || KEPT_HERE_FROM.some((from) => name.startsWith(from))) continue;
    headers.append(name, value);
  }
  // What is encoded would be recorded so, for clients that may not know the encoding.
  headers.set("accept-encoding", "identity");
  if (id !== undefined) headers.set("idempotency-key", id);
  if (key !== undefined) headers.set("semel-key", key);
  if (principal !== undefined) headers.set("semel-principal", principal);
  if (env.SEMEL_UPSTREAM_AUTHORIZATION !== undefined) headers.set("authorization", env.SEMEL_UPSTREAM_AUTHORIZATION);
  return { headers, id, key, principal };
}

async function fetched(fetch, root, { method, path, headers, body }, timeoutMs) {
  const signal = AbortSignal.timeout(timeoutMs);
  const response = await fetch(new Request(root + path, { method, headers, body, redirect: "manual", signal }));
  const lines = [...response.headers].filter(([name]) => name !== "content-encoding").map(([name, value]) => `${name}:${value}\n`);
  const bytes = await bytesOf(response);
  return bytes === undefined ? [false, `the answer has more than ${BODY_BYTES_MAX} bytes`] : [response.status, lines.join(""), bytes];
}

async function bytesOf(response) {
  const chunks = [];
  let bytes = 0;
  if (response.body) {
    for await (const chunk of response.body) {
      bytes += chunk.byteLength;
      if (bytes > BODY_BYTES_MAX) return undefined;
      chunks.push(chunk);
    }
  }
  return new Uint8Array(await new Blob(chunks).arrayBuffer());
}

/** Calls a method of the service: `{ id, key, principal, method, path, headers, body }` for `{ status, headers?, body? }`. */
async function called(service, name, { id, key, principal, method, path, headers, body }, timeoutMs) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error("the service did not answer in time")), timeoutMs);
  });
  try {
    const asked = { id, key, principal, method, path, headers: Object.fromEntries(headers), body };
    const answer = await Promise.race([service[name](asked), late]);
    const lines = Object.entries(answer.headers ?? {}).map(([header, value]) => `${header}:${value}\n`);
    const bytes = typeof answer.body === "string" ? new TextEncoder().encode(answer.body) : new Uint8Array(answer.body ?? []);
    if (bytes.byteLength > BODY_BYTES_MAX) return [false, `the answer has more than ${BODY_BYTES_MAX} bytes`];
    return [answer.status, lines.join(""), bytes];
  } finally {
    clearTimeout(timer);
  }
}
