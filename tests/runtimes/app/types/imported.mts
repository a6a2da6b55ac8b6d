import { OutcomeUnknownError, Semel, SemelError, type Options } from "semel";
import { Semel as Inline } from "semel/inline";

const options: Options = { url: "https://worker.test", durability: "memory" };
const outboxes: Semel[] = [await Semel.open(options), await Inline.open(options)];
const answers: Response[] = await Promise.all(outboxes.map((outbox) => outbox.fetch("/orders", { method: "POST", key: "orders" })));
const unknown: SemelError | undefined = answers.find((answer) => answer instanceof OutcomeUnknownError);
export const executed: "no" | "yes" | "unknown" | undefined = unknown?.executed;

// @ts-expect-error there is no such option
await Semel.open({ url: "https://worker.test", durable: true });
// @ts-expect-error nor such a class
export type { Outbox } from "semel";
