// The chaos lab: connects its parts, and asks the server again and again.

import { Board } from "../view/board.js";
import { bindSettings, enable } from "../view/controls.js";
import { $, say } from "../view/element.js";
import { Actions } from "./actions.js";
import { makeNaive, makeSemel } from "./clients.js";
import { nameOf, openJournal } from "./journal.js";
import { makeNetwork } from "./network.js";
import { Run } from "./run.js";
import { scenarioOf } from "./scenario.js";
import { Referee } from "./server.js";

/** How often the server is asked: while something is under way, and while nothing is. */
const [BUSY_MS, IDLE_MS] = [200, 2_000];
/** For how long after the last change the dedup set may still change: acknowledgements are sent on their own after 5 s. */
const SETTLES_MS = 12_000;
/** How often the account is read while there are tombstones, because a later request removes them. */
const READ_MS = 10_000;
const FULL_LOG = "The server's log is full, so it does not say what becomes of further attempts. Start over.";
/** How many attempts go at a time. By HTTP/1.1 a browser has six connections to a server, and two are for the referee. */
const CONNECTIONS = { h2: 32, h3: 32, "http/1.1": 4 };
const ACCOUNT = "semel lab account";
const TABS = "semel lab tabs";

const newAccount = () => (localStorage[ACCOUNT] = `lab-${crypto.randomUUID().slice(0, 18)}`);
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

start().catch((error) => {
  console.error(error);
  say($("told"), `The lab can't start: ${error.message}. It needs storage and Web Locks, which a private window may lack.`);
});

async function start() {
  const { settings, run: asked } = scenarioOf(location.hash);
  const controls = bindSettings(settings);
  const account = localStorage[ACCOUNT] ?? newAccount();
  const [tab, page] = [await tabOf(account), crypto.randomUUID()];
  const referee = new Referee(account);
  const journal = await openJournal({ account, tab, page });
  // Whether another tab has started over. `localStorage` tells even if the message came before this tab listened.
  const isOver = () => journal.isOver || localStorage[ACCOUNT] !== account;
  if (!isOver() && (await isLost(journal, referee))) return startOver({ account, journal });
  if (isOver()) return location.reload();
  const board = new Board({ journal, referee, tab });
  let changedMs = Date.now();
  let run;
  journal.onchange = (kind, value) => {
    changedMs = Date.now();
    if (kind === "over") return reload();
    board.changed(kind, value, value.page === page);
    if (kind === "run") run?.drive();
  };
  const connections = CONNECTIONS[performance.getEntriesByType("navigation")[0]?.nextHopProtocol] ?? CONNECTIONS["http/1.1"];
  const network = makeNetwork({ settings, connections, record: (attempt) => journal.attempt(attempt), fetch: (...request) => fetch(...request) });
  const naive = makeNaive({ account, network, journal });
  const semel = await makeSemel({ account, network, journal });
  const tell = (text) => board.tell(text);
  const whenUp = () => referee.whenUp(() => tell("This page starts over as soon as there is a server to load it from."));
  const reload = () => whenUp().then(() => location.reload());
  run = new Run({ account, page, journal, naive, semel, referee, full: () => actions.full(), kill: () => actions.killOnTheWay(), crash: () => actions.crash() });
  const actions = new Actions({ journal, run, referee, controls, settings, tell, startOver: () => whenUp().then(() => startOver({ account, journal, semel: semel.semel })) });
  await run.enter();
  actions.bind();
  enable("run", true);
  performance.mark("lab-interactive");
  board.draw();
  run.watch();
  follow({ account, journal, referee, board, changedMs: () => changedMs });
  if (asked) await actions.begin(asked);
}

/**
 * Resolves to the number of this tab, which it holds while it exists. A duplicated tab inherits its twin's session storage, and gets another number.
 */
async function tabOf(account) {
  const hold = (number) =>
    new Promise((resolve, reject) => {
      const held = (lock) => {
        resolve(lock !== null);
        return lock && new Promise(() => {});
      };
      navigator.locks.request(`semel lab tab ${number}`, { ifAvailable: true }, held).catch(reject);
    });
  const number = Number(sessionStorage[account]);
  if (number && (await hold(number))) return number;
  for (;;) {
    const next = Number(localStorage[TABS] ?? 0) + 1;
    localStorage[TABS] = sessionStorage[account] = next;
    if (await hold(next)) return next;
  }
}

/** Resolves to whether the journal was lost. Then its click numbers would be used again, although they name deposits that were made. */
async function isLost(journal, referee) {
  if (journal.clicks.size > 0 || !(await referee.ask()) || referee.logged.size === 0) return false;
  // Whatever the server has logged was recorded before; but another tab may have recorded it after this journal was read.
  if (!journal.isOver) await journal.load();
  return !journal.isOver && journal.clicks.size === 0;
}

/** Switches to a new account, in every tab. */
async function startOver({ account, journal, semel }) {
  // Another tab may have done that already.
  if (localStorage[ACCOUNT] === account) newAccount();
  journal.leave();
  await semel?.close();
  for (const name of [nameOf(account), `semel ${location.origin} ${account}`]) indexedDB.deleteDatabase(name);
  location.reload();
}

/** Asks the server, again and again. */
async function follow({ account, journal, referee, board, changedMs }) {
  const isBusy = () => Date.now() - changedMs() < SETTLES_MS || [...journal.clicks.values()].some(({ naive, semel }) => naive === "waiting" || semel === "waiting");
  let known = 0;
  let readMs = 0;
  let wasFull = false;
  const look = async () => {
    const wasDown = referee.isDown;
    await referee.ask();
    const ids = [...referee.logged.keys()].slice(known);
    known = referee.logged.size;
    const { records, tombstones } = referee.accounts.semel ?? {};
    if (referee.isFull && !wasFull) board.tell(FULL_LOG);
    wasFull = referee.isFull;
    if (records !== undefined && !referee.isDown) await journal.sample({ atMs: Date.now(), records, tombstones });
    if (wasDown && !referee.isDown) board.tell("The server answers again.");
    board.logged(ids);
    if (tombstones > 0 && !isBusy() && Date.now() - readMs > READ_MS) {
      readMs = Date.now();
      await fetch(`/accounts/${account}`, { signal: AbortSignal.timeout(READ_MS) }).catch(() => {});
    }
  };
  for (;;) {
    // An error, such as no room in storage, need not come again at the next look.
    await look().catch((error) => console.error(error));
    await pause(isBusy() ? BUSY_MS : IDLE_MS);
  }
}
