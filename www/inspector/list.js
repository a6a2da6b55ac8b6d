// An endless list: pages are asked for as they come into sight, and drawn by the browser only while they are.
//
// Invariants:
// - One page is asked for at a time, each after the cursor of the one before: none comes twice, and none is left out, but what has another place in the
//   order by then, as a key has by its size.
// - What has scrolled away stays where it is: going back to it asks nobody.

import { make, say } from "../view/element.js";
import { number } from "../../sdk/admin/words.js";
import { troubleOf } from "./trouble.js";

/** So far below what is seen, the next page is asked for. */
const AHEAD = "800px";

/**
 * Makes a list. `columns`: `[title, class]` of each, or `[title]`; `load(after)` resolves to `{ items, next, total }`; `cells(item)`: elements or
 * texts; `noun`: "key"; `nothing`: what is said where there is none; `onerror`: may take an error over, by returning true.
 */
export function endless({ name, label, columns, load, cells, noun, nothing, signal, onerror = () => false }) {
  const table = make("div", { class: `list ${name}`, role: "table", "aria-label": label });
  table.append(make("div", { role: "rowgroup", class: "head" }, make("div", { role: "row" }, ...columns.map(([title, kind]) => make("div", { role: "columnheader", class: kind }, title)))));
  const count = make("p", { class: "count", role: "status" }, "Loading…");
  const more = make("button", { type: "button", hidden: "" }, "Show more");
  const foot = make("div", { class: "foot" }, more);
  const element = make("div", { class: "endless" }, count, table, foot);
  let [after, shown, isLoading, isOver] = [undefined, 0, false, false];
  // Several things may have come together: the last is how it is.
  const observer = new IntersectionObserver((entries) => entries.at(-1).isIntersecting && next(), { rootMargin: AHEAD });

  async function next() {
    if (isLoading || isOver || signal.aborted) return;
    isLoading = true;
    foot.querySelector(".trouble")?.remove();
    try {
      const { items, next: cursor, total } = await load(after);
      if (items.length > 0) table.append(pageOf(items));
      shown += items.length;
      [after, isOver] = [cursor, cursor === null];
      // Of a page nothing may be meant, and something of the next.
      say(count, shown > 0 ? told(total) : isOver ? nothing : "Looking…");
      more.hidden = isOver;
      table.hidden = shown === 0;
    } catch (error) {
      if (signal.aborted || onerror(error)) return;
      say(count, "");
      more.hidden = true;
      foot.append(troubleOf(error, { again: next }));
      return;
    } finally {
      isLoading = false;
    }
    // Where the foot is still in sight, the observer has nothing new to tell unless it begins anew.
    observer.unobserve(foot);
    if (!isOver) observer.observe(foot);
  }

  function told(total) {
    const of = total === undefined ? (isOver ? "" : " so far") : ` of ${number(total)}`;
    return `${number(shown)}${of} ${noun}${(total ?? shown) === 1 ? "" : "s"}`.replace(/^(\S+) so far (.*)$/, "$1 $2 so far");
  }

  function pageOf(items) {
    const page = make("div", { role: "rowgroup", class: "page" }, ...items.map(row));
    // It has the room of its own rows before it is drawn, the last page too: a scroll bar tells how much there is.
    page.style.setProperty("--rows", items.length);
    return page;
  }

  const row = (item) => make("div", { role: "row" }, ...cells(item).map((cell, at) => make("div", { role: "cell", class: columns[at][1], "data-label": columns[at][0] }, cell)));

  signal.addEventListener("abort", () => observer.disconnect());
  more.addEventListener("click", next);
  next();
  return element;
}
