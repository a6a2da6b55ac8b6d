// The calls of a play of an outbox: with one of a few ids or without, by this tab or another; some are aborted, and some are asked for.

/** Once there are this many calls, none is made again. */
const CALLS_MAX = 300;
/** Where calls go: path and key. The second path leads to the key of the first. */
export const PLACES = [
  ["/accounts/a/deposit", undefined],
  ["/accounts/a/deposit", "accounts/a"],
  ["/accounts/a/withdraw", "accounts/a"],
  ["/accounts/b/deposit", undefined],
  ["/orders", "free"],
  ["/orders", "free"],
];
export const OWN = [["/accounts/a/deposit", "accounts/a"], ["/accounts/a/deposit", "accounts/a"], ["/accounts/a/withdraw", undefined]];
export const idOf = (world, { many }) => `id-${world.below(many)}`;

/** This tab, or another one that is running. */
export function anyOf(world, tab) {
  const others = tab.tabs.filter(({ page }) => !page.isGone && !page.isFrozen && !page.isClosed);
  return others.length === 0 || (others.includes(tab) && world.below(2)) ? tab : world.oneOf(...others);
}

/** Makes a call, with one of a few ids, or without an id, and then with a body of its own. */
export function makeCall(world, oracle, tab, isOwn = world.happens(tab.dials.own), given = {}) {
  const { name, page, semel, giveUpAfterMs, identity, dials } = tab;
  const { id = isOwn ? idOf(world, dials) : undefined } = given;
  const { place: [path, key] = world.oneOf(...(isOwn ? dials.places : PLACES)), ordered = world.below(10) < 6 } = given;
  // If ids are hashes, calls for the same thing have the same id.
  const isHashed = !isOwn && dials.ids === "hash";
  const { body = isOwn ? `${id} ${world.below(2)}` : isHashed ? `hashed ${world.below(4)}` : `call-${oracle.calls.length}` } = given;
  const salt = isHashed ? world.oneOf(undefined, 1, () => (page.calls("salt"), Math.floor(Date.now() / 200))) : undefined;
  const call = { tab: name, page, identity, id, isHashed, path, key, body, ordered, giveUpAfterMs, madeMs: world.time.ms, thaws: page.thaws, what: `${name}'s ${id} ${path} ${body}` };
  const aborting = new AbortController();
  call.abort = () => {
    call.abortedMs ??= world.time.ms;
    oracle.givesUp(call);
    page.run(() => aborting.abort());
  };
  oracle.calls.push(call);
  world.says(`${name} calls ${id} ${path} ${key} ${body} ${ordered ? "in order" : ""}`);
  page.run(async () => {
    if (world.happens(dials.aborts)) setTimeout(call.abort, world.below(world.oneOf(1, 40, 300)));
    try {
      await oracle.answers(call, await semel.fetch(path, { method: "POST", body: bodyOf(world, body), ordered, key, salt, signal: aborting.signal, ...(id && { id }) }));
      world.says(`${call.what} is answered`);
    } catch (error) {
      call.error = error;
      world.says(`${call.what} is told ${error.code ?? error}, executed: ${error.executed}, ${error.requestId}`);
    }
    [call.isOver, call.endedMs] = [true, world.time.ms];
    if (isOwn && oracle.calls.length < CALLS_MAX && world.happens(dials.again)) makeCall(world, oracle, anyOf(world, tab), true, { id });
  });
  return call;
}

/** A text, or a stream that takes some time or breaks off. */
function bodyOf(world, body) {
  if (!world.happens(0.2)) return body;
  const parts = [body.slice(0, 3), body.slice(3)];
  return new ReadableStream({
    async pull(into) {
      await world.pass(15);
      if (world.happens(0.1)) return into.error(new Error("the file is gone"));
      const part = parts.shift();
      return part === undefined ? into.close() : into.enqueue(new TextEncoder().encode(part));
    },
  });
}

/** Asks for an outcome. `leaves`: the question is aborted at once. */
export function ask(world, oracle, { name, page, semel, identity }, id, leaves = false) {
  const call = { page, identity, id, isAsking: true, what: `${name} who asks for ${id}` };
  oracle.calls.push(call);
  world.says(call.what);
  page.run(async () => {
    const aborting = new AbortController();
    if (world.happens(0.2)) setTimeout(() => aborting.abort(), world.below(40));
    try {
      const answer = semel.outcome(id, { signal: aborting.signal });
      if (leaves) aborting.abort();
      await oracle.takes(call, id, await answer);
    } catch (error) {
      call.asked = error;
      world.says(`${call.what} is told ${error.code ?? error}, executed: ${error.executed}`);
    }
    call.isOver = true;
  });
}
