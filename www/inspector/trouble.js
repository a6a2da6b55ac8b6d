// Shows an error on the page: what happened, what to do, and a button to try again.

import { explain } from "../../sdk/admin/advice.js";
import { make } from "../view/element.js";

/** A box that explains an error. `again`: what its button calls; without it there is no button. */
export function troubleOf(error, { again, isChange = false, code = error.code } = {}) {
  const { what, advice, outcome } = explain(error, isChange);
  const box = make("div", { class: "trouble", role: "alert", "data-code": code }, make("p", { class: "what" }, what));
  if (outcome) box.append(make("p", {}, outcome));
  if (advice) box.append(make("p", {}, advice));
  if (again) {
    const button = make("button", { type: "button" }, "Try again");
    button.addEventListener("click", again);
    box.append(button);
  }
  return box;
}
