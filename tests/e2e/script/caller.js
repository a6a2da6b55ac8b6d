// A handler that calls the addresses in its body.

import { SemelObject, SemelRegistry, worker } from "semel/worker";

export class Caller extends SemelObject {
  handle(ctx, request) {
    for (const url of request.json().urls) ctx.call(url, { headers: { "x-from": ctx.key }, body: { now: ctx.now } });
    return { status: 200 };
  }
}

export { SemelRegistry };
export default worker(Caller);
