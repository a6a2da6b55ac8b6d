// What an administrator asks of a deployment: the one place that knows paths and shapes of the API under `/semel/v1/admin/`. The
// inspector and the command line both go through it.
//
// Invariants:
// - A change goes out under one id, and once an attempt may have run under one first-sent, however often it is sent; so it happens once, however many answers are lost.
// - An answer without `Semel-Status` is some proxy's, and says nothing. Only `executed` and `replayed` say that a change was made.
// - What is not known is not called failed: once an attempt may have arrived, an error says so.
// - Each attempt at a change of a key has a deadline. Once it is answered, the change is acknowledged: no attempt of it can come any more, so
//   its own record, which would fill the key, goes.

const BASE = "/semel/v1";
const ATTEMPT_TIMEOUT_MS = 10_000;
/** So much later an attempt may still begin to be executed: on the server's clock, which is known by an answer's way. */
const DEADLINE_MS = 20_000;
const RETRY_INTERVAL_MS = 1_000;
/** A longer wait is not obeyed: who asked is there and waits. */
const RETRY_AFTER_MS_MAX = 30_000;
/**
 * What these say of having run is of the request that a change names: the change itself was not made. But one that was asked for before may
 * be made, and acknowledged since: then they may be of its own record.
 */
export const OF_EITHER = ["in-flight", "outcome-unknown", "acknowledged", "outcome-expired"];
/** These say of a change that it is too old to tell. Of one that was never sent before it can be told: it is new, and was refused. */
export const TOO_OLD = ["forgotten", "outside-window"];

/**
 * Why something was not answered, or refused. `code` is one of the protocol's, or `no-network`, `no-answer`. `executed` is as of
 * the protocol: `"no"` only if a change was certainly not made. `isDefinitive`: the same would be refused again.
 */
export class AdminError extends Error {
  constructor(code, message, { status, executed = "unknown", isDefinitive = false, isWorthRetrying = false, retryAfterMs = 0 } = {}) {
    super(message);
    this.name = "AdminError";
    Object.assign(this, { code, status, executed, isDefinitive, isWorthRetrying, retryAfterMs });
  }
}

/**
 * A change that is about to be asked for: its id, made once. The clock of the server dates it at the first attempt; `until` is the latest
 * deadline of any; `mayHaveRun`: an attempt may have arrived; `mayBeOver`: it may have been made, and acknowledged since.
 */
export const newChange = () => ({ id: newId(), firstSent: undefined, until: undefined, mayHaveRun: false, mayBeOver: false });
/** A page that came over plain HTTP from another machine has no `randomUUID`. */
const newId = () => crypto.randomUUID?.() ?? Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
/** One that was asked for before. */
export const earlierChange = (id, firstSent) => ({ ...newChange(), id, firstSent, mayHaveRun: true, mayBeOver: true });

export class Admin {
  #url;
  #token;
  #options;
  /** How far the server's clock is ahead of this one; undefined until an answer has told. */
  #aheadMs;

  /**
   * `url`: the origin of the deployment; `readsForMs`, `changesForMs`: so long something is sent again that had no definitive answer;
   * `onretry`: is called with the error before a pause; `fetch`: the runtime's, or a test's.
   */
  constructor({ url, token, readsForMs = 0, changesForMs = 0, onretry = () => {}, fetch = globalThis.fetch }) {
    this.#url = url.replace(/\/+$/, "");
    this.#token = token;
    this.#options = { readsForMs, changesForMs, onretry, fetch };
  }

  /** The server's clock, in Unix ms. */
  now(signal) {
    return this.#again(this.#options.readsForMs, signal, () => this.#clock(signal));
  }

  /** A page of keys: `{ keys, next, total }`. `state`: `"in-doubt"` or `"parked"`, for those alone where something is. */
  async keys({ order = "newest", prefix, state, after, limit = 50 } = {}, signal) {
    return this.#read(`/admin/keys${queryOf({ order, prefix, state, after, limit })}`, signal);
  }

  /** What one key keeps: counts, bytes, fence, limits, counters. */
  async key(key, signal) {
    return this.#read(pathOf(key), signal);
  }

  /** A page of a key's records in the order of their ids: `{ records, next }`. `state`: those in it; then a page may have none, and the next one some. */
  async records(key, { state, after, limit = 50 } = {}, signal) {
    return this.#read(`${pathOf(key)}/records${queryOf({ state, after, limit })}`, signal);
  }

  /** How many records and tombstones changed last in each of `count` steps of time: `{ from, step, records, tombstones, truncated }`. */
  async times(key, { from, step, count }, signal) {
    return this.#read(`${pathOf(key)}/times${queryOf({ from, step, count })}`, signal);
  }

  /** One record with its outcome. */
  async record(key, id, signal) {
    return this.#read(recordPathOf(key, id), signal);
  }

  /** What a key has still to send to others, and a page of what was refused for good: `{ count, max, lanes, parked, next }`. */
  async effects(key, { after, limit = 50 } = {}, signal) {
    return this.#read(`${pathOf(key)}/effects${queryOf({ after, limit })}`, signal);
  }

  /** How far a forget has come: `{ id, before, state, keys, done, failed }`. */
  async forgetting(id, signal) {
    return this.#read(`/admin/forget/${encodeURIComponent(id)}`, signal);
  }

  /** Has an id never run from now on. */
  async cancel(key, id, change, signal) {
    return this.#changeOf(key, "POST", `${pathOf(key)}/cancel`, { id }, change, signal);
  }

  /** Settles a request that is in doubt: `outcome`, `{ status, headers?, body? }`, is what it has from now on; undefined: it did not run, and never will. */
  async resolve(key, id, outcome, change, signal) {
    const word = outcome === undefined ? { executed: "no" } : { executed: "yes", outcome };
    return this.#changeOf(key, "POST", `${recordPathOf(key, id)}/resolve`, word, change, signal);
  }

  /** Reduces a record to a tombstone. */
  async deleteRecord(key, id, change, signal) {
    return this.#changeOf(key, "DELETE", recordPathOf(key, id), undefined, change, signal);
  }

  /** Deletes all of a key. */
  async deleteKey(key, change, signal) {
    return this.#changeOf(key, "DELETE", pathOf(key), undefined, change, signal);
  }

  /** Mends what a key sends, one by its id: `retry` or `drop` of a parked one, `park` of the first of a lane. */
  async mendEffect(key, mending, id, change, signal) {
    return this.#changeOf(key, "POST", `${pathOf(key)}/effects/${encodeURIComponent(id)}/${mending}`, undefined, change, signal);
  }

  /** Begins to forget, at every key, what was first sent before an instant in Unix seconds. */
  async forget(before, change, signal) {
    return this.#change("POST", "/admin/forget", { before }, change, signal);
  }

  #read(path, signal) {
    return this.#again(this.#options.readsForMs, signal, async () => (await this.#send("GET", path, { signal })).body);
  }

  /** Changes a key, and acknowledges that. */
  async #changeOf(key, method, path, body, change, signal) {
    const result = await this.#change(method, path, body, change, signal);
    const headers = { "semel-ack": `${JSON.stringify(change.id)};until=${change.until}` };
    // Where that is lost, the record goes with the retention.
    await this.#send("GET", pathOf(key), { headers, signal }).catch(() => {});
    return result;
  }

  #change(method, path, body, change, signal) {
    const attempt = async () => {
      try {
        return await this.#ask(method, path, body, change, signal);
      } catch (error) {
        // A refusal that is not for good speaks of its own attempt; one before it may have run.
        if (change.mayHaveRun && !error.isDefinitive) error.executed = "unknown";
        change.mayHaveRun ||= error.executed !== "no";
        throw error;
      }
    };
    return this.#again(this.#options.changesForMs, signal, attempt);
  }

  /** One attempt at a change. */
  async #ask(method, path, body, change, signal) {
    const nowMs = await this.#clock(signal).catch((error) => {
      // Only the time was asked for.
      throw Object.assign(error, { executed: "no" });
    });
    change.firstSent ??= Math.floor(nowMs / 1000);
    change.until = Math.max(change.until ?? 0, Math.floor(nowMs) + DEADLINE_MS);
    const headers = { "idempotency-key": JSON.stringify(change.id), "semel-first-sent": `@${change.firstSent}`, "semel-deadline": String(change.until) };
    if (body !== undefined) headers["content-type"] = "application/json";
    const answer = await this.#send(method, path, { headers, body: body && JSON.stringify(body), signal }).catch((error) => {
      if (OF_EITHER.includes(error.code)) error.executed = change.mayBeOver ? "unknown" : "no";
      // An attempt before may still be on its way, and find what is there by then.
      if (error.code === "not-seen") error.executed = change.mayHaveRun ? "unknown" : "no";
      if (TOO_OLD.includes(error.code) && !change.mayHaveRun) {
        // The next attempt is dated anew: the key has said what its clock is, which may be far ahead; and what was deleted a moment ago takes what is first sent later.
        change.firstSent = undefined;
        Object.assign(error, { executed: "no", isDefinitive: false, isWorthRetrying: true });
      }
      throw error;
    });
    if (answer.semel === "executed" || answer.semel === "replayed") return answer.body;
    throw new AdminError("no-answer", "The answer does not say that the change was made.", { isWorthRetrying: true });
  }

  async #clock(signal) {
    if (this.#aheadMs === undefined) await this.#send("GET", "/health", { isOpen: true, signal });
    return Date.now() + this.#aheadMs;
  }

  /** Makes attempts at a constant interval, until one is answered for good or the time is over. */
  async #again(forMs, signal, attempt) {
    const endMs = Date.now() + forMs;
    for (;;) {
      try {
        return await attempt();
      } catch (error) {
        signal?.throwIfAborted();
        const pauseMs = Math.max(RETRY_INTERVAL_MS, Math.min(error.retryAfterMs ?? 0, RETRY_AFTER_MS_MAX));
        if (!error.isWorthRetrying || Date.now() + pauseMs > endMs) throw error;
        this.#options.onretry(error);
        await pause(pauseMs, signal);
      }
    }
  }

  /** One attempt, with the token, unless what is asked for `isOpen` to everybody. Resolves to `{ semel, body }` of a success; all else is an `AdminError`. */
  async #send(method, path, { headers, body, isOpen = false, signal }) {
    const stopped = new AbortController();
    const stop = () => stopped.abort();
    let isLate = false;
    const timer = setTimeout(() => {
      isLate = true;
      stop();
    }, ATTEMPT_TIMEOUT_MS);
    signal?.addEventListener("abort", stop);
    if (signal?.aborted) stop();
    const options = { method, headers: { ...headers, ...(!isOpen && { authorization: `Bearer ${this.#token}` }) }, body, signal: stopped.signal, redirect: "manual", cache: "no-store", credentials: "omit" };
    // A browser's must not be called as a method of something else.
    const { fetch } = this.#options;
    let response, text;
    try {
      response = await fetch(this.#url + BASE + path, options);
      text = await response.text();
    } catch (error) {
      // Node says why: a name that is not known, say, or a certificate that is out of date.
      const reason = (error.cause?.message || error.cause?.code)?.trim();
      const why = isLate ? ["no-answer", "The server did not answer in time."] : ["no-network", `The server can't be reached${reason ? `: ${reason}` : ""}.`];
      throw Object.assign(new AdminError(...why, { isWorthRetrying: true }), { cause: error });
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener("abort", stop);
    }
    const semel = response.headers.get("semel-status");
    const now = Number(response.headers.get("semel-now"));
    if (semel !== null && now > 0) this.#aheadMs = now - Date.now();
    const content = parsed(text);
    if (semel === null || (content === undefined && response.ok)) {
      throw new AdminError("no-answer", `Something answered ${response.status} that is not a Semel deployment.`, { status: response.status, isWorthRetrying: true });
    }
    if (response.ok) return { semel, body: content };
    throw refusalOf(response, semel, content ?? {});
  }
}

/** The error for a problem. One without a body is of a worker that can't even make a problem. */
function refusalOf(response, semel, problem) {
  const { code = semel, title = code, detail, executed = "unknown", retry = "same-id" } = problem;
  const isDefinitive = retry === "never" || code === "not-seen";
  const isWorthRetrying = retry === "same-id" && !isDefinitive;
  // Its title is for clients that make bodies themselves: what was asked for here is at fault, which the detail says.
  const named = code === "body-invalid" ? "" : `${title}: `;
  const message = detail && detail !== title ? `${named}${detail}` : title;
  const retryAfterMs = Number(response.headers.get("retry-after")) * 1000 || 0;
  return new AdminError(code, message, { status: response.status, executed, isDefinitive, isWorthRetrying, retryAfterMs });
}

/** The instant that `text` means, in Unix seconds: an ISO date, or an age as `30d` before `nowMs`. Undefined if it is neither, or before Unix time. */
export function instantOf(text, nowMs) {
  const seconds = secondsOf(text, nowMs);
  return seconds < 0 ? undefined : seconds;
}

function secondsOf(text, nowMs) {
  const [, count, unit] = /^(\d{1,9})\s*([smhdw])$/.exec(text.trim()) ?? [];
  if (count !== undefined) return Math.floor(nowMs / 1000) - Number(count) * { s: 1, m: 60, h: 3600, d: 86_400, w: 604_800 }[unit];
  const [, year, month, day] = /^(\d{4})-(\d\d)-(\d\d)([T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?)?$/.exec(text.trim()) ?? [];
  // Else the thirty-first of a shorter month would be a day of the next.
  if (year === undefined || new Date(Date.UTC(year, month - 1, day)).getUTCDate() !== Number(day)) return undefined;
  const ms = Date.parse(text.trim().replace(" ", "T"));
  return Number.isNaN(ms) ? undefined : Math.floor(ms / 1000);
}

const pathOf = (key) => `/admin/keys/${segmentOf(key)}`;
const recordPathOf = (key, id) => `${pathOf(key)}/records/${segmentOf(id)}`;

/** A key or id as a segment of a path. As `..` it would lead to another path, even escaped: to delete that record would be to delete the key. */
function segmentOf(name) {
  if (/^\.{0,2}$/.test(name)) throw new AdminError("key-invalid", `${JSON.stringify(name)} can't be part of a path, so it can't be asked for here.`, { executed: "no", isDefinitive: true });
  return encodeURIComponent(name);
}

function queryOf(values) {
  const given = Object.entries(values).filter(([, value]) => value !== undefined && value !== "");
  return given.length === 0 ? "" : `?${new URLSearchParams(given.map(([name, value]) => [name, String(value)]))}`;
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function pause(ms, signal) {
  return new Promise((resolve, reject) => {
    const end = (settle, value) => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", stop);
      settle(value);
    };
    const stop = () => end(reject, signal.reason);
    const timer = setTimeout(() => end(resolve), ms);
    signal?.addEventListener("abort", stop);
  });
}
