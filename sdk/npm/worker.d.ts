import { DurableObject } from "cloudflare:workers";

/**
 * What JSON can hold, and objects with `toJSON`. TypeScript refuses a value whose type is an `interface` ("Index signature is missing"), because anyone
 * could add members to an interface: declare a `type` instead, or pass `{ ...it }`.
 */
export type Json = null | boolean | number | string | readonly Json[] | { readonly [name: string]: Json | undefined } | { toJSON(): unknown };

/** An answer. With a status of 200 to 299 or 400 to 499 it is recorded, together with what was written. Any other status undoes what was written. */
export interface Answer {
  status: number;
  headers?: Headers | Iterable<readonly [string, string | number]> | Record<string, string | number> | undefined;
  /** A string or bytes are sent as they are, anything else as JSON. `null`: no body. */
  body?: Json | Uint8Array | undefined;
}

/** The part of a request that its key is derived from. */
export interface RequestHead {
  readonly method: string;
  /** The path as it was sent, without the query. */
  readonly path: string;
  /** The parts of the path, percent-decoded. None is empty, and none contains a slash. */
  readonly segments: readonly string[];
  readonly query: URLSearchParams;
}

/** A complete request: its body has been read, so nothing has to be awaited. */
export interface HandlerRequest extends RequestHead {
  readonly headers: Headers;
  readonly body: Uint8Array;
  text(): string;
  json<T = unknown>(): T;
}

/** What a handler works with. Valid until the handler has returned. */
export interface Context {
  /** The database of the key's object. Tables whose names begin with `semel_` belong to Semel. */
  readonly sql: SqlStorage;
  /** The key's clock, in Unix ms. It never goes back. */
  readonly now: number;
  readonly key: string;
  /** The authenticated principal; empty if the deployment authenticates nobody. */
  readonly principal: string;
  /**
   * Sends a request to another key, if the handler's work is committed: exactly once, and in the order of the commits. At the other key its principal is
   * `semel:emit`, and the header `semel-from` names this key, in quotes and percent-encoded.
   */
  emit(key: string, request: Outgoing & { path: string }): void;
  /**
   * Sends a request to an address outside, if the handler's work is committed: at least once, always with the same `Idempotency-Key`, by which the other
   * side can recognise a repetition.
   */
  call(url: string | URL, request?: Outgoing): void;
}

/** A request to another key or to an address outside. Its body is like that of an answer. */
export interface Outgoing {
  /** Default `"POST"`. */
  method?: "POST" | "PUT" | "PATCH" | "DELETE" | undefined;
  headers?: Answer["headers"];
  body?: Answer["body"];
}

/** The object of a key. Your subclass implements `handle`. */
export abstract class SemelObject<Env = unknown> extends DurableObject<Env> {
  /**
   * Which key a request belongs to.
   * - A function returns the key, or null if nothing handles the request. It must return the same for the same request each time.
   * - A pattern such as `"/shops/:shop/*"`: `/shops/a/orders` has the key `shops/a`; without the `*`, only `/shops/a` would.
   * - Left out: the key is the one in `Semel-Key`, otherwise the path.
   */
  static key?: string | ((request: RequestHead) => string | null);

  /** Migrations in SQL: entry `i` takes the tables from version `i` to `i + 1`. Never change an entry that was deployed. */
  static schema?: readonly string[];

  /**
   * Answers a request, inside the transaction that records the answer.
   *
   * - It must be synchronous: an `async` handler is refused.
   * - If it throws, everything that it wrote is undone. What it writes for a GET or HEAD is always undone.
   * - `null` means that no code handles this path: the client of a change waits until a deployment does. If only the thing is missing, answer 404.
   */
  abstract handle(ctx: Context, request: HandlerRequest): Answer | null;

  /** This method and those below belong to Semel: a subclass must not define them. */
  fetch(request: Request): Promise<Response>;
  alarm(): Promise<void>;
  webSocketMessage(socket: WebSocket, message: string | ArrayBuffer): Promise<void>;
  webSocketClose(socket: WebSocket): void;
  webSocketError(socket: WebSocket): void;
  private answered;
  private ask;
  private askAll;
  private count;
  private forget;
  private goesOn;
  private isSuspect;
  private run;
  private settled;
  private storage;
  private taken;
  private underWay;
  private waiting;
}

/** The object that lists the keys. Bind it as REGISTRY. */
export class SemelRegistry extends DurableObject {}

/** Makes the Worker for your class of objects. Bind the class as SEMEL. */
export function worker<Env>(application: (new (ctx: DurableObjectState, env: Env) => SemelObject<Env>) & Pick<typeof SemelObject, "key" | "schema">): {
  fetch(request: Request, env: Env): Promise<Response>;
};

/** How to make a request of each message of a queue. */
export interface ConsumerOptions<Body = unknown> {
  /**
   * The request's path: a function, or a template such as `"/shops/{shop}/orders"` whose names are members of the message's body. The request's body is
   * the message's: a string or bytes as they are, anything else as JSON. A message for which the function throws, or which lacks such a member, becomes
   * a dead letter. This function and that of `id` must be synchronous.
   */
  path: string | ((body: Body, message: Message<Body>) => string);
  /** What makes two messages the same: the name of a member of the body, or a function. Default: the id that the queue gave the message. */
  id?: string | ((body: Body, message: Message<Body>) => string) | undefined;
  /** Default `"POST"`. */
  method?: "POST" | "PUT" | "PATCH" | "DELETE" | undefined;
  /** The binding of the queue for dead letters. Default `"DEAD_LETTERS"`. */
  deadLetters?: string | undefined;
  /** At this delivery, a message that the handler fails (it throws, for example) becomes a dead letter. Default 3. */
  deliveries?: number | undefined;
  /**
   * The queue's `max_retries`. Repeat it here, because the platform does not tell a consumer. At the last delivery, a message that still has no effect
   * becomes a dead letter with its reason. If you leave this out, such a message goes to the queue's `dead_letter_queue`, without a reason.
   */
  retries?: number | undefined;
}

/** A message of the queue for dead letters. */
export interface DeadLetter<Body = unknown> {
  queue: string;
  /** The message's id; `timestamp`: when it was sent, in Unix ms; `attempts`: how often it was delivered. */
  id: string;
  timestamp: number;
  attempts: number;
  reason: {
    /** `"refused"`: the handler's outcome is not 2xx. `"message-invalid"`: no request could be made of the message. Otherwise a code of the protocol. */
    code: string;
    /** The status of the answer, if there was one. */
    status?: number;
    /** Whether the handler ran and its effect was kept. */
    executed: "yes" | "no" | "unknown";
    /**
     * Read it together with `executed`: if that is `"no"` and this is `"never"`, the message never runs, however often it is delivered again. With any
     * other value, `"no"` is only about this delivery: the message may be run by an earlier delivery that had no answer, or by a later one if the
     * acknowledgement is lost.
     */
    retry: "never" | "same-id" | "after-fix";
    detail: string;
  };
  body: Body;
}

/** Makes the `queue` handler of a Worker. It gives each message to the handler of its key, exactly once, however often the message is delivered. */
export function consumer<Body = any>(options: ConsumerOptions<Body>): (batch: MessageBatch<Body>, env: object) => Promise<void>;
