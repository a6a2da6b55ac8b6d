// What must hold of an outbox whatever befalls it: looked at as it happens, and once it is calm.
//
// Invariant: what is held against it is promised by README.md of the package, or by docs/guarantees.md; known limits are left out by name.

/** What ends the waiting, and not the request. */
const GOES_ON = new Set(["gave-up", "closed"]);

/** So long it takes to read what is asked for, and what was before. */
const READ_MS_MAX = 1_000;

/** Whether an id is one of the application's own, or the hash of what is asked for: such a one is used again. */
export const isOfPayload = (id) => id.startsWith("id-") || id[14] === "4";

export class Oracle {
  /** What ran, in order: `{ key, id, path, body }`. */
  ran = [];
  /** The calls, in order. */
  calls = [];
  #world;
  /** Whose answer is with who asked for it, or is about to be. */
  #heard = new Set();
  /** Of which somebody was told how it ended. */
  #told = new Set();
  /** Whether the rows were thrown away, so that nobody may be told of what was in them. */
  isStoreLost = false;
  /** Whether the keys forgot what they had done and said. */
  #isPutBack = false;
  /** What was given up in a page that has gone since: bodies. */
  #givenUp = new Set();
  /** Calls that were given up, by body. */
  #aborted = new Map();
  /** Which page has an answer that it called for, and since when, by id. */
  #answered = new Map();
  /** Ids that were told to be under way, so that they may be sent once more. */
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

  /** The keys are as they were when so many had run. */
  putBack(many) {
    this.#isPutBack = true;
    for (const run of this.ran.slice(many)) run.isUndone = true;
  }

  /** A page goes: what was given up in it is stored as that, unless the store had not come to it, or failed. */
  leaves(page) {
    for (const { body, id, isHashed, isOver, abortedMs, page: its } of this.calls) {
      const isStored = !page.isFrozen && !page.storing && !(page.failedMs >= abortedMs) && !(page.wasFrozenMs >= abortedMs);
      if (its === page && isStored && abortedMs !== undefined && !isOver && id === undefined && !isHashed) this.#givenUp.add(body);
    }
  }

  /** What nobody has an answer to is given up: as long as its page can store that, none that is opened later may have it executed. */
  givesUp(call) {
    const { id, isHashed, body, page } = call;
    if (id === undefined && !isHashed && !page.isClosed && !call.isOver && !page.storing) this.#aborted.set(body, call);
  }

  /** A page sends it, to have it executed. `isKnown`: what becomes of it is known by then. */
  sends(page, id, body, isKnown) {
    if (this.#givenUp.has(body) && !this.#doubted.has(id)) this.#isWrong(`${id} of ${body} was given up, and is sent to be executed`);
    const call = this.#aborted.get(body);
    if (!call || call.page === page || isKnown || this.#doubted.has(id) || this.#isPutBack) return;
    const { page: its, abortedMs } = call;
    if (hasStored(its, abortedMs, page) && !(its.wasFrozenMs >= abortedMs)) this.#isWrong(`${id} of ${body} was given up before ${call.tab} was closed, and ${page.number} sends it to be executed`);
  }

  /** It was refused as one that may be under way. */
  doubts(id) {
    this.#doubted.add(id);
  }

  /** A page is told what is pending. */
  lists(who, all) {
    const ids = all.map(({ requestId }) => requestId);
    if (new Set(ids).size < ids.length) this.#isWrong(`${who} is told twice of one that is pending: ${ids}`);
  }

  /** The key is told to forget these. */
  acknowledges(record, key, ids) {
    for (const id of ids) {
      const hasRun = this.ran.some((run) => run.key === key && run.id === id);
      if (!this.#isPutBack && hasRun && record(key, id)?.state === "executed" && !this.#heard.has(`${key} ${id}`)) this.#isWrong(`${id} was acknowledged, and nobody has its answer`);
    }
  }

  /** A page hears how a request ended. */
  ends({ requestId, status }) {
    this.#told.add(requestId);
    if (status !== undefined) for (const { key, id } of this.ran) if (id === requestId) this.#heard.add(`${key} ${id}`);
  }

  /** Somebody has an answer to what he knows by id. */
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

  /** What was never answered comes to who recovers. */
  async recovers({ taken, name: tab, identity, page }, { requestId, response, error }) {
    const [its, ms] = this.#answered.get(requestId) ?? [];
    // Where nobody can tell who lives, or a page has lost its lock, two may see to one.
    const isAnothers = !this.#world.hasPresence || its?.wasFrozenMs !== undefined || isOfPayload(requestId) || this.#world.lost.has(requestId);
    if (its && !isAnothers && (its === page || hasStored(its, ms, page))) this.#isWrong(`${tab} recovers ${requestId}, and its own caller has the answer`);
    // Of what a store says that it has lost, that is told first.
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

  /** That what was told is so for good: `no` above all. */
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
      // Of an id that is in use for another payload, only that one is known to have run.
      if (runs.every((run) => run.body === body && run.path === path && run.principal === identity)) this.#checkError(what, error, runs);
    }
  }

  /** That who waits in a page that is there waits no more; `stillThere`: whether a page is. */
  get waiting() {
    return this.calls.filter((call) => !call.isOver && !call.page.isGone);
  }

  /** That who wants to wait for so long only does not wait longer: not much, for what it asks for is read first. */
  checkPatience() {
    for (const { what, page, giveUpAfterMs, madeMs, endedMs, thaws } of this.calls) {
      const isTold = page.isGone || page.thaws > thaws || page.isFrozen || endedMs - madeMs < giveUpAfterMs + READ_MS_MAX;
      if (giveUpAfterMs !== undefined && !isTold) this.#isWrong(`${what} was told after ${endedMs - madeMs} ms, and wanted to wait ${giveUpAfterMs}`);
    }
  }

  /** That of what ran somebody was told how it ended, but where that was said to be the end. */
  checkTold() {
    if (this.isStoreLost || this.#isPutBack) return;
    const forgone = new Set(this.calls.filter(({ error }) => error && !GOES_ON.has(error.code)).map(({ error, body }) => error.requestId ?? body));
    for (const { id, body } of this.ran) {
      if (!isOfPayload(id) && !this.#told.has(id) && !forgone.has(id)) this.#isWrong(`${id} of ${body} ran, and nobody was told`);
    }
  }

  /** That the requests of a tab to a key, as far as it is known, took effect in the order of the calls. */
  checkOrder() {
    // What a store says that it has lost, and has, is another's from then on.
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

/** Whether what came to a page that is closed is in the store since before another was opened. */
function hasStored(page, ms, other) {
  return page.isClosed && !page.storing && page.storedMs < other.openedMs && !(page.failedMs >= ms);
}
