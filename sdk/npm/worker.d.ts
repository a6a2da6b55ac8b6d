import { DurableObject } from "cloudflare:workers";

/**
 * What JSON can hold. An object that has `toJSON` is asked for it. What is declared as an `interface` is refused ("Index signature is missing"), for anybody could
 * add members to that: declare a `type`, or give `{ ...it }`.
 */
export type Json = null | boolean | number | string | readonly Json[] | { readonly [name: string]: Json | undefined } | { toJSON(): unknown };

/** An answer: of status 200 to 299 or 400 to 499 it is recorded, and any other undoes what was written. */
export interface Answer {
  status: number;
  headers?: Headers | Iterable<readonly [string, string | number]> | Record<string, string | number> | undefined;
  /** Text and bytes go as they are; anything else as JSON. `null`: no body. */
  body?: Json | Uint8Array | undefined;
}

/** A request as far as its key is told by it. */
export interface RequestHead {
  readonly method: string;
  /** As it was sent, without its query. */
  readonly path: string;
  /** The decoded parts of the path: none is empty, none holds a slash. */
  readonly segments: readonly string[];
  readonly query: URLSearchParams;
}

/** A request, whole: nothing of it has to be awaited. */
export interface HandlerRequest extends RequestHead {
  readonly headers: Headers;
  readonly body: Uint8Array;
  text(): string;
  json<T = unknown>(): T;
}

/** What a handler works on, until it has answered. */
export interface Context {
  /** The object's own database. Tables whose names begin with `semel_` are Semel's. */
  readonly sql: SqlStorage;
  /** The key's clock, in Unix ms: it never goes back. */
  readonly now: number;
  readonly key: string;
  /** Who is authenticated; empty where nobody is asked. */
  readonly principal: string;
  /**
   * Has a request sent to another key, exactly once and in the order of the commits, if what the handler does is committed. There it is one of
   * the principal `semel:emit`, and its header `semel-from` names this key, in quotes and percent-encoded.
   */
  emit(key: string, request: Outgoing & { path: string }): void;
  /**
   * Has a request sent to an address outside, at least once, if what the handler does is committed: always with the same `Idempotency-Key`,
   * by which the other side can tell.
   */
  call(url: string | URL, request?: Outgoing): void;
}

/** A request that leaves. Its body is as that of an answer. */
export interface Outgoing {
  /** `POST` unless it is said. */
  method?: "POST" | "PUT" | "PATCH" | "DELETE" | undefined;
  headers?: Answer["headers"];
  body?: Answer["body"];
}

/** The object of a key. A subclass brings `handle`. */
export abstract class SemelObject<Env = unknown> extends DurableObject<Env> {
  /**
   * Which key a request belongs to: a function that gives it, or null where nothing handles the request; or a pattern such as
   * `"/shops/:shop/*"`, of which all but `*` is the key. Left out, it is the key that `Semel-Key` names, else the path.
   */
  static key?: string | ((request: RequestHead) => string | null);

  /** Statements of SQL: entry `i` brings the tables from version `i` to `i + 1`. An entry that was deployed is never changed. */
  static schema?: readonly string[];

  /**
   * Answers a request from inside the transaction that records the answer. It is no promise: `async` is refused. What it throws
   * undoes all that it wrote, and so does any GET or HEAD. `null`: nothing handles such a path, and the client of a change waits for a deployment that does;
   * of a thing that isn't there answer 404.
   */
  abstract handle(ctx: Context, request: HandlerRequest): Answer | null;

  /** Semel's own, as are the others here: a subclass must not have it. */
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
  private isSuspect;
  private run;
  private settled;
  private storage;
  private taken;
  private underWay;
  private waiting;
}

/** Which keys there are: bound as REGISTRY. */
export class SemelRegistry extends DurableObject {}

/** The Worker of a class of objects, which is bound as SEMEL. */
export function worker<Env>(application: (new (ctx: DurableObjectState, env: Env) => SemelObject<Env>) & Pick<typeof SemelObject, "key" | "schema">): {
  fetch(request: Request, env: Env): Promise<Response>;
};

/** What a queue's messages ask for. */
export interface ConsumerOptions<Body = unknown> {
  /**
   * The path: a function, or a template such as `"/shops/{shop}/orders"`, of which each name is a member of the body. The body of the
   * request is that of the message: text and bytes as they are, anything else as JSON. What throws, or has no such member, is a dead letter. Neither this function nor that of `id` is async.
   */
  path: string | ((body: Body, message: Message<Body>) => string);
  /** What makes two messages the same: a member of the body, or a function. Left out, the id that the queue gave the message. */
  id?: string | ((body: Body, message: Message<Body>) => string) | undefined;
  /** `"POST"`, unless another is named. */
  method?: "POST" | "PUT" | "PATCH" | "DELETE" | undefined;
  /** The binding of the queue for dead letters: `"DEAD_LETTERS"`, unless another is named. */
  deadLetters?: string | undefined;
  /** What the handler fails (it throws, say) at this delivery becomes a dead letter: 3, unless another is named. */
  deliveries?: number | undefined;
  /**
   * The queue's own `max_retries`, as in its configuration, which nothing tells a consumer: at the last delivery whatever keeps a message from its effect becomes a dead letter with that reason. Left out, the queue's `dead_letter_queue` has it, without one.
   */
  retries?: number | undefined;
}

/** What is sent to the queue for dead letters. */
export interface DeadLetter<Body = unknown> {
  queue: string;
  /** The message's id, when it was sent, in Unix ms, and how often it was delivered. */
  id: string;
  timestamp: number;
  attempts: number;
  reason: {
    /** `"refused"`: the handler's outcome is not 2xx; `"message-invalid"`: it could not be made a request; else a code of the protocol. */
    code: string;
    /** Of the answer, where there was one. */
    status?: number;
    /** Whether the handler ran and its effect was kept. */
    executed: "yes" | "no" | "unknown";
    /**
     * With `executed` `"no"`: after `"never"` the message never runs, however often it is still delivered. Else `"no"` speaks of this delivery: should
     * the acknowledgement be lost, the next one may run it, and so may one before that had no answer.
     */
    retry: "never" | "same-id" | "after-fix";
    detail: string;
  };
  body: Body;
}

/** The `queue` of a Worker: gives each message to the handler of its key, once however often it is delivered. */
export function consumer<Body = any>(options: ConsumerOptions<Body>): (batch: MessageBatch<Body>, env: object) => Promise<void>;
