// What went wrong, in words for a person, and what to do about it. For the inspector and the command line.

import { OF_EITHER, TOO_OLD } from "./api.js";

/** By code; a code that is not here is the server's to explain, and it does. */
const ADVICE = {
  __proto__: null,
  unauthorized: ["The administration token was refused.", "Give the value of SEMEL_ADMIN_TOKEN of this deployment. Where that secret is not set, nobody administers it."],
  forbidden: ["This token is not the administrator's.", "It is valid for a user, and users may not look here. Give the value of SEMEL_ADMIN_TOKEN of this deployment."],
  "not-found": ["There is no such key here.", "It may have been deleted, or never used. A key is named exactly, with upper and lower case."],
  "not-seen": ["This key knows no such id.", "It may never have arrived, or its record has lapsed or was deleted. Ids are compared exactly."],
  "effect-gone": ["It does not wait here any more, nor is it parked.", "It has arrived meanwhile, or somebody else has mended it. Look again."],
  "forget-gone": ["There is no such forget here.", "Of those that are done, the last hundred are kept: it may be an older one, or another deployment's."],
  // What it says of itself has why.
  "no-network": [undefined, "Check the address and the network, then try again."],
  "no-answer": ["No Semel deployment answered.", "It may be starting or overloaded, or a proxy answers in its place. Try again in a moment."],
  unavailable: ["The server is not available at the moment.", "Try again. If it stays so, look at its log: a setting may be unreadable, or the tables of a key newer than the code."],
  locked: ["A request of this key is under way to the upstream.", "Try again when it has ended: then it has an outcome, or nobody is asking any more."],
  "rate-limited": ["Too many requests.", "Wait a moment, then try again."],
  "in-flight": ["This request is running at this moment.", "Try again when it has ended."],
  "outcome-unknown": ["This request is in doubt: it can't be known whether it ran.", "Find out at the other side whether it has had its effect, then resolve it."],
  acknowledged: ["The client has acknowledged this request: it ran, and can't be cancelled.", undefined],
  "outcome-expired": ["This request is over, and its outcome is no longer kept.", undefined],
};

/** What is said of an earlier change where it may be of that, or of the request that it names. */
const ofEither = ({ code }) => [
  `The server says “${code}”: either of the request that is named, or of this change, which then may be made already.`,
  "Look at what it was to change: there it shows.",
];

/** What is said of a new change that is refused for its age: a fence is of whole seconds, and ahead of the clock where a client's was. */
const TOO_SOON = ["The key was deleted a moment ago, or has forgotten what was sent until now: it refuses what was asked for before that.", "Try again in a moment."];

/** `{ what, advice, outcome }`: what happened, what to do, and of a change whether it was made. `advice` may be undefined. */
export function explain(error, isChange = false) {
  const isOfEither = isChange && error.executed === "unknown" && OF_EITHER.includes(error.code);
  const isTooSoon = isChange && error.executed === "no" && TOO_OLD.includes(error.code);
  const [what = sentence(error.message), advice] = isOfEither ? ofEither(error) : isTooSoon ? TOO_SOON : (ADVICE[error.code] ?? []);
  // What is refused for good is so again.
  const safe = error.isDefinitive ? "" : " To send the same again is safe: it happens once.";
  const outcomes = { no: "Nothing was changed.", unknown: `It can't be known whether the change was made.${safe}` };
  return { what, advice, outcome: isChange ? outcomes[error.executed] : undefined };
}

/** A message as a sentence: with a capital, and a full stop. */
export function sentence(text) {
  const begun = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?]$/.test(begun) ? begun : `${begun}.`;
}
