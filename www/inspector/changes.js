// The changes that an administrator can make to keys and records, each explained in plain words before it is made.

import { make, say } from "../view/element.js";
import { confirmChange } from "./confirm.js";
import { counted, instant, number, unsentToo } from "../../sdk/admin/words.js";

/** What deleting a record means, by its state. A state that is missing here has nothing to delete: only the id is kept already. */
const DELETED = {
  __proto__: null,
  executed: ["The outcome is thrown away, and can't be had back. The id stays for a while, so that no late attempt runs.", "A client that still waits for the answer is told that it ran, and never gets the answer."],
  poisoned: ["The request crashed too often: it never ran, and never will. Nothing is kept of it but the id, which stays for a while, so that no late attempt runs."],
  suspect: ["The request has crashed, and is tried again when its client sends it. From here on it is cancelled instead: it never runs."],
};

/** The buttons for a key. */
export function changesOfKey(key, context) {
  const remove = button("Delete this key…", () => deleteKey(key, context));
  return make("div", { class: "changes" }, remove);
}

/** The buttons for a record, or for an id that the key does not know: then `record` is undefined. */
export function changesOfRecord(key, id, record, context) {
  const buttons = [];
  if (record === undefined || record.state === "suspect") buttons.push(button(record ? "Cancel it…" : "Cancel this id…", () => cancel(key, id, record, context)));
  if (record?.state in DELETED) buttons.push(button("Delete this record…", () => deleteRecord(key, id, record, context)));
  if (record?.state === "in-doubt") buttons.push(button("It ran…", () => resolveAsRun(key, id, context)), button("It did not run…", () => resolveAsNotRun(key, id, context)));
  return make("div", { class: "changes" }, ...buttons);
}

function button(text, onclick) {
  const element = make("button", { type: "button", class: "danger" }, text);
  element.addEventListener("click", onclick);
  return element;
}

async function deleteKey(key, context) {
  // Asked for while the question is open, because the answer may take a while.
  const unsent = make("span", { role: "status" });
  context.admin.unsent(key, context.signal).then(
    (count) => say(unsent, unsentToo(count)),
    () => say(unsent, " Whether it has still something to send to others could not be found out; that would go too."),
  );
  const deleted = await confirmChange(context, {
    title: "Delete this key?",
    says: [
      make("span", {}, "Everything that the key keeps is deleted, and can't be had back: the application's own data, the records and their outcomes.", unsent),
      "Requests that were first sent before now are refused from here on. One that does not say when it was first sent counts as new, and can run a second time.",
      "New requests start the key again, with nothing in it.",
    ],
    verb: "Delete the key",
    typed: key,
    run: (change) => context.admin.deleteKey(key, change),
    told: ({ fence }) => `The key is deleted. What is first sent before ${instant(fence * 1000)} is refused, new requests too.`,
  });
  if (deleted) context.go({ view: "keys", ...context.keysRoute });
}

async function deleteRecord(key, id, record, context) {
  const deleted = await confirmChange(context, {
    title: "Delete this record?",
    says: DELETED[record.state],
    verb: "Delete the record",
    run: (change) => context.admin.deleteRecord(key, id, change),
    told: ({ executed }) => `The record is reduced to its id. The request ${{ yes: "had run, and its effect stays", no: "never ran" }[executed] ?? "may have run"}.`,
  });
  if (deleted) context.reload();
}

async function cancel(key, id, record, context) {
  const done = await confirmChange(context, {
    title: "Cancel this id?",
    says: [
      record ? "The request has crashed, and is tried again when its client sends it. Once it is cancelled it never runs." : "This key has no record of the id. Once it is cancelled, a request with it is refused whenever it comes.",
      "If it runs before this arrives, it stays as it is, and you are told so.",
    ],
    verb: "Cancel the id",
    run: (change) => context.admin.cancel(key, id, change),
    told: ({ state }) => (state === "cancelled" ? "It is cancelled: from now on it never runs." : "It had run already. Its effect and its outcome stay."),
  });
  if (done) context.reload();
}

async function resolveAsRun(key, id, context) {
  const field = (label, attributes, tag = "input") => {
    const input = make(tag, { autocomplete: "off", spellcheck: "false", ...attributes });
    return [input, make("label", { class: "field" }, make("span", {}, label), input)];
  };
  // The status starts empty. If it had a value, pressing Enter would be enough to do what can't be undone.
  const [status, statusField] = field("Status", { type: "number", min: "200", max: "499", required: "" });
  const [type, typeField] = field("Content-Type", { type: "text", value: "application/json" });
  const [body, bodyField] = field("Body", { rows: "4" }, "textarea");
  const done = await confirmChange(context, {
    title: "What was the outcome?",
    says: ["Find out at the upstream first. What you give is recorded as the answer to this request: every attempt gets it, and it is never sent again.", "It can't be undone."],
    verb: "Record this outcome",
    fields: make("fieldset", { class: "given" }, statusField, typeField, bodyField),
    run: (change) => {
      const headers = body.value !== "" && type.value !== "" ? { "content-type": type.value } : {};
      return context.admin.resolve(key, id, { status: Number(status.value), headers, body: body.value }, change);
    },
    told: () => "It is resolved: every attempt gets this outcome.",
  });
  if (done) context.reload();
}

async function resolveAsNotRun(key, id, context) {
  const done = await confirmChange(context, {
    title: "It did not run?",
    says: ["Find out at the upstream first. From here on the id is cancelled: it never runs, and its client is told so, and may ask for the same under a new id.", "If it has had its effect after all, that may then happen twice. It can't be undone."],
    verb: "It did not run",
    run: (change) => context.admin.resolve(key, id, undefined, change),
    told: () => "It is resolved: from now on it never runs.",
  });
  if (done) context.reload();
}

/** Asks, then makes every key forget what was first sent before an instant (Unix seconds), and shows the progress. */
export async function forget(beforeSeconds, total, context) {
  const when = instant(beforeSeconds * 1000);
  const begun = await confirmChange(context, {
    title: `Forget what is older than ${when}?`,
    says: [
      `At ${total === undefined ? "every key" : total === 1 ? "the one key there is" : `all ${number(total)} keys`}, the records of requests that were first sent before ${when} are deleted with their outcomes. Their effects stay.`,
      "Clients that still try such a request are refused, and can't be told whether it ran.",
      "It can't be stopped once it has begun, and not undone.",
    ],
    verb: "Forget it",
    run: (change) => context.admin.forget(beforeSeconds, change),
    told: ({ keys }) => `It has begun, at ${counted(keys, "key")}.`,
  });
  if (begun) context.go({ view: "forget", id: begun.id });
}

