import { Semel, SemelError } from "semel";

const semel = await Semel.open({ url: new URL("https://worker.test"), durability: "memory", headers: async () => ({ authorization: "Bearer t" }) });
const answer: Response = await semel.fetch(new Request("https://worker.test/orders", { method: "POST" }), { key: "orders", signal: AbortSignal.timeout(5_000) });
semel.addEventListener("settled", (event) => console.log(event.detail.requestId, answer.status));
semel.onrecovered = ({ error }) => console.log(error instanceof SemelError && error.code === "cancelled");

// @ts-expect-error headers can't be a number
await Semel.open({ url: "https://worker.test", headers: 5 });
