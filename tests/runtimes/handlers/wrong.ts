// Mistakes that the types of `semel/worker` must refuse: each `@ts-expect-error` fails if its line compiles.

import { type Answer, type Context, type HandlerRequest, type RequestHead, SemelObject, worker } from "semel/worker";

export class Waits extends SemelObject<Env> {
  // @ts-expect-error: handle returns an answer, not a promise.
  async handle(): Promise<Answer> {
    return { status: 200 };
  }
}

export class Late extends SemelObject<Env> {
  // @ts-expect-error: `fetch` returns a promise, too.
  handle(ctx: Context) {
    return fetch(ctx.key);
  }
}

export class Counts extends SemelObject<Env> {
  // @ts-expect-error: `alarm` is Semel's own name.
  alarm(): number {
    return 1;
  }
  handle(): null {
    return null;
  }
}

// @ts-expect-error: the class has no `handle`.
export class Nothing extends SemelObject<Env> {}

export class Keyed extends SemelObject<Env> {
  static key(request: RequestHead) {
    return request.query.get("key");
  }
  static schema = ["CREATE TABLE a (b)"];
  handle(ctx: Context, request: HandlerRequest): Answer {
    // @ts-expect-error: the type of parsed JSON is unknown.
    request.json().length;
    // @ts-expect-error: a handler can't set the key's clock.
    ctx.now = 5;
    // Optional members may be undefined, also under exactOptionalPropertyTypes.
    ctx.emit(ctx.key, { path: request.path, method: undefined, headers: undefined, body: undefined });
    return { status: 200, headers: { "x-a": 1 }, body: { rows: ctx.sql.exec<{ b: string }>("SELECT b FROM a").toArray(), left: undefined } };
  }
}

worker(Keyed);
// @ts-expect-error: JSON can't hold a Map.
export const map: Answer = { status: 200, body: new Map() };
// @ts-expect-error: `worker` takes a class.
worker({});
