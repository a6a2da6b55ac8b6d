// What an application may write. All of it must compile.

import {
  CancelledError,
  type ClientCode,
  type Executed,
  FencedError,
  GaveUpError,
  type Init,
  type Options,
  OutcomeUnknownError,
  type Paused,
  type Pending,
  type Presence,
  type Problem,
  type ProtocolCode,
  type Recovered,
  type Retry,
  Semel,
  SemelError,
  type Session,
  type Snapshot,
  type Store,
  type StoreCode,
  StoreError,
} from "../../../sdk/npm/index.js";

let token = "";

const semel: Semel = await Semel.open({
  url: "https://api.example.com",
  identity: "alice",
  headers: async () => ({ authorization: `Bearer ${token}` }),
  onpaused: (paused) => {
    token = "new";
    paused.resume();
  },
  onrecovered: ({ response, error }) => console.log(response?.status, error?.code),
});

// With the fewest options, and with every option.
await Semel.open({ url: new URL("https://api.example.com") });
const store: Store = {
  load: async () => [["id", new Uint8Array()]],
  change: async (_id, to) => {
    const row: Uint8Array | undefined | null = to(undefined);
    console.log(row);
  },
  remove: async (ids: string[]) => console.log(ids),
};
const presence: Presence = { alive: async () => ["owner"], leave: () => {} };
const options: Options = {
  url: "https://api.example.com",
  identity: "",
  headers: [["x-a", "1"]],
  retryIntervalMs: 10,
  attemptTimeoutMs: 100,
  giveUpAfterMs: Infinity,
  fetch: globalThis.fetch,
  store: { ...store, close: () => {}, presence: (owner: string) => ({ ...presence, alive: async () => [owner] }) },
  durability: "relaxed",
  onrecovered: null,
  onpaused: null,
};
await Semel.open({ ...options, headers: new Headers(), fetch: async (_input, _init) => new Response() });
// The SDK passes no more than these types: a `fetch` that takes no `URL` will do, and need not have the other members of the runtime's.
const plain = async (input: string | Request, { method, signal }: RequestInit): Promise<Response> => new Response(`${method} ${input} ${signal?.aborted}`);
await Semel.open({ ...options, fetch: plain });
await Semel.open({ ...options, headers: () => new Headers(), store: { ...store, close: async () => {} }, durability: "memory" });

// Like `fetch`.
const asFetch: typeof fetch = (input, init) => semel.fetch(input, init);
const init: Init = { method: "POST", body: JSON.stringify({ amount: 5 }), key: "accounts/alice", signal: AbortSignal.timeout(5_000) };
const response: Response = await semel.fetch("/accounts/alice/deposit", init);
const body: { balance: number } = await response.json();
await asFetch(new URL("https://api.example.com/accounts/alice"));
const given: { fetch: typeof fetch } = { fetch: semel.fetch };
await given.fetch("/accounts/alice");
await semel.fetch(new Request("https://api.example.com/things", { method: "POST" }), { key: "things" });
console.log(body.balance);

try {
  await semel.fetch("/things", { method: "DELETE", headers: { "x-a": "1" } });
} catch (error) {
  if (error instanceof OutcomeUnknownError) {
    const executed: Executed = error.executed;
    console.log(executed, error.requestId);
  } else if (error instanceof SemelError) {
    const isError: Error = error;
    const retry: Retry = error.retry;
    const code: string = error.code;
    const problem: Problem | undefined = error.problem;
    // The known codes are suggested; others may come.
    switch (error.code) {
      case "cancelled":
      case "outbox-full":
      case "a-code-of-a-newer-server":
        break;
    }
    console.log(isError.name, retry, code, problem?.detail?.length, problem?.["of-its-own"]);
  }
}

await Semel.open({ url: "https://api.example.com" }).catch((thrown: unknown) => {
  if (!(thrown instanceof StoreError)) throw thrown;
  const code: StoreCode = thrown.code;
  console.log(code === "store-full", thrown.cause);
});

// An outbox is an `EventTarget`.
const target: EventTarget = semel;
console.log(target.dispatchEvent(new Event("offline")));
semel.addEventListener("settled", ({ detail }) => console.log(detail.status), { once: true });

const pending: Pending[] = await semel.pending();
for (const { requestId, method, url, attempts, state } of pending) {
  const known: "sending" | "paused" | "answered" | "elsewhere" = state;
  console.log(requestId.length, method, url, attempts.toFixed(), known);
}

semel.onrecovered = async ({ requestId, method, url, response: outcome, error }: Recovered) => {
  const failure: SemelError | undefined = error;
  console.log(requestId, method, url, await outcome?.text(), failure);
};
// Either `response` or `error` is there, and knowing one tells the other's type.
semel.onrecovered = ({ response: outcome, error }) => {
  const said: number | string = outcome ? outcome.status : error.code;
  console.log(said);
};
semel.addEventListener("recovered", ({ detail: { status, error } }) => {
  const said: number | string = error === undefined ? status : error.code;
  console.log(said);
});
semel.onpaused = ({ requestId, method, url, error, resume, giveUp }: Paused) => {
  console.log(requestId, method, url, error.executed, resume);
  giveUp();
};
semel.onrecovered = null;
semel.onpaused = null;
semel.resume();
const closed: void = await semel.close();
console.log(closed);

// Every code has a name.
const codes: Array<ProtocolCode | ClientCode> = ["key-missing", "unavailable", "gave-up"];
const executed: Record<Executed, Retry> = { no: "never", yes: "same-id", unknown: "after-fix" };
console.log(codes, executed);

// Sessions.
const session: Session = await semel.session("accounts/a", "till-3", { after: 0, transport: "auto", onrecovered: ({ response }) => console.log(response?.status) });
console.log(session.key, session.name, session.epoch + session.lastSeq);
session.onended = ({ code, executed }: SemelError) => console.log(code, executed);
session.onpaused = ({ error, giveUp }: Paused) => (error instanceof FencedError ? giveUp() : session.resume());
session.onrecovered = null;
const answers: Response[] = await Promise.all([session.fetch("/accounts/a/deposit", { method: "POST", signal: AbortSignal.timeout(1_000) }), session.fetch("/accounts/a")]);
console.log(answers.length);
await session.close();

// An option that is undefined counts as not given.
declare const maybe: { identity: string | undefined; key: string | undefined; store: Store | undefined; signal: AbortSignal | undefined; after: number | undefined };
await Semel.open({ url: "https://api.example.com", identity: maybe.identity, store: maybe.store, headers: undefined, giveUpAfterMs: undefined, onrecovered: undefined, onstorelost: undefined });
await semel.fetch("/things", { method: "POST", key: maybe.key, id: undefined, salt: undefined, ordered: undefined });
await semel.outcome("order-7", { signal: maybe.signal });
await semel.session("accounts/a", "till-3", { after: maybe.after, store: maybe.store, transport: undefined, onended: undefined });

// Ids, asking for outcomes, showing.
await Semel.open({ ...options, ids: "hash", salt: () => Math.floor(Date.now() / 60_000), maxPending: 5, maxAttempts: 2, ordered: false, onstorelost: () => {} });
await semel.fetch("/orders", { method: "POST", body: new ReadableStream(), id: "order-7", salt: "x", ordered: false });
const later: Response = await semel.outcome("order-7", { signal: AbortSignal.timeout(1_000) });
console.log(later.status);
const stop: () => void = semel.subscribe(({ pending, paused, online }) => console.log(pending + paused, online));
stop();
const snapshot: Snapshot = semel.getSnapshot();
console.log(snapshot.pending);
semel.addEventListener("settled", ({ detail }) => console.log(detail.requestId, detail.status, detail.error?.code));
semel.addEventListener("offline", (event) => console.log(event.type), { once: true });
semel.addEventListener("closed", ({ detail }) => console.log(detail.error));
try {
  await semel.fetch("/orders", { method: "POST" });
} catch (error) {
  if (error instanceof CancelledError || error instanceof GaveUpError) console.log(error.executed);
  if (error instanceof OutcomeUnknownError) console.log(error.requestId);
}
