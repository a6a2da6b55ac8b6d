import semel = require("semel");
import checks = require("semel/conformance");
import file = require("semel/file");
import inline = require("semel/inline");

const options: semel.Options = { url: "https://worker.test", durability: "memory" };

export async function order(): Promise<Response[]> {
  const outboxes: semel.Semel[] = [await semel.Semel.open(options), await inline.Semel.open(options)];
  return Promise.all(outboxes.map((outbox) => outbox.fetch("/orders", { method: "POST", key: "orders" })));
}

export const isUnknown = (error: unknown): error is semel.SemelError => error instanceof inline.OutcomeUnknownError;

export const durable = (folder: string): Promise<semel.Semel> => semel.Semel.open({ ...options, store: file.fileStore(folder) });
export const all: checks.Check[] = checks.conformance((name): file.FileStore => file.fileStore(name));

// @ts-expect-error there is no such option
export const wrong = semel.Semel.open({ url: "https://worker.test", durable: true });
// @ts-expect-error the package has no default export
export const missing = semel.default;
