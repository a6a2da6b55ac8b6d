// The inspector: shows what the address says, with the administration token of this tab.
//
// Invariants:
// - Leaving a view aborts it: nothing of an old view is drawn into a new one.
// - Coming back to a list of keys shows it as it was left, at the same place. So does coming back to a key from one of its records.

import { Admin } from "../../sdk/admin/api.js";
import { safe } from "../../sdk/admin/words.js";
import { $, say } from "../view/element.js";
import { showForget } from "./forget.js";
import { showKey } from "./key.js";
import { showKeys } from "./keys.js";
import { showRecord } from "./record.js";
import { fragmentOf, routeOf } from "./route.js";
import { showSignIn, signOut, tokenOf } from "./sign-in.js";

const VIEWS = { keys: showKeys, key: showKey, record: showRecord, forget: showForget };
/** How long a change that gets no answer is sent again, in ms. */
const CHANGES_FOR_MS = 15_000;
/** How many views are kept for coming back to them. */
const KEPT_MAX = 4;

let admin;
/** The view that is shown: `{ fragment, view, controller }`. */
let shown;
const kept = new Map();
/** `tell`: called when the change that is waited for is sent again. */
const retries = { tell: undefined };

addEventListener("hashchange", () => show());
$("sign-out").addEventListener("click", () => {
  signOut();
  signIn();
});
$("skip").addEventListener("click", skip);
if (tokenOf()) begin(tokenOf());
else signIn();

/** Skipping to the content must not change the address, which says what is shown. */
function skip(event) {
  event.preventDefault();
  $("view").focus();
}

function signIn(error) {
  admin = undefined;
  forgetKept();
  $("navigation").hidden = true;
  put(undefined, showSignIn({ error, done: begin }));
  $("token").focus();
}

function begin(token) {
  admin = new Admin({ url: location.origin, token, changesForMs: CHANGES_FOR_MS, onretry: () => retries.tell?.() });
  $("navigation").hidden = false;
  show();
}

/** Shows the view that the address names. */
function show({ isSame = false } = {}) {
  if (!admin) return;
  const route = routeOf(location.hash);
  const fragment = fragmentOf(route);
  const keysRoute = lastKeys(route);
  const back = kept.get(fragment);
  if (back && !isSame && isBack(route)) {
    kept.delete(fragment);
    return put(fragment, back.view, back);
  }
  if (back) forgetOne(fragment);
  const controller = new AbortController();
  const context = { admin, signal: controller.signal, go, rename, reload, forgetKept, retries, keysRoute, keysFragment: fragmentOf({ view: "keys", ...keysRoute }), onerror: (error) => refused(error, controller) };
  put(fragment, VIEWS[route.view](route, context), { controller, isSame });
}

/** Whether `route` is come back to from the view that is shown. A key that is reached from anywhere else is fetched anew. */
const isBack = ({ view, key }) => view === "keys" || isRecordOf(key, shown?.fragment);

function isRecordOf(key, fragment) {
  const its = fragment === undefined ? {} : routeOf(fragment);
  return its.view === "record" && its.key === key;
}

let lastKeysRoute = {};

/** The list of keys to go back to from `route`: the one that was shown last. */
function lastKeys({ view, ...choice }) {
  if (view === "keys") lastKeysRoute = choice;
  return lastKeysRoute;
}

function put(fragment, view, { controller = new AbortController(), scrollY = 0, isSame = false } = {}) {
  const { id, selectionStart, selectionEnd } = (isSame && document.activeElement) || {};
  const isFirst = shown === undefined;
  leave(fragment);
  shown = { fragment, view, controller };
  $("view").replaceChildren(view.element);
  document.title = safe(`${view.title} – Semel inspector`);
  for (const link of $("navigation").querySelectorAll("a")) link.ariaCurrent = (link.hash === "") === !fragment?.startsWith("#forget") ? "page" : null;
  if (id) return refocus(id, selectionStart, selectionEnd);
  scrollTo(0, scrollY);
  // A page that was just loaded begins at its top, like any page.
  if (!isFirst && fragment !== undefined) view.element.querySelector("h1").focus({ preventScroll: true });
  say($("news"), view.title);
}

/** Puts the focus and the cursor back into the same field of the new view, so that typing can go on. */
function refocus(id, selectionStart, selectionEnd) {
  const input = $(id);
  input?.focus();
  input?.setSelectionRange(selectionStart, selectionEnd);
}

function leave(next) {
  if (!shown) return;
  const { view, key } = shown.fragment === undefined ? {} : routeOf(shown.fragment);
  // A view with an open question is not kept: the question is dropped with it.
  const isKept = view === "keys" || (view === "key" && isRecordOf(key, next) && document.querySelector("dialog") === null);
  if (isKept && admin) {
    kept.set(shown.fragment, { view: shown.view, controller: shown.controller, scrollY });
    if (kept.size > KEPT_MAX) forgetOne(kept.keys().next().value);
  } else shown.controller.abort();
}

/** Drops all kept views, because they may not be true any more. */
function forgetKept() {
  for (const fragment of kept.keys()) forgetOne(fragment);
}

function forgetOne(fragment) {
  kept.get(fragment).controller.abort();
  kept.delete(fragment);
}

/** Goes to a route. `isSame`: it replaces the current entry of the history. */
function go(route, { isSame = false } = {}) {
  const fragment = fragmentOf(route);
  if (isSame) {
    history.replaceState(null, "", fragment);
    show({ isSame });
  } else if (fragment === location.hash || (fragment === "#" && location.hash === "")) show();
  else location.hash = fragment;
}

/** Gives the view that is shown another address. */
function rename(route) {
  shown.fragment = fragmentOf(route);
  history.replaceState(null, "", shown.fragment);
}

function reload() {
  shown.controller.abort();
  show();
}

/** If the token was refused, asks for a new one, and returns true. */
function refused(error, controller) {
  if (error.code !== "unauthorized" && error.code !== "forbidden") return false;
  controller.abort();
  signOut();
  signIn(error);
  return true;
}
