// Everything that the lab shows, kept up to date.
//
// Invariants:
// - It shows what the journal and the server have, never a guess.
// - It draws at most once in `DRAW_MS`, however much happens, and only what changed.
// - A result is announced once, when nothing is under way any more.

import { countsOf, totalsOf } from "../lab/model.js";
import { enable } from "./controls.js";
import { $, counted, dollars, say } from "./element.js";
import { Plot } from "./plot.js";
import { showScore } from "./score.js";
import { Timeline, showCounts } from "./timeline.js";

const DRAW_MS = 120;

export class Board {
  #journal;
  #referee;
  #tab;
  #plot = new Plot();
  #timeline = new Timeline();
  /** The clicks to draw anew. */
  #dirty = new Set();
  #isDrawing = false;
  #announced = "";

  constructor({ journal, referee, tab }) {
    this.#journal = journal;
    this.#referee = referee;
    this.#tab = tab;
    for (const n of journal.clicks.keys()) this.#dirty.add(n);
    for (const event of journal.events) this.#timeline.tell({ ...event, text: textOf(event) });
    this.draw();
  }

  /** Takes a change of the journal. `isOwn`: this page made it. */
  changed(kind, value, isOwn) {
    if (kind === "click") {
      if (value.naive === "waiting" && value.semel === "waiting" && $("told").textContent === this.#announced) this.tell("");
      this.#dirty.add(value.n);
    }
    if (kind === "attempt") this.#dirty.add(value.click);
    if (kind === "event") {
      this.#timeline.tell({ ...value, text: textOf(value) });
      if (isOwn) this.tell(textOf(value));
    }
    this.#soon();
  }

  /** Takes the ids of attempts that the server has logged since. */
  logged(ids) {
    for (const id of ids) this.#dirty.add(Number(id.split("-")[0]));
    // An attempt that was on its way may count as silent by now.
    for (const { click, fate } of this.#journal.attempts.values()) if (fate === "sent") this.#dirty.add(click);
    this.draw();
  }

  /** Says something to the visitor, and to a screen reader. */
  tell(text) {
    say($("told"), text);
  }

  #soon() {
    if (this.#isDrawing) return;
    this.#isDrawing = true;
    setTimeout(() => {
      this.#isDrawing = false;
      this.draw();
    }, DRAW_MS);
  }

  draw() {
    const nowMs = Date.now();
    const { clicks, attempts, samples } = this.#journal;
    const { accounts, logged } = this.#referee;
    for (const n of this.#dirty) if (!clicks.has(n)) this.#dirty.delete(n);
    this.#timeline.show({ clicks, dirty: this.#dirty, attemptsOf: (n) => this.#journal.attemptsOf(n), logged, tab: this.#tab, nowMs });
    this.#dirty.clear();
    const counts = countsOf(attempts.values(), logged, nowMs);
    showCounts(counts, this.#referee, nowMs);
    const totals = totalsOf(clicks.values(), this.#referee, counts);
    showScore(totals, this.#referee);
    this.#plot.show(samples, accounts.semel, nowMs);
    const isRunning = this.#showProgress();
    if (!isRunning) this.#announce(totals);
  }

  #showProgress() {
    const { run } = this.#journal;
    if (!run) return false;
    const ofRun = [...this.#journal.clicks.values()].filter((click) => click.ofRun === run.id);
    const answered = ofRun.filter((click) => click.semel !== "waiting").length;
    const isRunning = run.made < run.total;
    $("progress").max = run.total || 1;
    $("progress").value = answered;
    say($("progress-text"), `${run.made} of ${run.total} clicks made, ${answered} answered by Semel`);
    enable("run", !isRunning);
    enable("stop", isRunning);
    return isRunning;
  }

  #announce({ clicks, clicked, answered, lanes: { naive, semel } }) {
    if (clicks === 0 || !naive.isSettled || !semel.isSettled) return;
    const result = ({ balance, difference }) => `${dollars.format(balance)}, ${difference === 0 ? "exact" : `${dollars.format(Math.abs(difference))} ${difference > 0 ? "too much" : "missing"}`}`;
    const text =
      (this.#referee.accounts.semel.entries < answered ? "The server has fewer deposits than it has answered: was its state replaced? Start over. " : "") +
      `${counted(clicks, "deposit")}, ${dollars.format(clicked)}: fetch with retries has ${result(naive)}; semel.fetch has ${result(semel)}.`;
    if (text !== this.#announced) this.tell(text);
    this.#announced = text;
  }
}

function textOf({ kind, naive, semel, from, tab: by }) {
  if (kind === "kill") return "The server was killed, and starts again in a second.";
  const page = from === by ? `Tab ${by} was loaded again` : `Tab ${from} is gone, and tab ${by} goes on`;
  const went = semel === 0 ? "Semel had nothing unfinished" : `${counted(semel, "deposit")} unfinished. Semel goes on with ${semel === 1 ? "it" : "them"}`;
  return `${page}: ${went}; fetch with retries has forgotten its ${naive}.`;
}
