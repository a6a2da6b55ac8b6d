// Has the Worker that it is in be delivered to, as a queue does it.

/** What JSON can't hold is named, and made here. */
const BODIES = { bytes: () => new TextEncoder().encode("caf\u00e9").buffer, map: () => new Map([["till", "x"]]), set: () => ({ till: "x", items: [new Set([1])] }), nan: () => ({ till: "x", items: [Number.NaN] }), date: () => ({ at: new Date(0) }) };

/** Delivers as the platform does; resolves to what became of each message. */
export async function deliver(request, env) {
  const { queue, messages } = await request.json();
  const made = messages.map(({ made, body, timestamp, ...rest }) => ({ ...rest, timestamp: new Date(timestamp), body: made === undefined ? body : BODIES[made]() }));
  return Response.json(await env.SELF.queue(queue, made));
}
