// Asks before a change, makes it, and says what came of it.
//
// Invariants:
// - The change gets its id when the dialog opens. However often the button is clicked or the change is sent, it happens once.
// - The dialog stays open while the change is on its way. So whoever closes it knows what came of it, or that nobody knows.

import { newChange } from "../../sdk/admin/api.js";
import { safe } from "../../sdk/admin/words.js";
import { make, say } from "../view/element.js";
import { troubleOf } from "./trouble.js";

/**
 * Shows the dialog. `says`: paragraphs, texts or elements. `verb`: the text of the button. `typed`: a name that must be typed first. `fields`: a fieldset of further
 * input, which is disabled once it may have been sent. `run(change)` makes the change. `told(result)` says what came of it. Resolves to the result;
 * to undefined if there was none, or if the view was left.
 */
export function confirmChange(context, { title, says, verb, typed, fields, run, told }) {
  const change = newChange();
  // The name may be typed as it is or as it is shown: some characters can't be typed.
  const isTyped = () => [typed, safe(typed)].includes(input.value);
  const heading = make("h2", { id: "confirm-title" }, title);
  const text = make("div", { class: "says" }, ...says.map((paragraph) => make("p", {}, paragraph)));
  const news = make("p", { class: "news", role: "status" });
  const result = make("div", { class: "came" });
  const button = make("button", { type: "submit", class: "danger" }, verb);
  const close = make("button", { type: "button" }, "Do nothing");
  const form = make("form", { method: "dialog" }, heading, text);
  const input = typed === undefined ? undefined : make("input", { type: "text", id: "confirm-name", autocomplete: "off", spellcheck: "false", autocapitalize: "off" });
  if (input) form.append(make("label", { class: "field", for: "confirm-name" }, make("span", {}, "Type the name of the key to go on: ", make("code", {}, typed))), input);
  if (fields) form.append(fields);
  form.append(news, result, make("div", { class: "buttons" }, close, button));
  const dialog = make("dialog", { class: "confirm", "aria-labelledby": "confirm-title" }, form);

  return new Promise((resolve) => {
    let [isBusy, came] = [false, undefined];
    const allow = () => {
      // Escape, too, closes the dialog only while nothing is on its way.
      dialog.setAttribute("closedby", isBusy ? "none" : "closerequest");
      button.setAttribute("aria-disabled", String(isBusy || (input !== undefined && !isTyped())));
    };
    const settle = (isDone) => {
      isBusy = false;
      say(news, "");
      close.removeAttribute("aria-disabled");
      say(close, isDone ? "Close" : "Leave it");
      allow();
    };

    async function send() {
      if (isBusy || came !== undefined || button.getAttribute("aria-disabled") === "true") return;
      isBusy = true;
      if (fields) fields.disabled = true;
      allow();
      close.setAttribute("aria-disabled", "true");
      result.replaceChildren();
      say(news, "Sending…");
      context.retries.tell = () => say(news, "No answer yet. The same is sent again; it happens once.");
      try {
        came = await run(change);
        // Kept lists may not be true any more.
        context.forgetKept();
        result.replaceChildren(make("p", { class: "done", role: "status" }, told(came)));
        button.hidden = true;
        if (input) input.readOnly = true;
        settle(true);
        close.focus();
      } catch (error) {
        const isOver = error.isDefinitive || error.executed === "no";
        result.replaceChildren(troubleOf(error, { isChange: true }));
        button.hidden = error.isDefinitive === true;
        say(button, isOver ? verb : "Send the same again");
        if (fields) fields.disabled = !isOver;
        settle(error.isDefinitive === true);
        if (button.hidden) close.focus();
      } finally {
        context.retries.tell = undefined;
      }
    }

    form.addEventListener("submit", (event) => {
      event.preventDefault();
      send();
    });
    input?.addEventListener("input", allow);
    close.addEventListener("click", () => isBusy || dialog.close());
    dialog.addEventListener("cancel", (event) => isBusy && event.preventDefault());
    // Going back leaves the question, too.
    context.signal.addEventListener("abort", () => isBusy || dialog.close());
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(context.signal.aborted ? undefined : came);
    });
    allow();
    document.body.append(dialog);
    dialog.showModal();
    (input ?? fields?.querySelector("input") ?? close).focus();
  });
}
