// What an administrator asks of a deployment. Only this file knows the paths and shapes of the API under `/semel/v1/admin/`; the inspector and the
// command line both go through it.
//
// Invariants:
// - However often a change is sent, it has one id; and once an attempt may have run, one first-sent. So it happens once, however many answers are
//   lost.
// - An answer without `Semel-Status` comes from a proxy, and says nothing. Only `executed` and `replayed` say that a change was made.
// - What is unknown is never called failed: once an attempt may have arrived, an error says so.
// - Each attempt at a change has a deadline. Once a change of a key is answered, it is acknowledged: no attempt of it can come any more, so its
//   own record, which would take room in the key, is removed.

const BASE = "/semel/v1";
const ATTEMPT_TIMEOUT_MS = 10_000;
/**
 * How long after it was made an attempt may still begin to be executed, on the server's clock. That clock is known to within an answer's travel time.
 */
const DEADLINE_MS = 20_000;
const RETRY_INTERVAL_MS = 1_000;
/** A longer `Retry-After` is shortened to this, because a person is waiting. */
const RETRY_AFTER_MS_MAX = 30_000;
/**
 * With these codes, `executed` is about the request that a change names: the change itself was not made. If the change was asked for before, it may
 * have been made and acknowledged since. Then these codes may be about the change's own record.
 */
export const OF_EITHER = ["in-flight", "outcome-unknown", "acknowledged", "outcome-expired"];
/** With these codes, a change is too old for the key to tell whether it ran. A change that was never sent before is new: it was refused. */
export const TOO_OLD = ["forgotten", "outside-window"];

/**
 * Why there was no answer, or a refusal. `code` is one of the protocol's, or `no-network` or `no-answer`. `executed` is the protocol's: `"no"` only
 * if a change was certainly not made. `isDefinitive`: the same request would be refused again.
 */
export class AdminError extends Error {
  constructor(code, message, { status, executed = "unknown", isDefinitive = false, isWorthRetrying = false, retryAfterMs = 0 } = {}) {
    super(message);
    this.name = "AdminError";
    Object.assign(this, { code, status, executed, isDefinitive, isWorthRetrying, retryAfterMs });
  }
}

/**
 * A change that is about to be asked for, with an id of its own. Its `firstSent` (Unix seconds) is taken from the server's clock at the first
 * attempt. `until`: the latest deadline of all attempts, in Unix ms. `mayHaveRun`: an attempt may have arrived. `mayBeOver`: the change may have
 * been made, and acknowledged since.
 */
export const newChange = () => ({ id: newId(), firstSent: undefined, until: undefined, mayHaveRun: false, mayBeOver: false });
/** `randomUUID` is missing in a page that came over plain HTTP from another machine. */
const newId = () => crypto.randomUUID?.() ?? Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
/** A change that was asked for before, by an earlier run. */
export const earlierChange = (id, firstSent) => ({ ...newChange(), id, firstSent, mayHaveRun: true, mayBeOver: true });

export class Admin {
  #url;
  #token;
  #options;
  /** How many ms the server's clock is ahead of this one; undefined until an answer has told. */
  #aheadMs;

  /**
   * `url`: the origin of the deployment. `readsForMs`, `changesForMs`: for how many ms a read or a change that got no definitive answer is sent again.
   * `onretry`: called with the error before each pause. `fetch`: the runtime's, or a test's.
   */
  constructor({ url, token, readsForMs = 0, changesForMs = 0, onretry = () => {}, fetch = globalThis.fetch }) {
    this.#url = url.replace(/\/+$/, "");
    this.#token = token;
    this.#options = { readsForMs, changesForMs, onretry, fetch };
  }

  /** Resolves to the time of the server's clock, in Unix ms. */
  now(signal) {
    return this.#again(this.#options.readsForMs, signal, () => this.#clock(signal));
  }

  /** A page of keys: `{ keys, next, total }`. `state`: `"in-doubt"` or `"parked"`, for only the keys that have something in that state. */
  async keys({ order = "newest", prefix, state, after, limit = 50 } = {}, signal) {
    return this.#read(`/admin/keys${queryOf({ order, prefix, state, after, limit })}`, signal);
  }

  /** What one key stores: counts, bytes, fence, limits, counters. */
  async key(key, signal) {
    return this.#read(pathOf(key), signal);
  }

  /**
   * A page of a key's records, ordered by id: `{ records, next }`. With `state`, only records in it; then a page may be empty although a later one is
   * not.
   */
  async records(key, { state, after, limit = 50 } = {}, signal) {
    return this.#read(`${pathOf(key)}/records${queryOf({ state, after, limit })}`, signal);
  }

  /** How many records and tombstones had their last change in each of `count` time steps: `{ from, step, records, tombstones, truncated }`. */
  async times(key, { from, step, count }, signal) {
    return this.#read(`${pathOf(key)}/times${queryOf({ from, step, count })}`, signal);
  }

  /** One record with its outcome. */
  async record(key, id, signal) {
    return this.#read(recordPathOf(key, id), signal);
  }

  /** What a key still has to send to others, and a page of what was refused for good: `{ count, max, lanes, parked, next }`. */
  async effects(key, { after, limit = 50 } = {}, signal) {
    return this.#read(`${pathOf(key)}/effects${queryOf({ after, limit })}`, signal);
  }

  /** How many requests a key has sent to others that have not arrived or were refused. A key whose handler sends nothing has none, and so has one that is not there. */
  async unsent(key, signal) {
    const { count } = await this.effects(key, { limit: 1 }, signal).catch((error) => (error.code === "not-found" ? { count: 0 } : Promise.reject(error)));
    return count;
  }

  /** How far a forget has come: `{ id, before, state, keys, done, failed }`. */
  async forgetting(id, signal) {
    return this.#read(`/admin/forget/${encodeURIComponent(id)}`, signal);
  }

  /** Cancels an id: from now on it never runs. */
  async cancel(key, id, change, signal) {
    return this.#changeOf(key, "POST", `${pathOf(key)}/cancel`, { id }, change, signal);
  }

  /**
   * Settles a request that is in doubt. `outcome`, `{ status, headers?, body? }`, becomes its outcome; undefined says that it did not run, and it
   * never will.
   */
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

  /** Mends one request that a key sends, by its id: `retry` or `drop` for a parked one, `park` for the first of a lane. */
  async mendEffect(key, mending, id, change, signal) {
    return this.#changeOf(key, "POST", `${pathOf(key)}/effects/${encodeURIComponent(id)}/${mending}`, undefined, change, signal);
  }

  /** Makes every key forget what was first sent before an instant, in Unix seconds. Resolves once that has begun. */
  async forget(before, change, signal) {
    return this.#change("POST", "/admin/forget", { before }, change, signal);
  }

  #read(path, signal) {
    return this.#again(this.#options.readsForMs, signal, async () => (await this.#send("GET", path, { signal })).body);
  }

  /** Changes a key, then acknowledges the change. */
  async #changeOf(key, method, path, body, change, signal) {
    const result = await this.#change(method, path, body, change, signal);
    const headers = { "semel-ack": `${JSON.stringify(change.id)};until=${change.until}` };
    // If the acknowledgement is lost, the record stays until its retention ends.
    await this.#send("GET", pathOf(key), { headers, signal }).catch(() => {});
    return result;
  }

  #change(method, path, body, change, signal) {
    const attempt = async () => {
      try {
        return await this.#ask(method, path, body, change, signal);
      } catch (error) {
        // A refusal that is not final is only about its own attempt: an earlier one may have run.
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
      // Nothing but the time was asked for.
      throw Object.assign(error, { executed: "no" });
    });
    change.firstSent ??= Math.floor(nowMs / 1000);
    change.until = Math.max(change.until ?? 0, Math.floor(nowMs) + DEADLINE_MS);
    const headers = { "idempotency-key": JSON.stringify(change.id), "semel-first-sent": `@${change.firstSent}`, "semel-deadline": String(change.until) };
    if (body !== undefined) headers["content-type"] = "application/json";
    const answer = await this.#send(method, path, { headers, body: body && JSON.stringify(body), signal }).catch((error) => {
      if (OF_EITHER.includes(error.code)) error.executed = change.mayBeOver ? "unknown" : "no";
      // An earlier attempt may still be on its way, and find the id there when it arrives.
      if (error.code === "not-seen") error.executed = change.mayHaveRun ? "unknown" : "no";
      if (TOO_OLD.includes(error.code) && !change.mayHaveRun) {
        // The next attempt gets a new date. The key has now told its clock, which may be far ahead; and a key that was deleted a moment ago accepts
        // what is first sent later.
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

  /** Makes attempts at a constant interval until one is answered for good, or until `forMs` are over. */
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

  /**
   * Makes one attempt, with the token unless everybody may ask (`isOpen`). Resolves to `{ semel, body }` on success; any failure is an `AdminError`.
   */
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
    // Taken out of the object, because a browser's `fetch` must not be called as a method of something else.
    const { fetch } = this.#options;
    let response, text;
    try {
      response = await fetch(this.#url + BASE + path, options);
      text = await response.text();
    } catch (error) {
      // Node says why: an unknown name, say, or an expired certificate.
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

/** The error for a problem. There is no body if the Worker could not even make a problem. */
function refusalOf(response, semel, problem) {
  const { code = semel, title = code, detail, executed = "unknown", retry = "same-id" } = problem;
  const isDefinitive = retry === "never" || code === "not-seen";
  const isWorthRetrying = retry === "same-id" && !isDefinitive;
  // The title of `body-invalid` speaks to clients that make bodies themselves. Here the detail says what was wrong with the input.
  const named = code === "body-invalid" ? "" : `${title}: `;
  const message = detail && detail !== title ? `${named}${detail}` : title;
  const retryAfterMs = Number(response.headers.get("retry-after")) * 1000 || 0;
  return new AdminError(code, message, { status: response.status, executed, isDefinitive, isWorthRetrying, retryAfterMs });
}

/** The instant that `text` means, in Unix seconds: an ISO date, or an age such as `30d` before `nowMs`. Undefined if it is neither, or before 1970. */
export function instantOf(text, nowMs) {
  const seconds = secondsOf(text, nowMs);
  return seconds < 0 ? undefined : seconds;
}

function secondsOf(text, nowMs) {
  const [, count, unit] = /^(\d{1,9})\s*([smhdw])$/.exec(text.trim()) ?? [];
  if (count !== undefined) return Math.floor(nowMs / 1000) - Number(count) * { s: 1, m: 60, h: 3600, d: 86_400, w: 604_800 }[unit];
  const [, year, month, day] = /^(\d{4})-(\d\d)-(\d\d)([T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?)?$/.exec(text.trim()) ?? [];
  // `Date` would make the 31st of a shorter month a day of the next one.
  if (year === undefined || new Date(Date.UTC(year, month - 1, day)).getUTCDate() !== Number(day)) return undefined;
  const ms = Date.parse(text.trim().replace(" ", "T"));
  return Number.isNaN(ms) ? undefined : Math.floor(ms / 1000);
}

const pathOf = (key) => `/admin/keys/${segmentOf(key)}`;
const recordPathOf = (key, id) => `${pathOf(key)}/records/${segmentOf(id)}`;

/**
 * A key or id as a path segment. Throws for `.` and `..`: even escaped they would lead to another path, and deleting that record would delete the
 * key.
 */
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
