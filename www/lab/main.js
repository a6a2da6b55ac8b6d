// The chaos lab: puts its parts together, and keeps the page up to date.
//
// Invariants:
// - The page shows what the journal and the server have, never what it hopes for.
// - It is drawn at most once in `DRAW_MS`, however much happens.

import { Plot } from "../view/plot.js";
import { allowKill, bindSettings } from "../view/controls.js";
import { $, counted, dollars, say } from "../view/element.js";
import { showScore } from "../view/score.js";
import { Timeline, showCounts } from "../view/timeline.js";
import { makeNaive, makeSemel } from "./clients.js";
import { nameOf, openJournal } from "./journal.js";
import { CLICKS_MAX, RUN_CLICKS } from "./limits.js";
import { attemptsByClick, countsOf, totalsOf } from "./model.js";
import { makeNetwork } from "./network.js";
import { Run } from "./run.js";
import { scenarioOf } from "./scenario.js";
import { Referee } from "./server.js";

const DRAW_MS = 120;
/** How often the server is asked: while something goes on, and while nothing does. */
const [BUSY_MS, IDLE_MS] = [200, 2_000];
/** So long after the last change the dedup set may still move: acknowledgements go by themselves after 5 s. */
const SETTLES_MS = 12_000;
const ACCOUNT = "semel lab account";
const TABS = "semel lab tabs";
const FULL = `An account takes ${CLICKS_MAX} clicks: start over.`;

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const page = crypto.randomUUID();
const account = (localStorage[ACCOUNT] ??= `lab-${crypto.randomUUID().slice(0, 18)}`);
const tab = Number((sessionStorage[TABS] ??= localStorage[TABS] = Number(localStorage[TABS] ?? 0) + 1));

const asked = scenarioOf(location.hash);
const { settings } = asked;
const controls = bindSettings(settings);
const plot = new Plot();
const timeline = new Timeline();
const referee = new Referee(account);
const dirty = new Set();
let journal;
let semel;
let run;
let isDrawing = false;
let isOver = false;
let changedMs = Date.now();
/** What was announced last: a result is announced once. */
let announced = "";

start().catch((error) => {
  console.error(error);
  tell(`The lab can't start: ${error.message}. It needs IndexedDB and Web Locks, which a private window may lack.`);
});

async function start() {
  journal = await openJournal({ account, tab, page });
  journal.onchange = changed;
  for (const n of journal.clicks.keys()) dirty.add(n);
  for (const event of journal.events) showEvent(event);
  draw();
  const network = makeNetwork({ settings, record: (attempt) => journal.attempt(attempt), fetch: (...request) => fetch(...request) });
  const naive = makeNaive({ account, network, journal });
  semel = await makeSemel({ account, network, journal });
  run = await new Run({ account, page, journal, naive, semel, referee, kill: () => kill().catch(complain), crash }).enter();
  bindActions();
  performance.mark("lab-interactive");
  run.watch();
  follow();
  if (asked.run) await begin(asked.run);
  allowKill(await referee.canBeKilled());
}

function bindActions() {
  const on = (id, act) => {
    $(id).disabled = false;
    $(id).addEventListener("click", () => act().catch(complain));
  };
  on("deposit", async () => {
    if (!(await run.click())) tell(FULL);
  });
  on("run", () => begin({ total: RUN_CLICKS }));
  on("stop", () => journal.stopRun());
  on("crash", async () => crash());
  on("over", startOver);
  $("kill").addEventListener("click", () => kill().catch(complain));
  $("copy").addEventListener("click", copyLink);
  // A scenario that is followed on this page.
  addEventListener("hashchange", () => {
    const { settings: members, run: next } = scenarioOf(location.hash, settings);
    controls.set(members);
    if (next) begin(next).catch(complain);
  });
}

/** Starts a run of `total` clicks, with a crash of the page or the server after so many of them. */
async function begin({ total, kill, crash }) {
  if (journal.clicks.size >= CLICKS_MAX) return tell(FULL);
  if (!(await journal.startRun({ id: crypto.randomUUID(), total, made: 0, kill, crash }))) return tell("A run is going: stop it first.");
  await run.drive();
}

async function kill() {
  await referee.kill();
  await journal.event("kill");
}

function complain(error) {
  tell(`That did not work: ${error.message}.`);
}

/** All that the page has in memory is gone, and nobody was asked. */
function crash() {
  location.reload();
}

async function startOver() {
  isOver = true;
  localStorage[ACCOUNT] = `lab-${crypto.randomUUID().slice(0, 18)}`;
  journal.leave();
  await semel.semel.close();
  for (const name of [nameOf(account), `semel ${location.origin} ${account}`]) indexedDB.deleteDatabase(name);
  location.reload();
}

async function copyLink() {
  const link = `${location.origin}/${location.hash}&run=${RUN_CLICKS}`;
  await navigator.clipboard.writeText(link).then(
    () => tell("The link is on the clipboard. It sets the network so and makes 100 clicks."),
    () => tell(`The link is ${link}`),
  );
}

function changed(kind, value) {
  changedMs = Date.now();
  if (kind === "over") {
    isOver = true;
    return location.reload();
  }
  if (kind === "click") dirty.add(value.n);
  if (kind === "attempt") dirty.add(value.click);
  if (kind === "event") showEvent(value);
  if (kind === "run") run?.drive();
  drawSoon();
}

/** Asks the server, again and again. */
async function follow() {
  for (;;) {
    const known = referee.logged.size;
    const wasDown = referee.isDown;
    await referee.ask();
    if (isOver) return;
    if (referee.logged.size !== known) [...referee.logged.keys()].slice(known).forEach((id) => dirty.add(Number(id.split("-")[0])));
    const { records, tombstones } = referee.accounts.semel ?? {};
    if (records !== undefined && !referee.isDown) await journal.sample({ atMs: Date.now(), records, tombstones }).catch(() => {});
    if (wasDown && !referee.isDown) tell("The server is back.");
    // What was on its way may be known to be silent by now.
    for (const { click, fate } of journal.attempts.values()) if (fate === "sent") dirty.add(click);
    draw();
    await pause(isBusy() ? BUSY_MS : IDLE_MS);
  }
}

function isBusy() {
  return Date.now() - changedMs < SETTLES_MS || [...journal.clicks.values()].some(({ naive, semel }) => naive === "waiting" || semel === "waiting");
}

function drawSoon() {
  if (isDrawing) return;
  isDrawing = true;
  setTimeout(() => {
    isDrawing = false;
    draw();
  }, DRAW_MS);
}

function draw() {
  const nowMs = Date.now();
  const { clicks, attempts, samples } = journal;
  for (const n of dirty) if (!clicks.has(n)) dirty.delete(n);
  timeline.show({ clicks, dirty, attempts: attemptsByClick(attempts.values()), logged: referee.logged, tab, nowMs });
  dirty.clear();
  showCounts(countsOf(attempts.values(), referee.logged, nowMs), referee.accounts);
  const totals = totalsOf(clicks.values(), referee);
  showScore(totals, referee);
  plot.show(samples, nowMs);
  showProgress();
  announce(totals);
}

function showProgress() {
  const { run: current } = journal;
  if (!current) return;
  const ofRun = [...journal.clicks.values()].filter((click) => click.ofRun === current.id);
  const answered = ofRun.filter((click) => click.semel !== "waiting").length;
  const isStopped = current.made === current.total;
  $("progress").max = current.total || 1;
  $("progress").value = answered;
  say($("progress-text"), `${current.made} of ${current.total} clicks made, ${answered} answered by Semel`);
  $("run").disabled = !isStopped || !run;
  $("stop").disabled = isStopped || !run;
}

/** Says the result once nothing is under way. */
function announce({ clicks, clicked, lanes: { naive, semel } }) {
  if (clicks === 0 || !naive.isSettled || !semel.isSettled) return;
  if (journal.run?.made < journal.run?.total) return;
  const result = ({ balance, difference }) => `${dollars.format(balance)}, ${difference === 0 ? "exact" : `${dollars.format(Math.abs(difference))} ${difference > 0 ? "too much" : "missing"}`}`;
  const text = `${counted(clicks, "deposit")}, ${dollars.format(clicked)}: fetch with retries has ${result(naive)}; semel.fetch has ${result(semel)}.`;
  if (text !== announced) tell(text);
  announced = text;
}

function showEvent(event) {
  const text = textOf(event);
  timeline.tell({ ...event, text });
  if (event.page === page) tell(text);
}

function textOf({ kind, naive, semel, from, tab: by }) {
  if (kind === "kill") return "The server was killed, and starts again in a second.";
  const page = from === by ? `Tab ${by} was loaded again` : `Tab ${from} is gone, and tab ${by} goes on`;
  return `${page}: ${counted(semel, "deposit")} unfinished. Semel goes on with ${semel === 1 ? "it" : "them"}; fetch with retries has forgotten its ${naive}.`;
}

function tell(text) {
  say($("told"), text);
}
