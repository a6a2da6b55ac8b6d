// What the buttons and links of the page do.
//
// Invariants:
// - If an action fails, the page says so and stays as it was.
// - A scenario starts completely or not at all: while a run is going, a link changes nothing.

import { $ } from "../view/element.js";
import { allowKill, enable, onClick } from "../view/controls.js";
import { CLICKS_MAX, RUN_CLICKS } from "./limits.js";
import { fragmentOf, scenarioOf } from "./scenario.js";

const FULL = `An account takes ${CLICKS_MAX} clicks: start over.`;

/** `parts`: journal, run, referee, controls, settings, `startOver`, and `tell`, which says something to the visitor. */
export class Actions {
  #parts;
  /** What the last scenario does during its run. A link to it includes that. */
  #onTheWay = {};

  constructor(parts) {
    this.#parts = parts;
  }

  /** Makes buttons and links act. */
  bind() {
    const { journal, run, startOver } = this.#parts;
    const on = (id, act) => onClick(id, () => this.#try(act));
    on("deposit", async () => {
      if ((await run.click()).isFull) this.full();
    });
    on("run", () => this.begin({ total: RUN_CLICKS }));
    on("stop", () => journal.stopRun());
    on("crash", () => this.crash());
    on("kill", () => this.kill());
    on("over", startOver);
    on("copy", () => this.#copyLink());
    for (const id of ["deposit", "crash", "over"]) enable(id, true);
    this.#parts.referee.canBeKilled().then(allowKill);
    const follow = () => this.#try(() => this.#follow());
    addEventListener("hashchange", follow);
    // A link may have been followed before this page listened.
    if (location.hash !== fragmentOf(this.#parts.settings)) follow();
  }

  /** Starts a run of `total` clicks. `kill`, `crash`: the number of clicks after which the server or the page crashes. */
  async begin({ total, kill, crash }) {
    const { journal, run, tell } = this.#parts;
    if (journal.clicks.size + total > CLICKS_MAX) return this.full();
    if (!(await journal.startRun({ id: crypto.randomUUID(), total, made: 0, kill, crash }))) return tell("A run is going: stop it first.");
    this.#onTheWay = { kill, crash };
    await run.drive();
  }

  /** Says that there is no room for more clicks. */
  full() {
    this.#parts.tell(FULL);
  }

  async kill() {
    await this.#parts.referee.kill();
    await this.#parts.journal.event("kill");
  }

  /** Crashes the page: all that it has in memory is gone, without warning. Waits for a server first, or there would be no page to come back to. */
  async crash() {
    await this.#parts.referee.whenUp(() => this.#parts.tell("This page crashes as soon as there is a server to load it from."));
    location.reload();
  }

  /** Kills the server during a run. If that fails, says so and lets the run go on. */
  killOnTheWay() {
    return this.#try(() => this.kill());
  }

  /** Applies the scenario of a link that was followed on this page. */
  async #follow() {
    const { controls, journal, settings, tell } = this.#parts;
    const { settings: members, run: next } = scenarioOf(location.hash, settings);
    if (next && journal.run?.made < journal.run?.total) {
      controls.set(settings);
      return tell("A run is going: stop it first.");
    }
    controls.set(members);
    if (!next) return;
    $("lab").scrollIntoView({ block: "start" });
    await this.begin(next);
  }

  async #copyLink() {
    const { settings, tell } = this.#parts;
    const link = `${location.origin}/${fragmentOf({ ...settings, run: RUN_CLICKS, ...this.#onTheWay })}`;
    try {
      await navigator.clipboard.writeText(link);
      tell("The link is on the clipboard. It sets the network so and makes 100 clicks.");
    } catch {
      tell(`The link is ${link}`);
    }
  }

  async #try(act) {
    try {
      await act();
    } catch (error) {
      this.#parts.tell(`That did not work: ${error.message}.`);
    }
  }
}
