// Turns what the page recorded and what the server logged into what is shown.
//
// Invariants:
// - The server's log decides what became of an attempt. Until it is known, what the page saw counts.
// - Nothing is shown as executed that the server has not executed.

import { fateByStatus } from "./network.js";
import { AMOUNT, SILENT_MS_MAX } from "./limits.js";

/** From this number in a row, attempts with the same fate are drawn as one mark. */
const ROW_MIN = 4;

/** What each fate is called. An attempt of the naive client that is executed once more is `again`. */
export const FATES = {
  sent: { title: "sent", detail: "on its way" },
  lost: { title: "lost", detail: "did not reach the server" },
  executed: { title: "executed", detail: "the server made the deposit" },
  again: { title: "executed again", detail: "the server made the same deposit once more" },
  replayed: { title: "replayed", detail: "the server gave its first answer again" },
  late: { title: "late", detail: "came after its deadline, so it was not executed" },
  refused: { title: "refused", detail: "the server refused it" },
};

const LOST_BECAUSE = { request: "lost on the way", offline: "offline", server: "the server was down", busy: "the connection was busy" };

/** What became of an attempt: `{ id, fate, status, isUnheard, isCopy, why, startMs, endMs }`. `isUnheard`: its answer reached nobody. */
export function outcomeOf(attempt, logged, nowMs) {
  const status = logged.get(attempt.id);
  const isSilent = nowMs - attempt.sentMs > SILENT_MS_MAX;
  let fate = attempt.fate;
  if (status !== undefined) fate = fateByStatus(status);
  else if (fate === "sent" && isSilent) fate = "lost";
  const isUnheard = fate !== "sent" && fate !== "lost" && (attempt.answer === "lost" || (attempt.answer === "waiting" && isSilent));
  return { id: attempt.id, fate, status, isUnheard, isCopy: attempt.isCopy, why: attempt.why, startMs: attempt.sentMs, endMs: attempt.endMs };
}

/** Attempts of one click by lane, in the order in which they were sent; a copy comes after its original. */
export function byLane(attempts) {
  const lanes = { naive: [], semel: [] };
  for (const attempt of attempts) lanes[attempt.lane].push(attempt);
  for (const lane of Object.values(lanes)) lane.sort((one, other) => one.sentMs - other.sentMs || one.isCopy - other.isCopy);
  return lanes;
}

/** What is drawn for a click in one lane: its marks, how often it was executed, and the result. */
export function laneOf(click, lane, attempts, logged, nowMs) {
  const outcomes = attempts.map((attempt) => outcomeOf(attempt, logged, nowMs));
  let executed = 0;
  for (const outcome of outcomes) {
    if (outcome.fate !== "executed") continue;
    executed += 1;
    if (executed > 1) outcome.fate = "again";
  }
  return { marks: inRows(outcomes.map((outcome) => ({ ...outcome, text: textOf(outcome), count: 1 }))), executed, result: resultOf(click[lane], executed) };
}

/** Replaces a row of marks with the same fate by one mark with a count. */
function inRows(marks) {
  const rows = [];
  for (let from = 0; from < marks.length; ) {
    let to = from + 1;
    while (to < marks.length && marks[to].fate === marks[from].fate && marks[to].isUnheard === marks[from].isUnheard) to += 1;
    if (to - from >= ROW_MIN) {
      const row = marks.slice(from, to);
      rows.push({ ...row[0], endMs: row.at(-1).endMs, isCopy: row.every(({ isCopy }) => isCopy), ids: row.map(({ id }) => id), count: row.length, text: textOfRow(row) });
    } else rows.push(...marks.slice(from, to).map((mark) => ({ ...mark, ids: [mark.id] })));
    from = to;
  }
  return rows;
}

/** The texts of a row, each with its count: marks with the same fate may have different texts. */
function textOfRow(row) {
  const counts = new Map();
  for (const { text } of row) counts.set(text, (counts.get(text) ?? 0) + 1);
  return [...counts].map(([text, count]) => (count === 1 ? `once ${text}` : `${count} times ${text}`)).join("; ");
}

function textOf({ fate, isUnheard, isCopy, why }) {
  const words = [FATES[fate].title];
  if (fate === "lost" && why) words.push(LOST_BECAUSE[why]);
  if (isCopy) words.push("a copy that the network made");
  else if (isUnheard) words.push("its answer was lost");
  return words.join(", ");
}

/** The result of a click in one lane: `{ kind, text }`. */
function resultOf(state, executed) {
  const over = (executed - 1) * AMOUNT;
  const times = executed === 2 ? "twice" : `${executed} times`;
  if (executed > 1) return { kind: "wrong", text: `${times}: +$${over}` };
  if (state === "waiting") return { kind: "open", text: executed === 1 ? "once, unanswered" : "under way" };
  if (state === "forgotten") return executed === 1 ? { kind: "open", text: "once, forgotten" } : { kind: "wrong", text: `never: −$${AMOUNT}` };
  if (state === "answered") return executed === 1 ? { kind: "right", text: "once" } : { kind: "open", text: "answered" };
  return { kind: "wrong", text: state };
}

/** The fates of attempts that reached the server. */
export const COUNTED = ["executed", "replayed", "late", "refused"];

/**
 * The totals of the accounts: `{ clicks, clicked, answered, lanes: { naive, semel } }`, money in dollars. A lane is settled once none of its clicks
 * is waiting, nothing in it is on its way, and the server was asked after the last of both.
 */
export function totalsOf(clicks, { accounts, asOfMs }, counts) {
  const all = [...clicks];
  const clicked = all.length * AMOUNT;
  const lane = (name) => {
    const open = all.filter((click) => click[name] === "waiting" || click[name] === "paused").length;
    const forgotten = all.filter((click) => click[name] === "forgotten").length;
    const isSettled = open === 0 && counts[name].sent === 0 && counts[name].endMs < asOfMs && all.every((click) => (click[`${name}Ms`] ?? click.atMs) < asOfMs);
    const balance = accounts[name]?.balance;
    return { balance, open, forgotten, isSettled, difference: balance === undefined ? undefined : balance - clicked };
  };
  const answered = all.filter(({ semel }) => semel === "answered").length;
  return { clicks: all.length, clicked, answered, lanes: { naive: lane("naive"), semel: lane("semel") } };
}

/** For each lane: how many attempts are on their way, when the last one ended, and how many of each fate reached the server, as drawn and as logged. */
export function countsOf(attempts, logged, nowMs) {
  const none = () => Object.fromEntries(COUNTED.map((fate) => [fate, 0]));
  const lane = () => ({ sent: 0, endMs: -Infinity, drawn: none(), logged: none() });
  const counts = { naive: lane(), semel: lane() };
  for (const attempt of attempts) {
    const { fate } = outcomeOf(attempt, logged, nowMs);
    const lane = counts[attempt.lane];
    lane.endMs = Math.max(lane.endMs, attempt.endMs ?? lane.endMs);
    if (fate === "sent") lane.sent += 1;
    else if (fate !== "lost") lane.drawn[fate] += 1;
  }
  for (const [id, status] of logged) {
    const lane = counts[id.split("-")[1]];
    if (lane) lane.logged[fateByStatus(status)] += 1;
  }
  return counts;
}
