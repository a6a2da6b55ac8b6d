// What must hold for an outbox whatever happens: checked while it happens, and once everything is calm.
//
// Invariant: every check is of something that the package's README.md or docs/guarantees.md promises. Known limits are left out explicitly.

/** Errors that end the waiting, but not the request. */
const GOES_ON = new Set(["gave-up", "closed"]);

/** How long it takes to read what is asked for, after what was asked for before. */
const READ_MS_MAX = 1_000;

/** Whether an id is the application's own, or the hash of a payload. Such an id is used again. */
export const isOfPayload = (id) => id.startsWith("id-") || id[14] === "4";

export class Oracle {
  /** What ran, in order: `{ key, id, path, body }`. */
  ran = [];
  /** The calls, in order. */
  calls = [];
  #world;
  /** Requests whose answer has reached a caller, or is about to. */
  #heard = new Set();
  /** Requests of which somebody was told how they ended. */
  #told = new Set();
  /** Whether the rows were thrown away. Then nobody need be told about what was in them. */
  isStoreLost = false;
  /** Whether the keys were put back to an earlier state. */
  #isPutBack = false;
  /** The bodies of what was given up in a page that is gone by now. */
  #givenUp = new Set();
  /** The calls that were given up, by body. */
  #aborted = new Map();
  /** By id: the page that got the answer to its own call, and when. */
  #answered = new Map();
  /** Ids that were refused as under way, so that they may be sent again. */
  #doubted = new Set();

  constructor(world) {
    this.#world = world;
  }

  #isWrong(what) {
    this.#world.says(`WRONG: ${what}`);
    this.#world.faults.push(what);
  }

  runs(run) {
    const { key, id, body } = run;
    const is = this.ran.push(run);
    if (this.ran.some((other, index) => index < is - 1 && other.key === key && other.id === id && !other.isUndone)) this.#isWrong(`${id} of ${body} ran twice`);
    return { is, ...run };
  }

  /** The keys are put back to their state after `many` runs. */
  putBack(many) {
    this.#isPutBack = true;
    for (const run of this.ran.slice(many)) run.isUndone = true;
  }

  /** A page goes. What was given up in it is stored as given up, unless the store had not come to that, or failed. */
  leaves(page) {
    for (const { body, id, isHashed, isOver, abortedMs, page: its } of this.calls) {
      const isStored = !page.isFrozen && !page.storing && !(page.failedMs >= abortedMs) && !(page.wasFrozenMs >= abortedMs);
      if (its === page && isStored && abortedMs !== undefined && !isOver && id === undefined && !isHashed) this.#givenUp.add(body);
    }
  }

  /** A call without an answer is given up. If its page can store that, no page that is opened later may have it executed. */
  givesUp(call) {
    const { id, isHashed, body, page } = call;
    if (id === undefined && !isHashed && !page.isClosed && !call.isOver && !page.storing) this.#aborted.set(body, call);
  }

  /** A page sends a request to have it executed. `isKnown`: what becomes of it is known by then. */
  sends(page, id, body, isKnown) {
    if (this.#givenUp.has(body) && !this.#doubted.has(id)) this.#isWrong(`${id} of ${body} was given up, and is sent to be executed`);
    const call = this.#aborted.get(body);
    if (!call || call.page === page || isKnown || this.#doubted.has(id) || this.#isPutBack) return;
    const { page: its, abortedMs } = call;
    if (hasStored(its, abortedMs, page) && !(its.wasFrozenMs >= abortedMs)) this.#isWrong(`${id} of ${body} was given up before ${call.tab} was closed, and ${page.number} sends it to be executed`);
  }

  /** A request was refused as one that may be under way. */
  doubts(id) {
    this.#doubted.add(id);
  }

  /** A page is told what is pending. */
  lists(who, all) {
    const ids = all.map(({ requestId }) => requestId);
    if (new Set(ids).size < ids.length) this.#isWrong(`${who} is told twice of one that is pending: ${ids}`);
  }

  /** A key is told to forget these ids. */
  acknowledges(record, key, ids) {
    for (const id of ids) {
      const hasRun = this.ran.some((run) => run.key === key && run.id === id);
      if (!this.#isPutBack && hasRun && record(key, id)?.state === "executed" && !this.#heard.has(`${key} ${id}`)) this.#isWrong(`${id} was acknowledged, and nobody has its answer`);
    }
  }

  /** A page is told how a request ended. */
  ends({ requestId, status }) {
    this.#told.add(requestId);
    if (status !== undefined) for (const { key, id } of this.ran) if (id === requestId) this.#heard.add(`${key} ${id}`);
  }

  /** Somebody gets an answer to a request that they know by id. */
  async takes({ what: who, identity }, id, response) {
    const said = await response.json();
    const run = this.ran[said.is - 1];
    if (!run || run.id !== said.id) this.#isWrong(`${who} got an answer to nothing: ${JSON.stringify(said)}`);
    else this.#heard.add(`${run.key} ${run.id}`);
    if (run && run.principal !== identity) this.#isWrong(`${who} of ${identity} got the answer to ${run.principal}`);
    if (id !== undefined && said.id !== id) this.#isWrong(`${who} ${id} got the answer to ${said.id}`);
    this.#told.add(said.id);
    return said;
  }

  /** A caller is answered. */
  async answers(call, response) {
    const said = await this.takes(call, call.id, response);
    call.ended = said;
    this.#answered.set(said.id, [call.page, this.#world.time.ms]);
    if (said.body !== call.body || said.path !== call.path) this.#isWrong(`${call.tab} who calls ${call.id} ${call.path} ${call.body} got the answer to ${said.path} ${said.body}`);
  }

  /** A tab recovers a request: one that was never answered. */
  async recovers({ taken, name: tab, identity, page }, { requestId, response, error }) {
    const [its, ms] = this.#answered.get(requestId) ?? [];
    // If nobody can tell who is alive, or a page has lost its lock, two pages may go on with the same request.
    const isAnothers = !this.#world.hasPresence || its?.wasFrozenMs !== undefined || isOfPayload(requestId) || this.#world.lost.has(requestId);
    if (its && !isAnothers && (its === page || hasStored(its, ms, page))) this.#isWrong(`${tab} recovers ${requestId}, and its own caller has the answer`);
    // What a store says that it has lost may be told twice.
    if (taken.has(requestId) && !this.#world.lost.has(requestId)) this.#isWrong(`${tab} recovers ${requestId} again, and has taken it`);
    if (response) await this.takes({ what: `${tab} who recovers`, identity }, requestId, response);
    else if (!this.#isPutBack) this.#checkError(`${requestId}, which ${tab} recovers,`, error, this.#runsOf(requestId));
    this.#told.add(requestId);
    if (!isOfPayload(requestId)) taken.add(requestId);
  }

  #runsOf(id) {
    return this.ran.filter((run) => run.id === id);
  }

  #checkError(what, error, runs) {
    this.#world.checkTold(what, error, runs.length > 0);
  }

  /** Checks that what callers were told stays true, above all `executed: "no"`. */
  checkEnds() {
    if (this.#isPutBack) return;
    for (const call of this.calls) {
      const { id, error, asked, body, path, what, identity, isHashed } = call;
      const own = isHashed ? (error?.requestId ?? "none") : id;
      const runs = this.ran.filter((run) => (own === undefined ? run.body === body : run.id === own));
      if (asked?.code) this.#checkError(what, asked, runs);
      if (!error) continue;
      if (error.code === undefined) {
        if (own === undefined && runs.length) this.#isWrong(`${what} was told ${error}, and ran`);
        continue;
      }
      // If an id is in use for another payload, it is only known that that one ran.
      if (runs.every((run) => run.body === body && run.path === path && run.principal === identity)) this.#checkError(what, error, runs);
    }
  }

  /** The calls that still wait, in pages that are still there. */
  get waiting() {
    return this.calls.filter((call) => !call.isOver && !call.page.isGone);
  }

  /** Checks that no call waited longer than it wanted to. It may take a little longer, because what it asks for is read first. */
  checkPatience() {
    for (const { what, page, giveUpAfterMs, madeMs, endedMs, thaws } of this.calls) {
      const isTold = page.isGone || page.thaws > thaws || page.isFrozen || endedMs - madeMs < giveUpAfterMs + READ_MS_MAX;
      if (giveUpAfterMs !== undefined && !isTold) this.#isWrong(`${what} was told after ${endedMs - madeMs} ms, and wanted to wait ${giveUpAfterMs}`);
    }
  }

  /** Checks that for all that ran somebody was told how it ended, except where an error was the end. */
  checkTold() {
    if (this.isStoreLost || this.#isPutBack) return;
    const forgone = new Set(this.calls.filter(({ error }) => error && !GOES_ON.has(error.code)).map(({ error, body }) => error.requestId ?? body));
    for (const { id, body } of this.ran) {
      if (!isOfPayload(id) && !this.#told.has(id) && !forgone.has(id)) this.#isWrong(`${id} of ${body} ran, and nobody was told`);
    }
  }

  /** Checks that the requests of a tab to a key took effect in the order of the calls, as far as that is known. */
  checkOrder() {
    // A row that a store says it has lost, although it has it, belongs to somebody else from then on.
    const at = new Map(this.ran.map(({ id, body }, index) => [body, this.#world.lost.has(id) ? undefined : index]));
    const last = new Map();
    for (const call of this.calls) {
      const { page, key, path, id, body, ordered } = call;
      if (!ordered || id !== undefined || call.isHashed || at.get(body) === undefined) continue;
      const lane = `${page.number} ${key ?? path}`;
      const before = last.get(lane);
      if (before && at.get(before) > at.get(body)) this.#isWrong(`${body} ran before ${before}, of which it comes after`);
      last.set(lane, body);
    }
  }
}

/** Whether what happened in a page that is closed was in the store before another page was opened. */
function hasStored(page, ms, other) {
  return page.isClosed && !page.storing && page.storedMs < other.openedMs && !(page.failedMs >= ms);
}
