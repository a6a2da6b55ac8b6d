// Explains an error to a person: what went wrong, and what to do about it. For the inspector and the command line.

import { OF_EITHER, TOO_OLD } from "./api.js";

/** `[what, advice]` by code. The server explains any other code itself. */
const ADVICE = {
  __proto__: null,
  unauthorized: ["The administration token was refused.", "Give the value of SEMEL_ADMIN_TOKEN of this deployment. Where that secret is not set, nobody administers it."],
  forbidden: ["This token is not the administrator's.", "It is valid for a user, and users may not look here. Give the value of SEMEL_ADMIN_TOKEN of this deployment."],
  "not-found": ["There is no such key here.", "It may have been deleted, or never used. A key is named exactly, with upper and lower case. A key that is of a path has no first slash, and nothing in it is escaped."],
  "not-seen": ["This key knows no such id.", "It may never have arrived, or its record has lapsed or was deleted. Ids are compared exactly."],
  "effect-gone": ["This request neither waits here nor is parked any more.", "It may have arrived meanwhile, or somebody else has dealt with it. Look again."],
  "forget-gone": ["There is no forget with this id here.", "Of those that are done, only the last hundred are kept. This one may be older, or belong to another deployment."],
  // Its message already says what happened.
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

/** What is said of a change that was asked for before, if the code may be about that change or about the request that it names. */
const ofEither = ({ code }) => [
  `The server says “${code}”. That is either about the request that is named, or about this change, which may then have been made already.`,
  "Look at what it was to change, to see whether it was made.",
];

/** What is said of a new change that is refused as too old: a fence counts whole seconds, and may be ahead of the clock if a client's clock was. */
const TOO_SOON = ["The key was deleted a moment ago, or was just told to forget. It refuses what was asked for before that.", "Try again in a moment."];

/** Returns `{ what, advice, outcome }`: what happened, what to do, and, for a change, whether it was made. `advice` and `outcome` may be undefined. */
export function explain(error, isChange = false) {
  const isOfEither = isChange && error.executed === "unknown" && OF_EITHER.includes(error.code);
  const isTooSoon = isChange && error.executed === "no" && TOO_OLD.includes(error.code);
  const [what = sentence(error.message), advice] = isOfEither ? ofEither(error) : isTooSoon ? TOO_SOON : (ADVICE[error.code] ?? []);
  // Sending again is no use if the refusal is final.
  const safe = error.isDefinitive ? "" : " It is safe to send the same change again: it happens only once.";
  const outcomes = { no: "Nothing was changed.", unknown: `It can't be known whether the change was made.${safe}` };
  return { what, advice, outcome: isChange ? outcomes[error.executed] : undefined };
}

/** A message as a sentence: with a capital, and a full stop. */
export function sentence(text) {
  const begun = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?]$/.test(begun) ? begun : `${begun}.`;
}
