// An endless list. A page is fetched when it comes near the visible part, and the browser draws only the pages that are visible.
//
// Invariants:
// - One page is fetched at a time, after the cursor of the page before. So no item comes twice or is left out, except items that change their
//   place in the order meanwhile, as a key does when its size changes.
// - Pages that were scrolled away stay in the document: going back to them fetches nothing.

import { make, say } from "../view/element.js";
import { number } from "../../sdk/admin/words.js";
import { troubleOf } from "./trouble.js";

/** The next page is fetched when the end of the list is this far below the visible part. */
const AHEAD = "800px";

/**
 * Makes a list. `columns`: `[title, class]` of each, or `[title]`. `load(after)` resolves to `{ items, next, total }`. `cells(item)`: elements or
 * texts. `noun`: "key". `nothing`: what is said if there is none. `onerror`: may take an error over, by returning true.
 */
export function endless({ name, label, columns, load, cells, noun, nothing, signal, onerror = () => false }) {
  const table = make("div", { class: `list ${name}`, role: "table", "aria-label": label });
  table.append(make("div", { role: "rowgroup", class: "head" }, make("div", { role: "row" }, ...columns.map(([title, kind]) => make("div", { role: "columnheader", class: kind }, title)))));
  const count = make("p", { class: "count", role: "status" }, "Loading…");
  const more = make("button", { type: "button", hidden: "" }, "Show more");
  const foot = make("div", { class: "foot" }, more);
  const element = make("div", { class: "endless" }, count, table, foot);
  let [after, shown, isLoading, isOver] = [undefined, 0, false, false];
  // Several entries may come at once; the last one is current.
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
      // A page may be empty although the next one is not.
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
    // If the foot is still in sight, the observer reports nothing new unless it starts to observe again.
    observer.unobserve(foot);
    if (!isOver) observer.observe(foot);
  }

  function told(total) {
    const of = total === undefined ? (isOver ? "" : " so far") : ` of ${number(total)}`;
    return `${number(shown)}${of} ${noun}${(total ?? shown) === 1 ? "" : "s"}`.replace(/^(\S+) so far (.*)$/, "$1 $2 so far");
  }

  function pageOf(items) {
    const page = make("div", { role: "rowgroup", class: "page" }, ...items.map(row));
    // A page takes the room of all its rows before it is drawn, so that the scroll bar tells how much there is.
    page.style.setProperty("--rows", items.length);
    return page;
  }

  const row = (item) => make("div", { role: "row" }, ...cells(item).map((cell, at) => make("div", { role: "cell", class: columns[at][1], "data-label": columns[at][0] }, cell)));

  signal.addEventListener("abort", () => observer.disconnect());
  more.addEventListener("click", next);
  next();
  return element;
}
