// What an application does in a play while it is called: in an event, `onpaused`, `headers`, or its store. It closes the outbox, gives up, calls, or
// asks.

import { ask, idOf, makeCall } from "./play-calls.mjs";

/** Once there are this many calls, none is made from within callbacks. */
const CALLS_MAX = 200;
export const EVENTS = ["attempt", "lost", "refused", "settled", "recovered", "stalled", "online", "offline"];

export function close({ page, semel }) {
  // The store may still be asked for something.
  page.isClosing = true;
  page.run(() => semel.close());
  page.isClosed = true;
}

/** Does something random in `tab`, from within the callback `where`. */
export function actsWithin(world, oracle, tab, where) {
  const { page, semel, dials, onrecovered } = tab;
  if (!semel || page.isClosing || page.isClosed || page.isGone || !world.happens(dials.acts)) return;
  const open = oracle.calls.filter((call) => call.page === page && call.abort && !call.isOver);
  const act = world.oneOf("closes", "closes", "gives up", "gives up", "gives up", "gives up and closes", "gives up and closes", "gives all up", "calls", "asks", "asks and leaves", "resumes", "lists", "takes", "takes nothing");
  world.says(`${tab.name} ${act}, from within ${where}`);
  const givesUp = () => open.length && world.oneOf(...open).abort();
  const closes = () => close(tab);
  const ACT = {
    closes,
    "gives up": givesUp,
    "gives up and closes": () => {
      givesUp();
      closes();
    },
    "gives all up": () => open.forEach((call) => call.abort()),
    calls: () => oracle.calls.length < CALLS_MAX && makeCall(world, oracle, tab),
    asks: () => ask(world, oracle, tab, idOf(world, dials)),
    "asks and leaves": () => ask(world, oracle, tab, idOf(world, dials), true),
    resumes: () => semel.resume(),
    lists: () => semel.pending().then((all) => oracle.lists(tab.name, all)).catch(() => {}),
    takes: () => (semel.onrecovered = onrecovered),
    "takes nothing": () => (semel.onrecovered = null),
  };
  page.run(ACT[act]);
}
