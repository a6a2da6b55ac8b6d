// What must not compile: the line below each mark is an error; otherwise the mark itself is one.

import { type ClientCode, type Init, type Options, OutcomeUnknownError, type Paused, type Pending, type ProtocolCode, type Recovered, Semel, type SemelError, type Store } from "../../../sdk/npm/index.js";

declare const semel: Semel;
declare const error: SemelError;
declare const pending: Pending;
declare const recovered: Recovered;
declare const paused: Paused;
declare const store: Store;
const url = "https://api.example.com";

// @ts-expect-error An outbox is opened, not made.
new Semel();
// @ts-expect-error
class Own extends Semel {}
// @ts-expect-error
Semel.open();
// @ts-expect-error The url is needed.
Semel.open({});
// @ts-expect-error
Semel.open(url);
// @ts-expect-error There is no such option.
Semel.open({ url, retryInterval: 1 });
// @ts-expect-error
Semel.open({ url, onRecovered: () => {} });
// @ts-expect-error
Semel.open({ url, retryIntervalMs: "1000" });
// @ts-expect-error
Semel.open({ url, identity: 5 });
// @ts-expect-error
Semel.open({ url, identity: null });
// @ts-expect-error
Semel.open({ url, durability: "none" });
// @ts-expect-error
Semel.open({ url, headers: 5 });
// @ts-expect-error
Semel.open({ url, headers: async () => 5 });
// @ts-expect-error
Semel.open({ url, fetch: (input: string) => input });
// @ts-expect-error A store has three methods.
Semel.open({ url, store: { load: store.load, change: store.change } });
// @ts-expect-error Rows are bytes.
Semel.open({ url, store: { ...store, load: async () => [["id", "text"]] } });
// @ts-expect-error It is done once its promise has resolved.
Semel.open({ url, store: { ...store, change: (id: string, to: () => void) => console.log(id, to) } });
// @ts-expect-error It is a promise.
Semel.open({ url }).fetch("/");

// @ts-expect-error
semel.fetch();
// @ts-expect-error
semel.fetch("/", { key: 5 });
// @ts-expect-error
semel.fetch("/", { method: "POST", requestId: "own" });
// @ts-expect-error
const init: Init = { id: 7 };
// @ts-expect-error The answer is a promise.
semel.fetch("/").status;
// @ts-expect-error
semel.pending().length;
// @ts-expect-error
semel.onpaused = (other: string) => console.log(other);
// @ts-expect-error
semel.onrecovered = undefined;
// @ts-expect-error
semel.onrecovered = (one: Recovered, two: string) => console.log(one, two);

// @ts-expect-error What is told can't be changed.
error.code = "cancelled";
// @ts-expect-error
error.executed = "no";
// @ts-expect-error
const isKnown: ProtocolCode | ClientCode = error.code;
// @ts-expect-error
if (error.executed === "maybe") console.log();
// @ts-expect-error
if (error.retry === "later") console.log();
// @ts-expect-error It may be undefined.
error.problem.detail;
// @ts-expect-error
error.problem!["own"].length;
// @ts-expect-error
pending.state = "paused";
// @ts-expect-error
if (pending.state === "gone") console.log();
// @ts-expect-error One of both is undefined.
recovered.response.status;
// @ts-expect-error
recovered.error.code;
// @ts-expect-error
paused.resume("now");
// @ts-expect-error
paused.cancel();
// @ts-expect-error
const code: ProtocolCode = "gave-up";
// @ts-expect-error
const own: ClientCode = "cancelled";
// @ts-expect-error
const options: Options = { url, timeout: 5 };

if (error instanceof OutcomeUnknownError) {
  // @ts-expect-error
  error.outcome;
}
console.log(init, isKnown, code, own, options, Own);
// @ts-expect-error
semel.addEventListener("attempt", ({ detail }) => console.log(detail.status));
// @ts-expect-error A snapshot never changes.
semel.getSnapshot().pending = 1;
// @ts-expect-error
await Semel.open({ url: "https://api.example.com", ids: "own" });
// @ts-expect-error A session has a name.
await semel.session("accounts/a");
const session = await semel.session("accounts/a", "till-3");
// @ts-expect-error Its requests have places, and no ids.
await session.fetch("/accounts/a/deposit", { method: "POST", id: "order-7" });
// @ts-expect-error
session.epoch = 7;
