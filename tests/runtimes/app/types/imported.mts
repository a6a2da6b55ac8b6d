import { OutcomeUnknownError, Semel, SemelError, type Options, type Store, StoreError } from "semel";
import { type Check, conformance } from "semel/conformance";
import { type FileStore, fileStore } from "semel/file";
import { Semel as Inline } from "semel/inline";

const options: Options = { url: "https://worker.test", durability: "memory" };
const outboxes: Semel[] = [await Semel.open(options), await Inline.open(options)];
const answers: Response[] = await Promise.all(outboxes.map((outbox) => outbox.fetch("/orders", { method: "POST", key: "orders" })));
const unknown: SemelError | undefined = answers.find((answer) => answer instanceof OutcomeUnknownError);
export const executed: "no" | "yes" | "unknown" | undefined = unknown?.executed;

const store: FileStore = fileStore("outbox", { busyMs: 5_000 });
const durable: Semel = await Semel.open({ ...options, store }).catch((error: unknown) => {
  throw error instanceof StoreError && error.code === "store-blocked" ? new Error("busy") : error;
});
const living: string[] = await store.presence("owner").alive();
const checks: Check[] = conformance((name: string): Store => fileStore(name), { shares: true, reopens: undefined });
await Promise.all([durable.close(), store.close(), ...checks.map((check) => check.run())]);
console.log(living.length);

// @ts-expect-error there is no such option
await Semel.open({ url: "https://worker.test", durable: true });
// @ts-expect-error there is no such class
export type { Outbox } from "semel";
// @ts-expect-error a folder is a path, not a URL
fileStore(new URL("file:///outbox"));
// @ts-expect-error `semel` exports this class, `semel/file` doesn't
export type { StoreError as FileStoreError } from "semel/file";
