// The commands: what each asks of the deployment, and how its answer is shown.
//
// Invariant: with `--json`, the shapes are the API's own, so they are as stable as the protocol.

import { createHash } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { instantOf } from "../admin/api.js";
import { factsOf, lifeOf } from "../admin/life.js";
import { formsOf } from "../admin/outcome.js";
import { CHOICES, STATES, age, bytes, counted, duration, fullness, haveForgotten, lanesShown, number, ran, unsentToo } from "../admin/words.js";
import { Failure } from "./failure.js";
import { ahead, changing, commandOf, markOf, reading, readingAhead, unsent } from "./session.js";
import { safe, safeLine } from "./terminal.js";

const PAGE = 200;
const NO_EFFECTS = "There is no such key here, or its handler has sent nothing.";
const LOOK_MS = 1_000;
/** A forget that makes no progress for this long, or for `--timeout` if that is longer, is no longer waited for. */
const STANDSTILL_MS = 30_000;

const utc = (ms) => new Date(ms).toISOString().replace(/\.000Z$/, "Z");

/** `keys`: lists keys, page by page, until there are as many as wanted. */
export async function keys(session) {
  const { admin, terminal, options, signal } = session;
  const { state, hash } = options;
  const wanted = options.all || hash ? Infinity : options.limit;
  // Sizes change between two pages. Ordered by size, a key could come on both pages or on neither.
  const isSorted = wanted === Infinity && options.order === "heaviest";
  const order = isSorted ? "name" : options.order;
  const isMeant = ({ key }) => !hash || createHash("sha256").update(key).digest("hex").startsWith(hash);
  let [after, seen, shown, total, nowMs] = [undefined, 0, 0, 0, 0];
  const found = [];
  const { member, name } = CHOICES[state] ?? { member: "tombstones", name: "Tombstones" };
  const rows = [["KEY", "RECORDS", name.toUpperCase(), "SIZE", "CREATED", "LAST REPORT"]];
  const show = (key) => {
    shown += 1;
    if (terminal.isJson) terminal.json(key);
    else rows.push([safeLine(key.key), number(key.records), number(key[member]), bytes(key.bytes), age(key.created, nowMs), age(key.seen, nowMs)]);
  };
  do {
    const limit = Math.min(PAGE, wanted - seen);
    const page = await reading(session, () => admin.keys({ order, prefix: options.prefix, state, after, limit }, signal));
    nowMs ||= await reading(session, () => admin.now(signal));
    const meant = page.keys.filter(isMeant);
    if (isSorted) found.push(...meant);
    else meant.forEach(show);
    seen += page.keys.length;
    [after, total] = [page.next, page.total];
    if (wanted === Infinity) terminal.progress(seen, total, "key");
  } while (after !== null && seen < wanted);
  found.sort((one, other) => other.bytes - one.bytes).forEach(show);
  if (terminal.isJson) return;
  if (shown > 0) terminal.table(rows, [1, 2, 3]);
  // By default a key reports to the registry up to a minute later. Somebody who looks right after a failure would otherwise take the list as certain.
  const told = state ? ", as they told the registry last. What changed within the last minute may not be there yet." : "";
  terminal.note(shown === 0 ? `There are no such keys${told || "."}` : `${number(shown)} of ${counted(total, "key")}${told}`);
}

/** `records`: lists the records of a key, ordered by id; with `--state`, only those in that state. */
export async function records(session, key) {
  const { admin, terminal, options, signal } = session;
  const wanted = options.all ? Infinity : options.limit;
  const { state } = options;
  let [after, shown, nowMs] = [undefined, 0, 0];
  const rows = [["ID", "STATE", "CHANGED", "PRINCIPAL", "STATUS", "SIZE"]];
  do {
    const limit = Math.min(PAGE, wanted - shown);
    const page = await reading(session, () => admin.records(key, { state, after, limit }, signal));
    nowMs ||= await reading(session, () => admin.now(signal));
    for (const record of page.records) {
      if (terminal.isJson) terminal.json(record);
      else rows.push([safeLine(record.id), safeLine(record.state), age(record.at, nowMs), safeLine(record.principal ?? ""), safeLine(record.status ?? ""), record.bytes === null ? "" : bytes(record.bytes)]);
    }
    shown += page.records.length;
    after = page.next;
    // With `--state`, many pages may come without a record.
    if (shown > 0) terminal.progress(shown, shown, "record");
  } while (after !== null && shown < wanted);
  if (terminal.isJson) return;
  if (shown > 0) terminal.table(rows, [4, 5]);
  terminal.note(shown === 0 ? "There are no such records." : `${counted(shown, "record")}${after === null ? "" : ", and there may be more"}`);
}

/** `show`: shows a key, or one of its requests. */
export async function show(session, key, id) {
  const { admin, terminal, signal } = session;
  if (id !== undefined) return showRecord(session, key, id);
  const stats = await reading(session, () => admin.key(key, signal));
  if (terminal.isJson) return terminal.json(stats);
  const of = (value, max, text = number) => `${text(value)}  ${terminal.colours.dim(`${fullness(value, max)} of ${text(max)}`)}`;
  const at = (ms) => `${utc(ms)}, ${age(ms, stats.now)}`;
  terminal.line(terminal.colours.bold(safeLine(stats.key)));
  terminal.facts([
    ["records", of(stats.records, stats.recordsMax)],
    ["tombstones", of(stats.tombstones, stats.tombstonesMax)],
    ...(stats.inDoubt > 0 ? [["in doubt", number(stats.inDoubt)]] : []),
    ["size", of(stats.bytes, stats.bytesMax, bytes)],
    ...(stats.sessions > 0 ? [["sessions", stats.sessionsMax === undefined ? number(stats.sessions) : of(stats.sessions, stats.sessionsMax)]] : []),
    ["oldest", stats.oldest === null ? "none" : at(stats.oldest)],
    ["retention", stats.retentionSeconds === null ? "for ever" : duration(stats.retentionSeconds)],
    ["fence", stats.fence > 0 ? at(stats.fence * 1000) : "not moved yet"],
    ["forgotten before", stats.forgottenBefore > 0 ? at(stats.forgottenBefore * 1000) : "never"],
    ...Object.entries(stats.counters).map(([code, count]) => [safeLine(code), `${number(count)} since the object started`]),
  ]);
}

async function showRecord(session, key, id) {
  const { admin, terminal, signal } = session;
  const record = await reading(session, () => admin.record(key, id, signal));
  if (terminal.isJson) return terminal.json(record);
  const { now, retentionSeconds } = await reading(session, () => admin.key(key, signal));
  const { bold, dim } = terminal.colours;
  terminal.line(`${bold(safeLine(record.id))} at ${safeLine(key)}`);
  terminal.line(`  ${bold(safeLine(record.state))}: ${STATES[record.state]?.[1] ?? ""}`);
  terminal.line();
  terminal.facts(factsOf(record).map(([name, value]) => [name.toLowerCase(), safeLine(value)]));
  terminal.line();
  terminal.facts(lifeOf(record, now, retentionSeconds).map(({ atMs, title }) => [utc(atMs), safeLine(`${title.toLowerCase()}, ${age(atMs, now)}`)]));
  if (record.outcome === null) return;
  const { bytes: size, cutTo, forms } = formsOf(record.outcome);
  terminal.line();
  terminal.line(bold(`Status ${safeLine(record.outcome.status)}, ${size === 0 ? "no body" : bytes(size)}`));
  for (const [name, value] of Object.entries(record.outcome.headers)) terminal.line(dim(safeLine(`${name}: ${value}`)));
  const [body] = Object.values(forms);
  if (body !== undefined) terminal.line(`\n${safe(body)}`);
  if (cutTo !== undefined) terminal.note(`Only the first ${number(cutTo)} of ${number(size)} bytes. --json has all.`);
}

/** `forget`: begins to forget, and waits until it is done, unless told not to. */
export async function forget(session) {
  const { admin, terminal, options, signal } = session;
  // Checked before anything is sent. Only the meaning of an age needs the server's clock, not its form.
  if (instantOf(options.before, Date.now()) === undefined) throw new Failure("usage", [`--before ${options.before} is neither an age such as 30d, 12h or 90m, nor an ISO date since 1970.`]);
  if (!options.yes) terminal.needsSomebody();
  const nowMs = await reading(session, () => admin.now(signal));
  const before = instantOf(options.before, nowMs);
  if (before * 1000 > nowMs) throw new Failure("usage", [`${utc(before * 1000)} is yet to come. It can be now at the latest.`]);
  const question = `Every key forgets what was first sent before ${utc(before * 1000)}, ${age(before * 1000, nowMs)}, and the outcomes with it. The effects stay. A client that still waits for one of these answers never gets it. It can't be undone. Go on? [y/N] `;
  if (!options.yes) await agree(session, question);
  const again = ["forget", [], "--before", utc(before * 1000), "--yes"];
  let made;
  const begun = await changing(session, again, (change) => {
    made = change;
    return admin.forget(before, change, signal);
  });
  const job = options.wait ? await follow(session, begun, [...again, "--again", markOf(made)]) : begun;
  if (terminal.isJson) return terminal.json(job);
  const what = `what was first sent before ${utc(before * 1000)}`;
  if (options.wait) terminal.line(`${haveForgotten(job.keys)} ${what}.`);
  else terminal.line(`It has begun: ${counted(job.keys, "key")} ${job.keys === 1 ? "forgets" : "forget"} ${what}.`);
}

async function follow(session, job, again) {
  const { admin, terminal, signal, options } = session;
  const lines = [`The deployment goes on with it. To look again: ${commandOf(session, again)}`];
  let movedMs = Date.now();
  while (job.state !== "done") {
    terminal.progress(job.done, job.keys, "key");
    if (Date.now() - movedMs > Math.max(STANDSTILL_MS, options.timeout * 1000)) {
      const failed = job.failed?.length > 0 ? [`These keys have not forgotten yet, and are tried again: ${job.failed.map(safeLine).join(", ")}`] : [];
      throw new Failure("failed", ["The forget makes no progress.", ...failed, ...lines], { code: "standstill", job });
    }
    try {
      await delay(LOOK_MS, undefined, { signal });
      const { done } = job;
      job = await admin.forgetting(job.id, signal);
      if (job.done > done) movedMs = Date.now();
    } catch (error) {
      if (signal.aborted) throw new Failure("interrupted", ["Interrupted.", ...lines], { job });
      throw Object.assign(new Failure("failed", [error.message, ...lines], { code: error.code, job }), { cause: error });
    }
  }
  terminal.progress(job.done, job.keys, "key");
  return job;
}

/** What can be done about a request that a key sends, by option: what it means, to ask about it, and what is said of each state that results. */
const MENDINGS = {
  retry: ["This sends the request again, as a new one. If its RAN is unknown, it may have run, and would run a second time.", { waiting: "It is sent again, as a new one, behind all that waits." }],
  drop: ["This throws the request away. It can't be had back.", { dropped: "It is dropped." }],
  park: ["This gives the request up: whether it ran may stay unknown.", { closing: "It is given up, once the other key has said that it never runs there.", parked: "It is given up." }],
};

/** `effects`: shows what a key still has to send and what was refused for good; or mends one of them. */
export async function effects(session, key) {
  const { options } = session;
  const [mending] = Object.keys(MENDINGS).filter((name) => options[name] !== undefined);
  return mending === undefined ? showEffects(session, key) : mendEffect(session, key, mending, options[mending]);
}

async function showEffects(session, key) {
  const { admin, terminal, signal } = session;
  const parked = [];
  let told;
  do {
    told = await reading(session, () => admin.effects(key, { after: told?.next, limit: PAGE }, signal), { "not-found": NO_EFFECTS });
    if (terminal.isJson) terminal.json(told);
    parked.push(...(told.parked ?? []));
  } while (typeof told.next === "number");
  if (terminal.isJson) return;
  const nowMs = await reading(session, () => admin.now(signal));
  const asked = ({ method, url }) => safeLine(`${method} ${url}`);
  const { count, max, lanes = [] } = told;
  if (lanes.length > 0) {
    const rows = lanes.map((lane) => [safeLine(lane.id), safeLine(lane.to), number(lane.waiting), age(lane.at, nowMs), number(lane.attempts), asked(lane), safeLine(lane.closing ?? lane.reason ?? "")]);
    terminal.table([["FIRST", "TO", "WAITING", "SINCE", "TRIED", "REQUEST", "WHY IT WAITS"], ...rows], [2, 4]);
    terminal.line();
  }
  if (parked.length > 0) {
    const rows = parked.map((one) => [safeLine(one.id), safeLine(one.to), age(one.parked, nowMs), safeLine(one.executed), asked(one), safeLine(one.reason)]);
    terminal.table([["PARKED", "TO", "SINCE", "RAN", "REQUEST", "WHY"], ...rows]);
    terminal.line();
  }
  const shown = lanesShown(lanes);
  terminal.note(`${number(count)} of at most ${number(max)}, ${number(parked.length)} of them parked${shown && `.${shown}`}`);
}

async function mendEffect(session, key, mending, id) {
  const { admin, terminal, options, signal } = session;
  const [meaning, results] = MENDINGS[mending];
  if (!options.yes) await agree(session, `${meaning} Go on? [y/N] `);
  const again = ["effects", [key], `--${mending}`, id, "--yes"];
  const words = { "not-found": NO_EFFECTS, "not-seen": mending === "park" ? "No request with that id is the first to wait." : "No request with that id is parked." };
  const result = await changing(session, again, (change) => admin.mendEffect(key, mending, id, change, signal), words);
  if (terminal.isJson) return terminal.json(result);
  terminal.line(results[result.state]);
}

/** `cancel`. Asks first if nobody has used the key: its name may be mistyped, and a cancellation there stops nothing elsewhere. */
export async function cancel(session, key, id) {
  const { admin, terminal, options, signal } = session;
  if (!options.yes && options.again === undefined && !(await isUsed(session, key))) {
    const why = `Nobody has used ${safeLine(key)}, and a request goes to only one key. If this is not the name of its key, cancelling it here stops nothing.`;
    terminal.needsSomebody(why);
    await agree(session, `${why} Go on? [y/N] `);
  }
  const result = await changing(session, ["cancel", [key, id]], (change) => admin.cancel(key, id, change, signal));
  if (result.state === "cancelled") return terminal.isJson ? terminal.json(result) : terminal.line("It is cancelled: from now on it never runs.");
  if (terminal.isJson) terminal.json(result);
  throw new Failure("failed", ["It had run already. Its effect and its outcome stay."], { code: "executed", executed: "no" });
}

function isUsed(session, key) {
  const looked = session.admin.key(key, session.signal).then(() => true);
  return readingAhead(session, () => looked.catch((error) => (error.code === "not-found" ? false : Promise.reject(error))));
}

/** `resolve`: says what became of a request that is in doubt. */
export async function resolve(session, key, id) {
  const { admin, terminal, options, signal } = session;
  const { executed, status, body, type } = options;
  if (executed === "yes" && status === undefined) throw new Failure("usage", ["A request that ran has an outcome: give its --status, and its --body if it has one."]);
  if (executed === "no" && (status ?? body ?? type) !== undefined) throw new Failure("usage", ["A request that did not run has no outcome: leave out --status, --body and --type."]);
  const outcome = executed === "no" ? undefined : { status, ...(type !== undefined && { headers: { "content-type": type } }), ...(body !== undefined && { body }) };
  const meaning = outcome ? `This records status ${status} as the outcome of ${id}: every attempt gets it.` : `From now on ${id} never runs. If it has had its effect after all, its client may cause that a second time.`;
  if (!options.yes) await agree(session, `${meaning} It can't be undone. Go on? [y/N] `);
  const given = Object.entries({ executed, status, body, type }).flatMap(([name, value]) => (value === undefined ? [] : [`--${name}=${value}`]));
  const result = await changing(session, ["resolve", [key, id], ...given, "--yes"], (change) => admin.resolve(key, id, outcome, change, signal));
  if (terminal.isJson) return terminal.json(result);
  terminal.line(outcome ? "It is resolved: every attempt gets this outcome." : "It is resolved: from now on it never runs.");
}

/** What deleting a record means, by its state. A state that is missing here means nothing: only the id is kept already. */
const DELETED = {
  __proto__: null,
  executed: (id) => `This throws the outcome of ${id} away. It can't be had back.`,
  poisoned: (id) => `${id} crashed too often: it never ran, and never will. This keeps nothing of it but the id.`,
  suspect: (id) => `${id} has crashed, and may run when its client sends it again. If you delete its record, it never runs.`,
  "in-doubt": (id) => `Nobody knows whether ${id} ran. This gives it up: an answer that still comes is thrown away, and it can't be resolved any more. \`semel resolve\` settles it.`,
};

/** `delete`: deletes a key, or one of its records. */
export async function remove(session, key, id) {
  const { admin, terminal, options, signal } = session;
  // In a script, an empty variable for the id leaves no argument. That mistake alone must not delete the whole key.
  if (id === undefined && options.yes && !options.whole) throw new Failure("usage", ["No id is given, so it would be the key with all its data. If that is meant, add --whole."]);
  if (id !== undefined && options.whole) throw new Failure("usage", ["--whole deletes a whole key, but an id is given."]);
  if (!options.yes && id === undefined) {
    terminal.needsSomebody();
    const more = unsentToo(await readingAhead(session, () => admin.unsent(key, signal)));
    const question = `This deletes all that ${key} keeps, the application's own data too. It can't be had back.${more}\nType the name of the key to go on: `;
    await agree(session, question, (answer) => [key, safe(key)].includes(answer));
  } else if (!options.yes) {
    terminal.needsSomebody();
    const { state } = await readingAhead(session, () => admin.record(key, id, signal));
    const meaning = DELETED[state]?.(id) ?? `Of ${id} only the id is kept, and deleting leaves that as it is.`;
    await agree(session, `${meaning} Go on? [y/N] `);
  }
  const again = id === undefined ? ["delete", [key], "--whole", "--yes"] : ["delete", [key, id], "--yes"];
  const result = await changing(session, again, (change) => (id === undefined ? admin.deleteKey(key, change, signal) : admin.deleteRecord(key, id, change, signal)));
  if (terminal.isJson) return terminal.json(result);
  if (id === undefined) terminal.line(`The key is deleted. What is first sent before ${utc(result.fence * 1000)} is refused, new requests too.`);
  else terminal.line(`The record is reduced to its id. Did it run: ${ran(result)}.`);
}

/** Asks before a change that can't be undone. To delete a key, its name must be typed; for a record, "y" is enough. */
async function agree(session, question, isYes = (answer) => /^y(es)?$/i.test(answer)) {
  if (isYes((await ahead(session, () => session.terminal.ask(question, session.signal))).trim())) return;
  const [line, executed] = unsent(session);
  throw new Failure("failed", [line], { code: "declined", executed });
}
