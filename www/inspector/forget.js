// Forgetting, at every key, what is older than an instant: the page to choose the instant, and the page that shows the progress.

import { instantOf } from "../../sdk/admin/api.js";
import { make, say } from "../view/element.js";
import { forget } from "./changes.js";
import { fragmentOf } from "./route.js";
import { troubleOf } from "./trouble.js";
import { age, haveForgotten, instant, number } from "../../sdk/admin/words.js";

const LOOK_MS = 1_000;
const AGES = [["30 days", "30d"], ["7 days", "7d"], ["1 day", "1d"]];

/** Shows the choice, or the progress of a forget that has begun. */
export const showForget = (route, context) => (route.id === "" ? showChoice(context) : showProgress(route.id, context));

function showChoice(context) {
  const { admin, signal } = context;
  const title = make("h1", { id: "title", tabindex: "-1" }, "Forget what is old");
  const input = make("input", { id: "before", type: "text", autocomplete: "off", spellcheck: "false", "aria-describedby": "before-hint before-means" });
  const means = make("p", { id: "before-means", class: "means", role: "status" });
  const trouble = make("div", {});
  const go = make("button", { type: "submit", class: "danger", "aria-disabled": "true" }, "Forget…");
  let nowMs;
  const chosen = () => (nowMs === undefined ? undefined : instantOf(input.value, nowMs));
  const update = () => {
    const seconds = chosen();
    const isAhead = seconds !== undefined && seconds * 1000 > nowMs;
    go.setAttribute("aria-disabled", String(seconds === undefined || isAhead));
    if (input.value.trim() === "" || nowMs === undefined) return say(means, "");
    if (seconds === undefined) return say(means, "That is neither an age nor a date.");
    say(means, isAhead ? "That is yet to come. It can be now at the latest." : `What was first sent before ${instant(seconds * 1000)}, ${age(seconds * 1000, nowMs)}.`);
  };
  const presets = AGES.map(([text, value]) => {
    const button = make("button", { type: "button" }, text);
    button.addEventListener("click", () => {
      input.value = value;
      update();
    });
    return button;
  });
  const form = make(
    "form",
    { class: "part choice-of-age" },
    make("label", { class: "field", for: "before" }, "Older than"),
    make("div", { class: "toolbar" }, input, ...presets),
    make("p", { id: "before-hint", class: "hint" }, "An age, such as 30d, 12h or 90m, or a date, such as 2026-10-22 or 2026-10-22T08:00:00Z."),
    means,
    go,
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (go.getAttribute("aria-disabled") === "false") forget(chosen(), total, context);
  });
  input.addEventListener("input", update);
  let total;
  const load = () =>
    admin.keys({ limit: 1 }, signal).then(
      async (page) => {
        total = page.total;
        nowMs = await admin.now(signal);
        trouble.replaceChildren();
        update();
      },
      (error) => signal.aborted || context.onerror(error) || trouble.replaceChildren(troubleOf(error, { again: load })),
    );
  load();
  const says = make("p", { class: "lead" }, "Deletes the records of all keys that are older than an instant, with their outcomes; what the requests did stays. Requests of that age that come late are refused from then on.");
  return { title: "Forget what is old", element: make("section", { "aria-labelledby": "title" }, title, says, trouble, form) };
}

function showProgress(id, context) {
  const { admin, signal } = context;
  const title = make("h1", { id: "title", tabindex: "-1" }, "Forgetting");
  const bar = make("progress", { max: "1", "aria-labelledby": "title" });
  const told = make("p", { class: "lead", role: "status" }, "Loading…");
  const failed = make("div", {});
  const trouble = make("div", {});

  async function look() {
    try {
      const job = await admin.forgetting(id, signal);
      trouble.replaceChildren();
      bar.max = Math.max(1, job.keys);
      bar.value = job.keys === 0 && job.state === "done" ? 1 : job.done;
      const what = `what was first sent before ${instant(job.before * 1000)}`;
      say(told, job.state === "done" ? `Done: ${haveForgotten(job.keys)} ${what}.` : `${number(job.done)} of ${haveForgotten(job.keys)} ${what}. It goes on without this page.`);
      showFailed(job.failed ?? []);
      if (job.state === "done") context.forgetKept();
      else setTimeout(() => signal.aborted || look(), LOOK_MS);
    } catch (error) {
      if (signal.aborted || context.onerror(error)) return;
      if (error.code === "not-found") error.code = "forget-gone";
      trouble.replaceChildren(troubleOf(error, { again: look }));
    }
  }

  function showFailed(keys) {
    if (keys.length === 0) return failed.replaceChildren();
    const links = keys.map((key) => make("li", {}, make("a", { href: fragmentOf({ view: "key", key }) }, key)));
    failed.replaceChildren(make("h2", {}, "Not yet; these are tried again"), make("ul", { class: "names" }, ...links));
  }

  look();
  return { title: "Forgetting", element: make("section", { "aria-labelledby": "title" }, title, bar, told, trouble, failed) };
}
