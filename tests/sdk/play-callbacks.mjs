// What an application does in a play from within what calls it: an event, `onpaused`, `headers`, its store. It closes the outbox there, gives up, calls, asks.

import { ask, idOf, makeCall } from "./play-calls.mjs";

/** More calls than these are not made again. */
const CALLS_MAX = 200;
export const EVENTS = ["attempt", "lost", "refused", "settled", "recovered", "stalled", "online", "offline"];

export function close({ page, semel }) {
  // Its store may be asked for something yet.
  page.isClosing = true;
  page.run(() => semel.close());
  page.isClosed = true;
}

/** Something in `tab`, as chance has it, from within `where`. */
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
