// Semel's SDK: a change happens exactly once and gets its first answer. See README.md.

/** Whether a request ran: `"no"` says that it never did and never will. */
export type Executed = "no" | "yes" | "unknown";
/** How to go on: send it again under its id, mend something first, or leave it: the answer is definitive. */
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
 * - `outbox-full`: too many requests are pending, or too large ones; this one was neither stored nor sent. Its `executed` is `unknown`
 *   where the id is one's own or a hash: another tab may have it in hand; and at `onrecovered`
 * - `store-failed`: the request could not be stored, so it was not sent; `cause` is what the store threw. `executed` as above,
 *   and `unknown` where WebKit says that its process which keeps the rows has ended: it may be stored
 * - `gave-up`: no definitive answer in `giveUpAfterMs`, or the caller stopped waiting for what another tab sends; the request goes on.
 *   `cause`, but in sessions, is why the last attempt of all came to nothing: what was thrown, or the code with which it was refused
 * - `closed`: `close()` was called, or the module has trapped, as where there is no memory left: `cause` is the `RuntimeError` then. The request stays stored and goes on at the next `open`
 * - `outcome-lost`: the answer was given before, here or in another tab, and is no longer kept; or there is no such request
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
 * An answer that is no outcome. `executed` is `"no"` only where the request never ran and never will. An error with the code
 * `gave-up` has the name `GaveUpError`, and is an instance of that class; so with every code that has a class here. What an error is an instance of
 * goes by its code, so that it holds between two copies of this package.
 */
export class SemelError extends Error {
  protected constructor();
  readonly name: string;
  /** A code of the protocol, of the client, or of a newer server. */
  readonly code: ProtocolCode | ClientCode | (string & {});
  readonly executed: Executed;
  readonly retry: Retry;
  readonly requestId: string;
  /** What the server said; undefined where the error is the client's. */
  readonly problem: Problem | undefined;
}

/** Whether the request ran can't be told: `gave-up`, `closed`, `outcome-lost`, and the server's `outcome-unknown`. */
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
 * - `store-unavailable`: there is none, or it must not be used (private mode, blocked storage, a file system without hard links)
 * - `store-blocked`: it could not be had within 10 s, or did not answer within 30 s; another tab or process may stand in the way
 * - `store-newer`: it was written by a newer version of the SDK
 * - `store-damaged`: something in it can't be read; nothing is sent past it
 * - `store-full`: there is no space left
 * - `store-failed`: anything else; see `cause`
 */
export type StoreCode = "store-unavailable" | "store-blocked" | "store-newer" | "store-damaged" | "store-full" | "store-failed";

/**
 * The store can't be used: what `open` rejects with, and the `cause` of a `SemelError` with the code `store-failed`; of a store of your own, both are
 * what that has thrown.
 */
export class StoreError extends Error {
  /** The message is that of the error with the code before it. */
  constructor(code: StoreCode, message: string, cause?: unknown);
  readonly name: string;
  readonly code: StoreCode;
}

/** A stored request that has no definitive answer yet, or whose answer nobody has taken. */
export interface Pending {
  readonly requestId: string;
  readonly method: string;
  readonly url: string;
  /** How often this tab has sent it. */
  readonly attempts: number;
  /**
   * - `sending`: it is being sent, again and again, or waits for its turn, its time or the network
   * - `paused`: something must be mended first, see `onpaused`
   * - `answered`: it has its answer, which waits for `onrecovered`
   * - `elsewhere`: another tab sends it
   */
  readonly state: "sending" | "paused" | "answered" | "elsewhere";
}

/** The answer to a request of an earlier page or process, or of a caller that gave up. */
export type Recovered = Described & (
  | { /** The outcome. */ readonly response: Response; readonly error: undefined }
  | { readonly response: undefined; readonly error: SemelError }
);

/** A request that can't go on until something is mended, or until there are credentials (401, 403). */
export interface Paused {
  readonly requestId: string;
  readonly method: string;
  readonly url: string;
  /** What the server said. Its `executed` is `"unknown"`: an earlier attempt may have run. */
  readonly error: SemelError;
  /** Sends it again, under the same id. */
  resume(): void;
  /**
   * Asks the key to cancel it. The caller gets an error with `executed: "no"`, or the outcome if it had run; where the server
   * refuses to cancel it as well, that problem, with `executed: "unknown"`. But 401 and 403 wait for other credentials: that is
   * told as another pause, and who gives up at each goes on doing so.
   */
  giveUp(): void;
}

/**
 * Where requests are kept: rows of bytes under ids.
 *
 * - A method that resolves has made its change durable. One that rejects has changed nothing.
 * - `load` and `presence` are waited for 30 s. `change` is waited for without a limit, for nobody could tell whether it was made: a store
 *   that can undo it should do so after a while, and reject then.
 * - `change` is one transaction: no other change of that row, in this process or another, comes between reading and
 *   writing. `change.to` is called in it, synchronously, with the row or undefined; it returns the new row,
 *   undefined to delete it, or null to leave it as it is. A store that makes its transaction again calls it again, with the row as it is then,
 *   and the last call counts; also where it can't tell whether the one before was made.
 * - `remove` is one transaction too, of all these rows: it deletes those that are there and of which `isDone` is true. An id whose
 *   row is done in one tab may be that of a new request by the time that another deletes it.
 */
export interface Store {
  load(): Promise<Array<[id: string, row: Uint8Array]>>;
  change(id: string, to: (row: Uint8Array | undefined) => Uint8Array | undefined | null): Promise<void>;
  remove(ids: string[], isDone: (row: Uint8Array) => boolean): Promise<void>;
  /**
   * Says that `owner`, an id of this outbox alone, lives from now on; called once, before the first `change`. Without it nobody can tell which
   * outboxes on the store are gone, and one that opens takes over all that it finds.
   */
  presence?(owner: string): Presence;
  close?(): void | Promise<void>;
}

export interface Presence {
  /** The owners that live: in this process and others, this one too. Who may live does; whoever is left out is gone for good. */
  alive(): Promise<string[]>;
  /** Says that this owner is gone. Called at `close`; it must not throw. */
  leave(): void;
}

/** What `fetch` takes for headers. By this way: without the types of browsers nothing is called `HeadersInit`. */
type HeadersGiven = NonNullable<RequestInit["headers"]>;

export interface Options {
  /** The origin of the worker, such as `https://api.example.com`. */
  url: string | URL;
  /** Who makes the requests, as the server authenticates them. Each identity has an outbox of its own. Default `""`: nobody in particular. */
  identity?: string | undefined;
  /** Headers of every attempt, credentials above all. A function is called for each attempt. Never stored. */
  headers?: HeadersGiven | (() => HeadersGiven | undefined | Promise<HeadersGiven | undefined>) | undefined;
  /** The pause between two attempts of a request, in ms. Default 1,000. At least 10. */
  retryIntervalMs?: number | undefined;
  /** How long an attempt may take, in ms. Default 10,000. 100 to 100,000. */
  attemptTimeoutMs?: number | undefined;
  /** After so many ms without a definitive answer, `fetch` rejects with `OutcomeUnknownError`, and the request goes on. Default: never. */
  giveUpAfterMs?: number | undefined;
  /** How many requests may be pending in this tab, and how many attempts under way. Default 1,000 and 32. */
  maxPending?: number | undefined;
  maxAttempts?: number | undefined;
  /** Whether requests to one key go one after another, in the order of their calls. Default true. See `Init`. */
  ordered?: boolean | undefined;
  /**
   * How ids are made: by the time and at random (`uuid`, the default: version 7), or from what a request is (`hash`: a UUID of SHA-256 over identity, method, path,
   * key, `salt` and body, with `crypto.subtle`). With hashes a double click is one request, and so are two orders that were meant to be
   * two: give a `salt` that tells them apart, or a function of the time, as `() => Math.floor(Date.now() / 60_000)`. Made again
   * after its answer, a request is refused as `outcome-lost` or `acknowledged`, until its key has forgotten it: a minute or more.
   */
  ids?: "uuid" | "hash" | undefined;
  salt?: Salt | undefined;
  /** Instead of the runtime's `fetch`: a change comes as a URL and what goes with it, a read as a `Request`. */
  fetch?: ((input: string | Request, init: RequestInit) => Promise<Response>) | undefined;
  /** Instead of IndexedDB. */
  store?: Store | undefined;
  /** `strict` (default): on disk before the first attempt. `relaxed`: handed to the system, so that a power cut may lose a request, or have it sent again past what its key remembers; not in sessions. `memory`: lost with the page. Without effect where there is a `store`. */
  durability?: "strict" | "relaxed" | "memory" | undefined;
  onrecovered?: Semel["onrecovered"] | undefined;
  onpaused?: Semel["onpaused"] | undefined;
  /**
   * The browser has thrown the store away since it was last open: what was pending can't be told. Only where `localStorage` outlived
   * it, as in Chromium.
   */
  onstorelost?: (() => void) | undefined;
}

/** Anything that tells two equal requests apart; a function is asked for each. */
export type Salt = string | number | (() => string | number);

export interface Init extends RequestInit {
  /** The key, where the application's key rule leaves it open. */
  key?: string | undefined;
  /**
   * An id of your own: 1 to 200 characters of printable ASCII, not beginning with `cancel-`. While a request is pending, another call
   * with its id waits for the same answer; one with another method, path, key, headers or body is refused as `fingerprint-mismatch`.
   */
  id?: string | undefined;
  /** Instead of the option. */
  salt?: Salt | undefined;
  /** Instead of the option: whether it waits until those before it at its key have their answers. Those that don't, and name a `key`, go together where they are many. */
  ordered?: boolean | undefined;
}

/** How many changes wait, in this tab. It never changes; what has changed is another one. */
export interface Snapshot {
  /** Without an answer yet, those that are paused among them. */
  readonly pending: number;
  /** Something must be mended first, see `onpaused`. */
  readonly paused: number;
  /** False: nothing is sent until the network is there again. */
  readonly online: boolean;
}

interface Described {
  readonly requestId: string;
  readonly method: string;
  readonly url: string;
}

type Ended = { readonly status: number; readonly error: undefined } | { readonly status: undefined; readonly error: SemelError };

/** What is told, each as a `CustomEvent` with this `detail`. */
export interface SemelEventMap {
  /** An attempt leaves. */
  attempt: CustomEvent<Described>;
  /**
   * An attempt got no answer, by what was thrown, or did not leave, for the store refuses what is written before it, or was `refused` for good, and the store can't be asked whether another tab has an outcome; it is made again, unless its request was given up, or all is closed. `requestId` is undefined for what goes along with requests (the clock, acknowledgements),
   * and for what a session sends, but not for what its store refuses; of a cancellation that left it is `cancel-` and the id.
   */
  lost: CustomEvent<Omit<Described, "requestId"> & { readonly requestId: string | undefined; readonly error: unknown }>;
  /**
   * An attempt was answered, and not with its outcome, but with the `code` of a problem (`rolled-back`, say, if the handler throws). It is made again, unless it is settled with that, or stalled. Of what a
   * session sends, the take-over alone; its `requestId` is undefined.
   */
  refused: CustomEvent<Omit<Described, "requestId"> & { readonly requestId: string | undefined; readonly status: number; readonly code: string }>;
  /** A request has its answer, and its caller gets it: the status of the outcome, or the error. */
  settled: CustomEvent<Described & Ended>;
  /** It pauses until something is mended. */
  stalled: CustomEvent<Described & { readonly error: SemelError }>;
  /** There is the answer to a request for which nobody waits; `onrecovered` gets it. */
  recovered: CustomEvent<Described & Ended>;
  offline: Event;
  online: Event;
  /** It is closed, for good: by `close()`, without an error, or for its module has trapped. What is stored goes on at the next `open`. */
  closed: CustomEvent<{ readonly error: unknown }>;
}

export interface SessionOptions {
  /** The epoch that is expected to be current, 0 for none: where another one is, it is not fenced. The error is a `FencedError` if that is newer, and a `BodyInvalidError` if this one is. */
  after?: number | undefined;
  /** Where its requests are kept, of this session alone: closed with it. Default: as the outbox, in a database of its own; needed where the outbox has a store of one's own. */
  store?: Store | undefined;
  /**
   * `http` (default): requests alone by themselves, more of them in a batch. `socket`: all by one WebSocket, which is opened anew when it
   * was closed. `auto`: by a WebSocket where the runtime has one and it opens in time, else as `http` for a minute.
   */
  transport?: "http" | "socket" | "auto" | undefined;
  onrecovered?: Session["onrecovered"] | undefined;
  onpaused?: Session["onpaused"] | undefined;
  onended?: Session["onended"] | undefined;
}

/**
 * A named client at a key. Its requests have places in a row: they go out together, as many as wait, and take effect in the order of
 * the calls, each once. One holder has it at a time.
 */
export interface Session {
  /** As it was named. */
  readonly key: string;
  readonly name: string;
  /** The number of this holder. */
  readonly epoch: number;
  /** The last place that was taken when it took over. */
  readonly lastSeq: number;

  /**
   * As `semel.fetch`, in order with all other calls of the session. Rejects with a `FencedError` once somebody else has taken over: where
   * its `executed` is `"no"`, the request never ran and never will. Other methods than `POST`, `PUT`, `PATCH` and `DELETE` pass through,
   * in no order. Aborting `init.signal` closes its place, once what is under way with it has ended: it rejects with `executed: "no"`, or resolves with the outcome if it was too late.
   * `key`, `id`, `salt` and `ordered`, which calls of the outbox take, are a `TypeError`.
   */
  readonly fetch: (input: string | URL | Request, init?: RequestInit) => Promise<Response>;

  /** What is stored of it and has no definitive answer yet, of every holder. */
  pending(): Promise<Pending[]>;

  /** Goes on after a pause. */
  resume(): void;

  /**
   * Gets the answers to what holders before it left, and to what goes on after `giveUpAfterMs`. Each leaves the store when this has returned, or
   * what it returned has resolved. Until it is set, and after it threw, answers are kept.
   */
  onrecovered: ((recovered: Recovered) => void | Promise<void>) | null;

  /**
   * Is told when the session pauses at a request: all that comes after it waits too. `giveUp` closes its place. Is also told where one was
   * refused again and again; it is sent on.
   */
  onpaused: ((paused: Paused) => void) | null;

  /**
   * Is told, once, that there are no more places to be had: somebody else holds the session (a `FencedError`), or its key has lost it. Calls
   * reject with the same error. What was stored and nobody waits for goes on with whoever opens the session next. So it does where the module of the session has trapped: then it is `closed`, with the `RuntimeError` as its `cause`.
   */
  onended: ((error: SemelError) => void) | null;

  /** Stops sending. Callers that still wait get an error with the code `closed`; what is stored goes on when the session is opened again. */
  close(): Promise<void>;
}

/** An outbox, bound to one worker and one identity. It is an `EventTarget`. */
export class Semel {
  private constructor();
  /** Opens the outbox, and goes on with what was left unfinished. */
  static open(options: Options): Promise<Semel>;

  /**
   * As `fetch`: `POST`, `PUT`, `PATCH` and `DELETE` are stored, happen exactly once and resolve with the first answer.
   * Other methods pass through. A body is read to its end first, and has at most 1 MiB, what a key takes. Aborting `init.signal` asks the key to cancel:
   * `fetch` rejects with `executed: "no"`, or resolves with the outcome if it was too late, once the server has answered that. What bounds
   * the waiting is the option `giveUpAfterMs`. It needs no receiver: it can be given to
   * whatever takes a `fetch`.
   */
  readonly fetch: (input: string | URL | Request, init?: Init) => Promise<Response>;

  /**
   * The answer to a request that was made before: in this tab, in another one, or before a reload. It is kept for others only if they
   * asked before it was given, and for a day; else the error is an `OutcomeLostError`. Aborting `signal` ends the waiting alone. Who waits
   * together with a call of `fetch` under that id is rejected with it once that one's `giveUpAfterMs` is over.
   */
  outcome(requestId: string, options?: { signal?: AbortSignal | undefined }): Promise<Response>;

  /**
   * Takes over the session of that name, 1 to 255 characters of printable ASCII, at a key, and goes on with what its holders before left: see `Session`. A holder that lives is
   * fenced. Resolves once the key has answered; rejects with a `SemelError` where it refuses. What sessions take is loaded at the first.
   */
  session(key: string, name: string, options?: SessionOptions): Promise<Session>;

  /** What is stored and has no definitive answer yet, of every tab; and of the sessions that are open here. In a browser by their ids, which begin with the time where the SDK makes them. */
  pending(): Promise<Pending[]>;

  /** Sends all that is paused again: after a login, say. */
  resume(): void;

  /**
   * Gets the answers to requests that nobody waits for: of an earlier page, or after `giveUpAfterMs`. Such a request leaves the store
   * when this has returned, or what it returned has resolved. Until it is set, and after it threw, answers are kept.
   */
  onrecovered: ((recovered: Recovered) => void | Promise<void>) | null;

  /** Is told of each request that pauses. */
  onpaused: ((paused: Paused) => void) | null;

  /**
   * Calls `listener` with the snapshot, now and whenever it has changed, and returns what ends that: as Svelte's stores do. With
   * `getSnapshot`, it fits React's `useSyncExternalStore`.
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
   * Stops sending. Callers that still wait get an `OutcomeUnknownError` with the code `closed`, and their requests stay stored; where a request was
   * not given to the store yet, for its body is still read, say, it is a `TypeError`. It does not wait for what the store still writes: who ends the process
   * then awaits `store.close()` first, or what was answered last is answered once more, at `onrecovered` of the next `open`.
   */
  close(): Promise<void>;
}

// Not by `extends`: what Cloudflare's types have for these two takes any name, and listeners for the names here are none of that.
export interface Semel extends Omit<EventTarget, "addEventListener" | "removeEventListener"> {}
