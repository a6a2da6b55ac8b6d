// A Worker that calls another one with the SDK. All of it must compile.

import { OutcomeUnknownError, Semel } from "semel";

export async function order(url: string, token: string): Promise<number | undefined> {
  const semel = await Semel.open({ url, durability: "memory", headers: () => ({ authorization: `Bearer ${token}` }), fetch });
  semel.addEventListener("lost", ({ detail }) => console.warn(detail.url, detail.error), { once: true });
  semel.addEventListener("online", { handleEvent: ({ type }) => console.log(type) });
  // @ts-expect-error: there is no such event.
  semel.addEventListener("answered", () => {});
  try {
    const answer: Response = await semel.fetch("/orders", { method: "POST", body: "{}" });
    return answer.status;
  } catch (error) {
    if (error instanceof OutcomeUnknownError) return undefined;
    throw error;
  } finally {
    await semel.close();
  }
}
