// The types of Semel's SDK: each change happens exactly once, and its caller gets the first answer. See README.md.

/** Whether a request ran. `"no"`: it never did, and never will. */
export type Executed = "no" | "yes" | "unknown";
/**
 * What to do next:
 * - `same-id`: send the request again under its id
 * - `after-fix`: mend something first, then send it again
 * - `never`: nothing; the answer is definitive
 */
export type Retry = "same-id" | "after-fix" | "never";

/** The codes of the protocol, in the order of the table in PROTOCOL.md. */
export type ProtocolCode =
  | "key-missing"
  | "key-invalid"
  | "body-invalid"
  | "key-mismatch"
  | "unauthorized"
  | "forbidden"
  | "not-found"
  | "not-seen"
  | "attempt-expired"
  | "in-flight"
  | "locked"
  | "fenced"
  | "sequence-gap"
  | "outcome-unknown"
  | "transaction-aborted"
  | "cancelled"
  | "poisoned"
  | "acknowledged"
  | "outcome-expired"
  | "forgotten"
  | "session-unknown"
  | "outside-window"
  | "too-large"
  | "fingerprint-mismatch"
  | "rate-limited"
  | "rolled-back"
  | "upstream-unreachable"
  | "capacity"
  | "unavailable";

/**
 * The codes of the client itself:
 * - `outbox-full`: too many requests are pending, or they are too large. This one was neither stored nor sent, so `executed` is `no`. It is
 *   `unknown` for an id of your own and for a hash, because another tab may be sending the same id; and at `onrecovered`.
 * - `store-failed`: the request could not be stored, so it was not sent. `cause` is what the store threw. `executed` is as for `outbox-full`;
 *   it is also `unknown` where the browser could not commit, or WebKit's storage process has ended, because the request may have been stored.
 * - `gave-up`: there was no definitive answer within `giveUpAfterMs`, or the caller stopped waiting for a request that another tab sends. The
 *   request goes on. Outside of sessions, `cause` is why the outbox's last attempt failed: the error that was thrown, or the code of the refusal.
 * - `closed`: `close()` was called, and `cause` is as for `gave-up`; or the wasm module has trapped, for example because memory ran out, and `cause`
 *   is the `RuntimeError`. A stored request goes on at the next `open`; one that is only in memory does not.
 * - `outcome-lost`: the answer was delivered before, here or in another tab, and is no longer kept; or there is no such request.
 */
export type ClientCode = "outbox-full" | "store-failed" | "gave-up" | "closed" | "outcome-lost";

/** The body of a problem (RFC 9457), as the server sent it. */
export interface Problem {
  readonly type?: string;
  readonly title?: string;
  readonly status?: number;
  readonly detail?: string;
  readonly code?: string;
  readonly executed?: string;
  readonly retry?: string;
  readonly [member: string]: unknown;
}

/**
 * A request ended without an outcome. `executed` is `"no"` only if the request never ran and never will.
 *
 * Codes that have a class below have errors of that class: one with the code `gave-up` has the name `GaveUpError`, and is `instanceof
 * GaveUpError`. `instanceof` compares codes, so it also works between two copies of this package.
 */
export class SemelError extends Error {
  protected constructor();
  readonly name: string;
  /** A code of the protocol or of the client; a newer server may send codes that are not listed here. */
  readonly code: ProtocolCode | ClientCode | (string & {});
  readonly executed: Executed;
  readonly retry: Retry;
  readonly requestId: string;
  /** The body of the server's answer. Undefined if the error is the client's own. */
  readonly problem: Problem | undefined;
}

/** Nobody can tell whether the request ran: `gave-up`, `closed`, `outcome-lost`, and the server's `outcome-unknown`. */
export class OutcomeUnknownError extends SemelError {}
export class KeyMissingError extends SemelError {}
export class KeyInvalidError extends SemelError {}
export class BodyInvalidError extends SemelError {}
export class KeyMismatchError extends SemelError {}
export class UnauthorizedError extends SemelError {}
export class ForbiddenError extends SemelError {}
export class NotFoundError extends SemelError {}
export class CancelledError extends SemelError {}
export class PoisonedError extends SemelError {}
export class AcknowledgedError extends SemelError {}
export class OutcomeExpiredError extends SemelError {}
export class FencedError extends SemelError {}
export class SessionUnknownError extends SemelError {}
export class ForgottenError extends SemelError {}
export class OutsideWindowError extends SemelError {}
export class TooLargeError extends SemelError {}
export class FingerprintMismatchError extends SemelError {}
export class OutboxFullError extends SemelError {}
export class StoreFailedError extends SemelError {}
export class GaveUpError extends OutcomeUnknownError {}
export class ClosedError extends OutcomeUnknownError {}
export class OutcomeLostError extends OutcomeUnknownError {}

/**
 * - `store-unavailable`: there is no store, or it must not be used (private mode, blocked storage, a file system without hard links)
 * - `store-blocked`: the store did not open within 10 s, or did not answer within 30 s; another tab or process may be holding it
 * - `store-newer`: a newer version of the SDK wrote it
 * - `store-damaged`: a row can't be read; nothing is sent until it can
 * - `store-full`: there is no space left
 * - `store-failed`: anything else; see `cause`. In Chromium that includes storage that the user has blocked, which it reports as an `UnknownError`
 */
export type StoreCode = "store-unavailable" | "store-blocked" | "store-newer" | "store-damaged" | "store-full" | "store-failed";

/**
 * The store can't be used. `open` rejects with it, and it is the `cause` of a `SemelError` with the code `store-failed`. If you bring your own
 * store, both are whatever your store throws.
 */
export class StoreError extends Error {
  /** The error's message is the code, and then `message`. */
  constructor(code: StoreCode, message: string, cause?: unknown);
  readonly name: string;
  readonly code: StoreCode;
}

/** A stored request that has no definitive answer yet, or whose answer no caller has taken. */
export interface Pending {
  readonly requestId: string;
  readonly method: string;
  readonly url: string;
  /** How many times this tab has sent it. */
  readonly attempts: number;
  /**
   * - `sending`: an attempt is under way, or waits for its turn, for the retry interval or for the network
   * - `paused`: something must be mended first, see `onpaused`
   * - `answered`: the answer is there, and waits for `onrecovered`
   * - `elsewhere`: another tab sends it
   */
  readonly state: "sending" | "paused" | "answered" | "elsewhere";
}

/** The answer to a request whose caller is gone (an earlier page or process) or gave up. */
export type Recovered = Described & (
  | { /** The outcome. */ readonly response: Response; readonly error: undefined }
  | { readonly response: undefined; readonly error: SemelError }
);

/** A request that can't go on until something is mended, or until there are other credentials (401, 403). */
export interface Paused {
  readonly requestId: string;
  readonly method: string;
  readonly url: string;
  /** The server's refusal. Its `executed` is `"unknown"`, because an earlier attempt may have run. */
  readonly error: SemelError;
  /** Sends it again, under the same id. */
  resume(): void;
  /**
   * Asks the key to cancel it. The caller gets an error with `executed: "no"`, or the outcome if the request had run. If the server refuses the
   * cancellation too, the caller gets that refusal, with `executed: "unknown"`. A cancellation refused with 401 or 403 waits for other
   * credentials: `onpaused` is called again, so don't call `giveUp` there without changing them.
   */
  giveUp(): void;
}

/**
 * Where requests are kept: rows of bytes, each under an id. `semel/conformance` has checks for a store of your own.
 *
 * - A method that resolves has made its change durable. A method that rejects has changed nothing, and will change nothing after a restart either. If
 *   that is not certain, `change` rejects with an error whose name is `UnknownError`: the request may be stored, and its caller gets `unknown`.
 * - `change` is one transaction: no other change of that row, by this process or another, comes between its read and its write. Inside it, the
 *   store calls `to` synchronously with the row, or with undefined if there is none. `to` returns the new row, undefined to delete the row, or
 *   null to leave it alone.
 * - A store that repeats its transaction calls `to` again with the row as it is then, and the last call counts. It does so too if it can't tell
 *   whether the first transaction was committed.
 * - `remove` is also one transaction, over all the rows it is given: it deletes those that exist and for which `isDone` returns true. The check is
 *   needed because another tab may have begun a new request under the same id.
 * - The SDK waits at most 30 s for `load` and `presence`. It waits for `change` without a limit, because after a time-out nobody could tell whether
 *   the change was made. A store that can undo a slow change should do so, and then reject.
 */
export interface Store {
  load(): Promise<Array<[id: string, row: Uint8Array]>>;
  change(id: string, to: (row: Uint8Array | undefined) => Uint8Array | undefined | null): Promise<void>;
  remove(ids: string[], isDone: (row: Uint8Array) => boolean): Promise<void>;
  /**
   * Announces that `owner`, an id that only this outbox has, is alive from now on. Called once, before the first `change`. Without `presence`, nobody
   * can tell which outboxes of the store are gone, so an outbox that opens takes over every row it finds.
   */
  presence?(owner: string): Presence;
  close?(): void | Promise<void>;
}

export interface Presence {
  /** The owners that are alive, in this process and in others, including this one. List an owner if in doubt: one that is missing counts as gone for good. */
  alive(): Promise<string[]>;
  /** Announces that this owner is gone: soon, `alive` must list it no more, or nobody goes on with its requests. Called at `close`. It must not throw. */
  leave(): void;
}

/** What `fetch` takes for headers. Derived, because `HeadersInit` exists only in the types of browsers. */
type HeadersGiven = NonNullable<RequestInit["headers"]>;

export interface Options {
  /** The origin of the Worker, such as `https://api.example.com`. */
  url: string | URL;
  /** The principal that makes the requests, as the server authenticates it. Each identity has a separate outbox. Default `""`: no particular one. */
  identity?: string | undefined;
  /** Headers to add to every attempt and every read, such as credentials. A function is called for each. They are never stored. */
  headers?: HeadersGiven | (() => HeadersGiven | undefined | Promise<HeadersGiven | undefined>) | undefined;
  /** The pause between two attempts of a request, in ms. Default 1,000. At least 10. */
  retryIntervalMs?: number | undefined;
  /** How long an attempt may take, in ms. Default 10,000. 100 to 100,000. */
  attemptTimeoutMs?: number | undefined;
  /** After this many ms without a definitive answer, `fetch` rejects with an `OutcomeUnknownError`; the request goes on. Default: never. */
  giveUpAfterMs?: number | undefined;
  /** How many requests may be pending in this tab (default 1,000), and how many attempts may be under way at a time (default 32). */
  maxPending?: number | undefined;
  maxAttempts?: number | undefined;
  /** Whether requests to the same key are sent one after another, in the order of the calls. Default true. See `Init`. */
  ordered?: boolean | undefined;
  /**
   * How request ids are made:
   * - `uuid` (default): a UUID of version 7, from the time and random bits.
   * - `hash`: a UUID from a SHA-256 over identity, method, path, key, `salt` and body, by `crypto.subtle`. A double click is then one request. So are
   *   two equal orders that were meant as two: tell them apart by a `salt`, for example a function of the time such as
   *   `() => Math.floor(Date.now() / 60_000)`. An equal request after the answer is refused as `outcome-lost` or `acknowledged` until the key has
   *   forgotten the first, which takes a minute or more.
   */
  ids?: "uuid" | "hash" | undefined;
  salt?: Salt | undefined;
  /** Replaces the runtime's `fetch`. It is called with a URL and an init for a change, and with a `Request` for a read. */
  fetch?: ((input: string | Request, init: RequestInit) => Promise<Response>) | undefined;
  /** Replaces IndexedDB. The store is closed with the outbox, and if it is the reason why `open` rejects: then try again with another one. */
  store?: Store | undefined;
  /**
   * When a request counts as stored. Has no effect together with `store`.
   * - `strict` (default): it is on disk before the first attempt.
   * - `relaxed`: the operating system has it. A power cut may lose a request, or may make the SDK send it again after its key has forgotten it, or send one
   *   that was taken back before it left, and whose caller was told `cancelled` and `no`.
   *   Sessions don't allow it.
   * - `memory`: it is lost with the page.
   */
  durability?: "strict" | "relaxed" | "memory" | undefined;
  onrecovered?: Semel["onrecovered"] | undefined;
  onpaused?: Semel["onpaused"] | undefined;
  /**
   * Called if the browser has deleted the store since it was last open, for want of space; nobody can tell what was pending. It is noticed only
   * where `localStorage` survived, as in Chromium.
   */
  onstorelost?: (() => void) | undefined;
}

/** Anything that tells two equal requests apart. A function is called for each request. */
export type Salt = string | number | (() => string | number);

/**
 * What `fetch` takes, and more. Of `fetch`'s own members, `method`, `headers`, `body` and `signal` count for a change. Others, such as `credentials`, have
 * no effect on it: the option `fetch` can set them.
 */
export interface Init extends RequestInit {
  /** The key, if the application's key rule does not derive it from the path. */
  key?: string | undefined;
  /**
   * Your own request id: 1 to 200 characters of printable ASCII, not beginning with `cancel-`. While a request is pending, another call with the same
   * id waits for the same answer. If its method, path, key, headers or body differ, it is refused as `fingerprint-mismatch`. Soon after you have its
   * answer, the id is refused for a minute or more, and then it counts as new: the same call runs again.
   */
  id?: string | undefined;
  /** Overrides the option `salt`. */
  salt?: Salt | undefined;
  /**
   * Overrides the option `ordered`: whether the request waits until earlier ones to its key have their answers. Requests that don't wait, and name a
   * `key`, are sent in batches when there are many.
   */
  ordered?: boolean | undefined;
}

/** How many changes of this tab are waiting. Immutable: a change makes a new snapshot. */
export interface Snapshot {
  /** Requests without an answer, including those that are paused. */
  readonly pending: number;
  /** Requests that wait until something is mended, see `onpaused`. */
  readonly paused: number;
  /** False while the network is gone; nothing is sent until it is back. */
  readonly online: boolean;
}

interface Described {
  readonly requestId: string;
  readonly method: string;
  readonly url: string;
}

type Ended = { readonly status: number; readonly error: undefined } | { readonly status: undefined; readonly error: SemelError };

/** The events. All but `online` and `offline` are `CustomEvent`s with the `detail` given here. */
export interface SemelEventMap {
  /** An attempt is sent. */
  attempt: CustomEvent<Described>;
  /**
   * An attempt failed, and `error` says why. It is made again, unless its request was given up or the outbox is closed. One of these happened:
   * - No answer came.
   * - The attempt was not sent, because the store refused the row that must be written first.
   * - The attempt was `refused` for good, and the store could not tell whether another tab has an outcome.
   *
   * `requestId` is undefined for the SDK's own requests (the clock, acknowledgements) and for whatever a session sends, but not where the session's
   * store refused. For a cancellation that was sent it is `cancel-` and the id.
   */
  lost: CustomEvent<Omit<Described, "requestId"> & { readonly requestId: string | undefined; readonly error: unknown }>;
  /**
   * The server answered an attempt with a problem instead of an outcome; `code` is the problem's, such as `rolled-back` if the handler threw. The
   * attempt is made again, unless the request is settled or stalled by it. Sessions dispatch it only for a take-over, with `requestId` undefined.
   */
  refused: CustomEvent<Omit<Described, "requestId"> & { readonly requestId: string | undefined; readonly status: number; readonly code: string }>;
  /** A request has its answer, and its caller gets it: `status` of the outcome, or `error`. */
  settled: CustomEvent<Described & Ended>;
  /** A request pauses until something is mended. */
  stalled: CustomEvent<Described & { readonly error: SemelError }>;
  /** An answer came that no caller waits for; `onrecovered` gets it. */
  recovered: CustomEvent<Described & Ended>;
  offline: Event;
  online: Event;
  /** The outbox is closed for good: by `close()`, without an `error`, or because the wasm module has trapped. Stored requests go on at the next `open`. */
  closed: CustomEvent<{ readonly error: unknown }>;
}

export interface SessionOptions {
  /**
   * Take the session over only if this is its current epoch; 0: only if nobody has held it. Otherwise the holder is not fenced, and the call rejects:
   * with a `FencedError` if the current epoch is newer, with a `BodyInvalidError` if it is older.
   */
  after?: number | undefined;
  /**
   * A store for this session alone, which is closed with it. Default: the same kind as the outbox has, in a separate database. Required if you gave
   * the outbox a store.
   */
  store?: Store | undefined;
  /**
   * - `http` (default): one waiting request is sent as itself, several as a batch.
   * - `socket`: all are sent over one WebSocket, which is reopened after it was closed.
   * - `auto`: over a WebSocket if the runtime has one and it opens in time, otherwise as `http` for a minute.
   */
  transport?: "http" | "socket" | "auto" | undefined;
  onrecovered?: Session["onrecovered"] | undefined;
  onpaused?: Session["onpaused"] | undefined;
  onended?: Session["onended"] | undefined;
}

/**
 * A named client of a key. The session numbers its requests: they are sent together, as many as wait, and take effect once each, in the order of the
 * calls. Only one holder has a session at a time.
 */
export interface Session {
  /** As given to `semel.session`. */
  readonly key: string;
  readonly name: string;
  /** The number of this holder; each take-over raises it. */
  readonly epoch: number;
  /** The last number that was taken when this holder took over. */
  readonly lastSeq: number;

  /**
   * Like `semel.fetch`, but in order with all other calls of the session.
   *
   * - Rejects with a `FencedError` once another holder has taken over. If its `executed` is `"no"`, the request never ran and never will.
   * - Methods other than `POST`, `PUT`, `PATCH` and `DELETE` are passed to `fetch`, in no order.
   * - Aborting `init.signal` cancels the request once the attempt under way has ended: the call rejects with `executed: "no"`, or resolves with the
   *   outcome if it was too late.
   * - `key`, `id`, `salt` and `ordered`, which `semel.fetch` takes, are a `TypeError` here.
   */
  readonly fetch: (input: string | URL | Request, init?: RequestInit) => Promise<Response>;

  /** The stored requests of this session without a definitive answer, of every holder. */
  pending(): Promise<Pending[]>;

  /** Sends again what is paused. */
  resume(): void;

  /**
   * Called with the answers to requests that earlier holders left, and to requests that went on after `giveUpAfterMs`. An answer leaves the store when
   * the handler has returned, or when its promise has resolved. Answers are kept until a handler is set, and after it threw.
   */
  onrecovered: ((recovered: Recovered) => void | Promise<void>) | null;

  /**
   * Called when the session pauses at a request; all later ones wait too. `giveUp` cancels that request. Also called when a request was refused again
   * and again; that one is still being sent.
   */
  onpaused: ((paused: Paused) => void) | null;

  /**
   * Called once, when this holder can send nothing more: another one has the session (a `FencedError`), its key has lost it, or the wasm module has
   * trapped (`closed`, with the `RuntimeError` as its `cause`). Calls reject with the same error. Stored requests that no caller waits for go on with
   * the next holder.
   */
  onended: ((error: SemelError) => void) | null;

  /** Stops sending. Waiting callers get an error with the code `closed`. Stored requests go on when the session is opened again. */
  close(): Promise<void>;
}

/** An outbox for one Worker and one identity. It is an `EventTarget`. */
export class Semel {
  private constructor();
  /** Opens the outbox, and goes on with the requests that earlier pages left unfinished. */
  static open(options: Options): Promise<Semel>;

  /**
   * Like `fetch`, but a `POST`, `PUT`, `PATCH` or `DELETE` is stored, happens exactly once and resolves with the first answer.
   *
   * - Other methods are passed to `fetch`.
   * - The body is read to its end first. It may have at most 1 MiB.
   * - Aborting `init.signal` asks the key to cancel the request. Once the server has answered that, `fetch` rejects with `executed: "no"`, or resolves
   *   with the outcome if it was too late. To limit the waiting, use the option `giveUpAfterMs`.
   * - It is bound: you can pass it to any library that takes a `fetch`.
   */
  readonly fetch: (input: string | URL | Request, init?: Init) => Promise<Response>;

  /**
   * Waits for the answer to an earlier request: of this tab, of another tab, or from before a reload.
   *
   * - A call of `fetch` counts as made once its body has been read.
   * - Another tab's answer is kept for you only if you asked before it was delivered there, and for a day. Otherwise the call rejects with an
   *   `OutcomeLostError`.
   * - Aborting `signal` ends the waiting, and nothing else.
   * - If a `fetch` of this tab waits under the same id, its `giveUpAfterMs` ends this waiting too.
   */
  outcome(requestId: string, options?: { signal?: AbortSignal | undefined }): Promise<Response>;

  /**
   * Takes over the session `name` (1 to 255 characters of printable ASCII) at `key`, and goes on with the requests that earlier holders left: see
   * `Session`. A holder that is still alive is fenced. Resolves once the key has answered; rejects with a `SemelError` if it refuses. The code for
   * sessions is loaded at the first call.
   */
  session(key: string, name: string, options?: SessionOptions): Promise<Session>;

  /**
   * The stored requests without a definitive answer, of every tab, and of the sessions that are open here. In a browser they are sorted by id, and so
   * by time: ids that the SDK makes begin with it.
   */
  pending(): Promise<Pending[]>;

  /** Sends all paused requests again, for example after a login. */
  resume(): void;

  /**
   * Asks the key to cancel a request of this outbox, for example one that an earlier page left and that the handler fails again and again. `pending` has
   * the ids. Whoever waits for the request, otherwise `onrecovered`, gets an error with `executed: "no"`, or the outcome if the request had run.
   *
   * For a request that another tab sends, it only ends the waiting of `outcome` here. If the request is not pending, it does nothing.
   */
  giveUp(requestId: string): void;

  /**
   * Called with the answers to requests that no caller waits for: those of an earlier page, and those that went on after `giveUpAfterMs`. An answer
   * leaves the store when the handler has returned, or when its promise has resolved. Answers are kept until a handler is set, and after it threw.
   */
  onrecovered: ((recovered: Recovered) => void | Promise<void>) | null;

  /** Called for each request that pauses. */
  onpaused: ((paused: Paused) => void) | null;

  /**
   * Calls `listener` with the snapshot, at once and after each change. Returns a function that ends the subscription. This is the contract of Svelte's
   * stores; together with `getSnapshot` it also fits React's `useSyncExternalStore`.
   */
  readonly subscribe: (listener: (snapshot: Snapshot) => void) => () => void;
  readonly getSnapshot: () => Snapshot;

  addEventListener<Type extends keyof SemelEventMap>(
    type: Type,
    listener: ((event: SemelEventMap[Type]) => void) | { handleEvent(event: SemelEventMap[Type]): void } | null,
    options?: Parameters<EventTarget["addEventListener"]>[2],
  ): void;
  removeEventListener<Type extends keyof SemelEventMap>(
    type: Type,
    listener: ((event: SemelEventMap[Type]) => void) | { handleEvent(event: SemelEventMap[Type]): void } | null,
    options?: Parameters<EventTarget["removeEventListener"]>[2],
  ): void;

  /**
   * Stops sending.
   *
   * - Waiting callers get an `OutcomeUnknownError` with the code `closed`. Their requests stay stored.
   * - A call that had not reached the store, because its body was still being read for example, rejects with a `TypeError`.
   * - It does not wait for writes of the store. Before `process.exit()`, await `store.close()`; otherwise the last answers may be given once more,
   *   to `onrecovered` after the next `open`.
   */
  close(): Promise<void>;
}

// Not `class Semel extends EventTarget`: in Cloudflare's types these two methods take any event name, which the typed ones above don't match.
export interface Semel extends Omit<EventTarget, "addEventListener" | "removeEventListener"> {}
