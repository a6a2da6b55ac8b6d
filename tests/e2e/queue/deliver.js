// Delivers messages to the Worker that this module is in, as a queue does.

/** Bodies that JSON can't hold. The request names them, and they are made here. */
const BODIES = { bytes: () => new TextEncoder().encode("caf\u00e9").buffer, map: () => new Map([["till", "x"]]), set: () => ({ till: "x", items: [new Set([1])] }), nan: () => ({ till: "x", items: [Number.NaN] }), date: () => ({ at: new Date(0) }) };

/** Delivers as the platform does. Resolves to what became of each message. */
export async function deliver(request, env) {
  const { queue, messages } = await request.json();
  const made = messages.map(({ made, body, timestamp, ...rest }) => ({ ...rest, timestamp: new Date(timestamp), body: made === undefined ? body : BODIES[made]() }));
  return Response.json(await env.SELF.queue(queue, made));
}
