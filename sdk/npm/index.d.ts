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
 * - `outbox-full`: too many requests are pending; this one was neither stored nor sent
 * - `store-failed`: the request could not be stored, so it was not sent; `cause` is what the store threw
 * - `gave-up`: no definitive answer in `giveUpAfterMs`; the request stays stored and goes on
 * - `closed`: `close()` was called; the request stays stored and goes on at the next `open`
 * - `outcome-lost`: another tab got the answer, and it is no longer kept
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

/** An answer that is no outcome. `executed` is `"no"` only where the request never ran and never will. */
export class SemelError extends Error {
  readonly name: string;
  /** A code of the protocol, of the client, or of a newer server. */
  readonly code: ProtocolCode | ClientCode | (string & {});
  readonly executed: Executed;
  readonly retry: Retry;
  readonly requestId: string;
  /** What the server said; undefined where the error is the client's. */
  readonly problem: Problem | undefined;
}

/** Whether the request ran can't be told: `gave-up`, `closed` or `outcome-lost`. */
export class OutcomeUnknownError extends SemelError {}

/**
 * - `store-unavailable`: there is none, or it must not be used (private mode, blocked storage, a file system without hard links)
 * - `store-blocked`: it could not be had within 10 s; another tab or process may stand in the way
 * - `store-newer`: it was written by a newer version of the SDK
 * - `store-damaged`: something in it can't be read; nothing is sent past it
 * - `store-full`: there is no space left
 * - `store-failed`: anything else; see `cause`
 */
export type StoreCode = "store-unavailable" | "store-blocked" | "store-newer" | "store-damaged" | "store-full" | "store-failed";

/** The store can't be used: what `open` rejects with, and the `cause` of a `SemelError` with the code `store-failed`. */
export class StoreError extends Error {
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
   * - `sending`: it is being sent, again and again
   * - `paused`: something must be mended first, see `onpaused`
   * - `answered`: it has its answer, which waits for `onrecovered`
   * - `elsewhere`: another tab sends it
   */
  readonly state: "sending" | "paused" | "answered" | "elsewhere";
}

/** The answer to a request of an earlier page or process, or of a caller that gave up. */
export interface Recovered {
  readonly requestId: string;
  readonly method: string;
  readonly url: string;
  /** The outcome; undefined where there is an `error`. */
  readonly response: Response | undefined;
  readonly error: SemelError | undefined;
}

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
   * refuses to cancel it as well, that problem, with `executed: "unknown"`.
   */
  giveUp(): void;
}

/**
 * Where requests are kept: rows of bytes under ids.
 *
 * - A method that resolves has made its change durable. One that rejects has changed nothing.
 * - `change` is one transaction: no other change of that row, in this process or another, comes between reading and
 *   writing. `change.to` is called once in it, synchronously, with the row or undefined; it returns the new row,
 *   undefined to delete it, or null to leave it as it is.
 */
export interface Store {
  load(): Promise<Array<[id: string, row: Uint8Array]>>;
  change(id: string, to: (row: Uint8Array | undefined) => Uint8Array | undefined | null): Promise<void>;
  remove(ids: string[]): Promise<void>;
  /**
   * Says that `owner`, an id of this outbox alone, lives from now on; called once, before `load`. Without it nobody can tell which
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

export interface Options {
  /** The origin of the worker, such as `https://api.example.com`. */
  url: string | URL;
  /** Who makes the requests, as the server authenticates them. Each identity has an outbox of its own. Default `""`: nobody in particular. */
  identity?: string;
  /** Headers of every attempt, credentials above all. A function is called for each attempt. Never stored. */
  headers?: HeadersInit | (() => HeadersInit | Promise<HeadersInit>);
  /** The pause between two attempts of a request, in ms. Default 1,000. At least 10. */
  retryIntervalMs?: number;
  /** How long an attempt may take, in ms. Default 10,000. 100 to 100,000. */
  attemptTimeoutMs?: number;
  /** After so many ms without a definitive answer, `fetch` rejects with `OutcomeUnknownError`, and the request goes on. Default: never. */
  giveUpAfterMs?: number;
  /** Instead of the runtime's `fetch`. */
  fetch?: typeof globalThis.fetch;
  /** Instead of IndexedDB. */
  store?: Store;
  /** `strict` (default): on disk before the first attempt. `relaxed`: handed to the system. `memory`: lost with the page. */
  durability?: "strict" | "relaxed" | "memory";
  onrecovered?: Semel["onrecovered"];
  onpaused?: Semel["onpaused"];
}

export interface Init extends RequestInit {
  /** The key, where the application's key rule leaves it open. */
  key?: string;
}

/** An outbox, bound to one worker and one identity. */
export class Semel {
  private constructor();
  /** Opens the outbox, and goes on with what was left unfinished. */
  static open(options: Options): Promise<Semel>;

  /**
   * As `fetch`: `POST`, `PUT`, `PATCH` and `DELETE` are stored, happen exactly once and resolve with the first answer.
   * Other methods pass through. Aborting `init.signal` asks the key to cancel.
   */
  fetch(input: string | URL | Request, init?: Init): Promise<Response>;

  /** What is stored and has no definitive answer yet, of every tab. */
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

  /** Stops sending. Callers that still wait get an `OutcomeUnknownError` with the code `closed`; the requests stay stored. */
  close(): Promise<void>;
}
