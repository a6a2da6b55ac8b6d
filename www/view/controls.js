// The switches, sliders and links of the lab, and the address that they make.
//
// Invariant: the address is the scenario, so that a reload finds it, and a link can carry it.

import { LIMITS, PRESETS, fragmentOf } from "../lab/scenario.js";
import { $, say } from "./element.js";

const SLIDERS = { loseRequests: percent, loseAnswers: percent, twice: percent, delay: (ms) => (ms === 0 ? "none" : `${(ms / 1000).toFixed(1)} s`) };

function percent(value) {
  return value === 0 ? "none" : value === 33 ? "a third" : `${value} %`;
}

/** Binds the controls to `settings`, which the network reads. */
export function bindSettings(settings) {
  const show = () => {
    for (const [name, text] of Object.entries(SLIDERS)) {
      $(name).value = settings[name];
      $(name).setAttribute("aria-valuetext", text(settings[name]));
      say($(`${name}-value`), text(settings[name]));
    }
    $("offline").checked = settings.offline === 1;
    history.replaceState(null, "", fragmentOf(settings));
  };
  for (const name of Object.keys(SLIDERS)) {
    $(name).addEventListener("input", ({ target }) => {
      settings[name] = Number(target.value);
      show();
    });
  }
  $("offline").addEventListener("change", ({ target }) => {
    settings.offline = target.checked ? 1 : 0;
    show();
  });
  $("faults").addEventListener("submit", (event) => event.preventDefault());
  show();
  return {
    /** Applies the settings of a scenario. */
    set(members) {
      for (const name of Object.keys(LIMITS)) if (name in members) settings[name] = members[name];
      show();
    },
  };
}

/** Enables or disables a button. A disabled button keeps the focus. */
export function enable(id, isEnabled) {
  $(id).setAttribute("aria-disabled", String(!isEnabled));
}

/** Makes a button act while it is enabled. */
export function onClick(id, act) {
  $(id).addEventListener("click", () => {
    if ($(id).getAttribute("aria-disabled") !== "true") act();
  });
}

/** Enables the kill button. If the server can't be killed, says why, and disables the scenarios that need it. */
export function allowKill(canKill) {
  enable("kill", canKill);
  if (canKill) return;
  $("kill").title = "The server can be killed where npm start runs it.";
  for (const { id } of PRESETS.filter(({ isLocal }) => isLocal)) {
    const link = $("presets").querySelector(`[data-preset=${id}]`);
    link.removeAttribute("href");
    link.setAttribute("aria-disabled", "true");
  }
}
