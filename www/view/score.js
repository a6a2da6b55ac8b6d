// The score: what was clicked, what the two accounts have, and the difference in money.

import { $, counted, dollars, say } from "./element.js";

export function showScore({ clicks, clicked, lanes }, { isDown }) {
  say($("clicked"), dollars.format(clicked));
  say($("note-clicked"), clicks === 0 ? "no deposit yet" : counted(clicks, "deposit"));
  say($("open-clicked"), isDown ? "the server is silent" : "");
  for (const lane of ["naive", "semel"]) {
    const { balance, difference, open, forgotten, isSettled } = lanes[lane];
    const { kind, text } = clicks === 0 ? { kind: "open", text: "" } : verdictOf(difference, isSettled);
    say($(`balance-${lane}`), balance === undefined ? "…" : dollars.format(balance));
    say($(`note-${lane}`), text);
    const parts = [open > 0 && `${open} unanswered`, forgotten > 0 && `${forgotten} forgotten`];
    say($(`open-${lane}`), parts.filter(Boolean).join(", "));
    $(`score-${lane}`).dataset.kind = kind;
  }
}

/** What a difference means: too much stays too much, but what is missing may still come. */
export function verdictOf(difference, isSettled) {
  if (difference === undefined) return { kind: "open", text: "not known yet" };
  const money = dollars.format(Math.abs(difference));
  if (difference > 0) return { kind: "wrong", text: `+${money}: too much` };
  if (!isSettled) return { kind: "open", text: difference === 0 ? "±$0" : `−${money}: under way` };
  return difference === 0 ? { kind: "right", text: "±$0: exact" } : { kind: "wrong", text: `−${money}: missing` };
}
