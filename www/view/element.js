// Finds and makes elements of the page.
//
// Invariant: all text is visible: characters that reverse it or show nothing are written as escapes, because names are chosen by others.

import { safe } from "../../sdk/admin/words.js";

export const $ = (id) => document.getElementById(id);

/** Makes an element with attributes. Children are elements or text. */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) if (value !== undefined) element.setAttribute(name, value);
  element.append(...children.map((child) => (typeof child === "string" ? safe(child) : child)));
  return element;
}

/** The drawn sign of a fate. Its name is beside it wherever it is used. */
export function glyph(fate) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("class", `glyph ${fate}`);
  svg.setAttribute("aria-hidden", "true");
  const use = document.createElementNS("http://www.w3.org/2000/svg", "use");
  use.setAttribute("href", `#glyph-${fate}`);
  svg.append(use);
  return svg;
}

/** Sets a text if it differs, because a screen reader reads every change aloud. */
export function say(element, text) {
  const shown = safe(text);
  if (element.textContent !== shown) element.textContent = shown;
}

export const dollars = new Intl.NumberFormat("en-US", { style: "currency", currency: "USD", maximumFractionDigits: 0 });
export const seconds = (ms) => `${(ms / 1000).toFixed(1)} s`;
/** "1 deposit", "2 deposits". */
export { counted } from "../../sdk/admin/words.js";

/** A colour of the page in the current theme. Only an element that uses a custom property can tell its computed value. */
export function colourOf(element, name) {
  element.style.color = `var(${name})`;
  const { color } = getComputedStyle(element);
  element.style.color = "";
  return color;
}
