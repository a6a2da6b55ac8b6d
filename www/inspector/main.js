// The inspector: shows what the address says, with the administration token of this tab.
//
// Invariants:
// - What is left is aborted: nothing of an old view is drawn into a new one.
// - A list of keys that is come back to is as it was left, with its place; and so is a key that is come back to from one of its records.

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
/** A change that gets no answer is sent again for so long. */
const CHANGES_FOR_MS = 15_000;
/** Views that are kept for coming back. */
const KEPT_MAX = 4;

let admin;
/** What is shown: `{ fragment, element, controller }`. */
let shown;
const kept = new Map();
/** Whoever waits for a change hears that it is sent again. */
const retries = { tell: undefined };

addEventListener("hashchange", () => show());
$("sign-out").addEventListener("click", () => {
  signOut();
  signIn();
});
$("skip").addEventListener("click", skip);
if (tokenOf()) begin(tokenOf());
else signIn();

/** To skip to the content must not change the address: it says what is shown. */
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

/** Shows what the address says. */
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

/** Whether what is shown is looked at from there: who comes to a key from anywhere else sees it as it is now. */
const isBack = ({ view, key }) => view === "keys" || isRecordOf(key, shown?.fragment);

function isRecordOf(key, fragment) {
  const its = fragment === undefined ? {} : routeOf(fragment);
  return its.view === "record" && its.key === key;
}

let lastKeysRoute = {};

/** The list of keys that is gone back to from `route`: the last that was shown. */
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
  // A page that is loaded begins at its top, as any page.
  if (!isFirst && fragment !== undefined) view.element.querySelector("h1").focus({ preventScroll: true });
  say($("news"), view.title);
}

/** What is typed goes on being typed where it was, though the view is another. */
function refocus(id, selectionStart, selectionEnd) {
  const input = $(id);
  input?.focus();
  input?.setSelectionRange(selectionStart, selectionEnd);
}

function leave(next) {
  if (!shown) return;
  const { view, key } = shown.fragment === undefined ? {} : routeOf(shown.fragment);
  // A question that is open belongs to what is left, and is left with it.
  const isKept = view === "keys" || (view === "key" && isRecordOf(key, next) && document.querySelector("dialog") === null);
  if (isKept && admin) {
    kept.set(shown.fragment, { view: shown.view, controller: shown.controller, scrollY });
    if (kept.size > KEPT_MAX) forgetOne(kept.keys().next().value);
  } else shown.controller.abort();
}

/** What was kept is no longer true. */
function forgetKept() {
  for (const fragment of kept.keys()) forgetOne(fragment);
}

function forgetOne(fragment) {
  kept.get(fragment).controller.abort();
  kept.delete(fragment);
}

/** Goes somewhere. `isSame`: it is the same place, only seen otherwise. */
function go(route, { isSame = false } = {}) {
  const fragment = fragmentOf(route);
  if (isSame) {
    history.replaceState(null, "", fragment);
    show({ isSame });
  } else if (fragment === location.hash || (fragment === "#" && location.hash === "")) show();
  else location.hash = fragment;
}

/** What is shown has another address from now on. */
function rename(route) {
  shown.fragment = fragmentOf(route);
  history.replaceState(null, "", shown.fragment);
}

function reload() {
  shown.controller.abort();
  show();
}

/** A token that is refused has to be given anew, whatever was asked. */
function refused(error, controller) {
  if (error.code !== "unauthorized" && error.code !== "forbidden") return false;
  controller.abort();
  signOut();
  signIn(error);
  return true;
}
