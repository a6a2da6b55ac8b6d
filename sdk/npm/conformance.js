// Checks of what a store must do. Anybody can run them on their own store, with any test runner.
//
// Invariants:
// - A check relies only on what `Store` in index.d.ts promises. If the store breaks a promise, the check throws an error that says which.
// - Each check has its own storage, named by a string, and closes every store that it opened.
// - A store that hangs fails the check.

const SETTLES_MS_MAX = 10_000;
/** How long after `leave` an owner may still be listed. */
const LEAVES_MS_MAX = 3_000;
const CHANGES = 200;

const always = () => true;
const bytes = (...all) => Uint8Array.from(all);
const EVERY_BYTE = Uint8Array.from({ length: 256 }, (_, index) => index);
const MEBIBYTE = Uint8Array.from({ length: 1 << 20 }, (_, index) => (index * 31 + (index >> 8)) & 255);
const ODD_IDS = ["a", "A", " a", "a ", "a/b", "../a", "a\\b", ".", "%2F", "a\nb", "a'b\"c", "$", "__proto__", "constructor", "0", "00", "ü", "u\u0308", "ключ", "鍵", "🔑", "x".repeat(255)];

export function conformance(open, { reopens = true, shares = reopens, ...others } = {}) {
  if (typeof open !== "function") throw new TypeError("semel: `open` is a function, which opens the storage of a name");
  for (const [name, value] of Object.entries({ reopens, shares })) if (typeof value !== "boolean") throw new TypeError(`semel: \`${name}\` is true or false`);
  const [unknown] = Object.keys(others);
  if (unknown !== undefined) throw new TypeError(`semel: the checks have no option ${unknown}`);
  const checks = [...ALWAYS, ...(reopens ? REOPENED : []), ...(shares ? SHARED : [])];
  const run = Math.random().toString(36).slice(2);
  return checks.map(([name, check], index) => ({ name, run: () => checked(open, `conformance-${run}-${index}`, check) }));
}

async function checked(open, storage, check) {
  const stores = [];
  const opened = async () => {
    const store = careful(await settled(Promise.resolve(open(storage)), "open"));
    stores.push(store);
    return store;
  };
  try {
    await check(await opened(), opened);
  } finally {
    for (const store of stores) await store.close();
  }
}

/** Wraps a store so that a call that does not settle in time rejects. */
function careful(store) {
  const call = (name, ...args) => settled(new Promise((resolve) => resolve(store[name](...args))), name);
  return {
    load: () => call("load"),
    change: (id, to) => call("change", id, to),
    remove: (ids, isDone) => call("remove", ids, isDone),
    close: () => (store.close === undefined ? Promise.resolve() : call("close")),
    hasClose: store.close !== undefined,
    presence: store.presence && ((owner) => store.presence(owner)),
  };
}

function settled(promise, what) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`\`${what}\` did not settle within ${SETTLES_MS_MAX} ms`)), SETTLES_MS_MAX);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

function must(holds, sentence) {
  if (!holds) throw new Error(sentence);
}

const isSame = (one, other) => one instanceof Uint8Array && one.length === other.length && one.every((byte, index) => byte === other[index]);

/** The rows of a store, by id. Throws unless `load` gives each id once, with bytes. */
async function rowsOf(store) {
  const all = await store.load();
  must(Array.isArray(all), "`load` must resolve to an array");
  for (const entry of all) {
    must(Array.isArray(entry) && typeof entry[0] === "string" && entry[1] instanceof Uint8Array, "`load` must give pairs of an id and a Uint8Array");
  }
  const rows = new Map(all);
  must(rows.size === all.length, "`load` gave an id twice");
  return rows;
}

/** Checks that the rows are exactly these. */
async function mustHold(store, expected, when) {
  const rows = await rowsOf(store);
  for (const [id, row] of expected) {
    must(rows.has(id), `${when}, the row ${JSON.stringify(id.slice(0, 20))} is missing`);
    must(isSame(rows.get(id), row), `${when}, the row ${JSON.stringify(id.slice(0, 20))} has other bytes than it was given`);
  }
  must(rows.size === expected.length, `${when}, there are ${rows.size} rows, and ${expected.length} were expected`);
}

const put = (store, id, row) => store.change(id, () => row);

/** What `to` is given for the row of `id`. */
async function get(store, id) {
  let seen;
  await store.change(id, (row) => {
    seen = row;
    return null;
  });
  return seen;
}

const count = (row) => (row === undefined ? 0 : new DataView(row.buffer, row.byteOffset, row.byteLength).getUint32(0));

function increment(row) {
  const next = new Uint8Array(4);
  new DataView(next.buffer).setUint32(0, count(row) + 1);
  return next;
}

async function mustReject(promise, sentence) {
  let error;
  const hasRejected = await promise.then(() => false, (reason) => ((error = reason), true));
  must(hasRejected, sentence);
  return error;
}

const ALWAYS = [
  ["a new storage is empty", async (store) => mustHold(store, [], "at first")],
  ["bytes come back exactly", async (store) => {
    const rows = [["every", EVERY_BYTE], ["empty", bytes()], ["long", MEBIBYTE], ["zeros", new Uint8Array(4096)]];
    for (const [id, row] of rows) await put(store, id, row);
    await mustHold(store, rows, "after putting rows");
    for (const [id, row] of rows) must(isSame(await get(store, id), row), `\`to\` got other bytes for the row "${id}" than were put`);
  }],
  ["a row that is a part of a buffer is stored as that part alone", async (store) => {
    await put(store, "part", MEBIBYTE.subarray(1000, 1010));
    await mustHold(store, [["part", MEBIBYTE.slice(1000, 1010)]], "after putting a part of a buffer");
  }],
  ["`to` gets the stored row, or undefined if there is none", async (store) => {
    must((await get(store, "a")) === undefined, "`to` must get undefined for a row that is not there");
    await put(store, "a", bytes(1));
    must(isSame(await get(store, "a"), bytes(1)), "`to` must get the row that is there");
    await put(store, "a", bytes(2, 3));
    must(isSame(await get(store, "a"), bytes(2, 3)), "`to` must get the row as it was put last");
  }],
  ["a `to` that returns undefined deletes the row", async (store) => {
    await put(store, "a", bytes(1));
    await put(store, "b", bytes(2));
    await store.change("a", () => undefined);
    await store.change("never", () => undefined);
    await mustHold(store, [["b", bytes(2)]], "after `to` returned undefined");
    must((await get(store, "a")) === undefined, "`to` must get undefined for a row that was deleted");
  }],
  ["a `to` that returns null leaves the row as it is", async (store) => {
    await put(store, "a", bytes(1));
    await store.change("a", () => null);
    await store.change("never", () => null);
    await mustHold(store, [["a", bytes(1)]], "after `to` returned null");
  }],
  ["`to` is called once, before the change settles", async (store) => {
    for (const result of [bytes(1), null, undefined]) {
      let calls = 0;
      await store.change("a", () => ((calls += 1), result));
      must(calls === 1, `\`to\` was called ${calls} times before the change settled`);
      await new Promise((resolve) => setTimeout(resolve, 5));
      must(calls === 1, "`to` was called again after the change had settled");
    }
  }],
  ["a `to` that throws changes nothing and rejects", async (store) => {
    await put(store, "a", bytes(1));
    const thrown = new Error("thrown by to");
    const fails = () => {
      throw thrown;
    };
    const around = [put(store, "before", bytes(2)), store.change("a", fails), store.change("never", fails), put(store, "after", bytes(3))];
    const [before, first, second, after] = await Promise.allSettled(around);
    must(first.status === "rejected" && second.status === "rejected", "a change whose `to` throws must reject");
    must(before.status === "fulfilled" && after.status === "fulfilled", "a `to` that throws must not make other changes reject");
    await mustHold(store, [["a", bytes(1)], ["before", bytes(2)], ["after", bytes(3)]], "after a `to` that threw");
  }],
  ["concurrent changes of one row are all made", async (store) => {
    await Promise.all(Array.from({ length: CHANGES }, () => store.change("n", increment)));
    const counted = count(await get(store, "n"));
    must(counted === CHANGES, `${CHANGES} concurrent changes of one row made ${counted}: reading and writing are not one transaction`);
  }],
  ["changes of one row keep their order", async (store) => {
    const seen = [];
    await Promise.all(Array.from({ length: 50 }, (_, index) => store.change("a", () => (seen.push(index), bytes(index)))));
    must(seen.every((index, place) => index === place), "changes of one row must happen in the order in which they were called");
    await mustHold(store, [["a", bytes(49)]], "after 50 changes of a row");
  }],
  ["concurrent changes of many rows do not mix", async (store) => {
    const rows = Array.from({ length: CHANGES }, (_, index) => [`row-${index}`, bytes(index, 255 - index, 7)]);
    await Promise.all(rows.map(([id, row]) => put(store, id, row)));
    await mustHold(store, rows, `after ${CHANGES} rows were put at once`);
  }],
  ["ids may have any characters", async (store) => {
    const rows = ODD_IDS.map((id, index) => [id, bytes(index)]);
    for (const [id, row] of rows) await put(store, id, row);
    await mustHold(store, rows, "after rows with odd ids were put");
    await store.remove(ODD_IDS.slice(1), always);
    await mustHold(store, rows.slice(0, 1), "after all odd ids but one were removed");
  }],
  ["`remove` deletes the rows of the given ids, and ignores ids without a row", async (store) => {
    for (const id of ["a", "b", "c"]) await put(store, id, bytes(1));
    await store.remove(["a", "never", "c", "a"], always);
    await store.remove([], always);
    await store.remove(["never"], always);
    await mustHold(store, [["b", bytes(1)]], "after some rows were removed");
  }],
  ["`remove` asks `isDone` once for each row, and leaves the rows that are not done", async (store) => {
    for (const id of ["a", "b"]) await put(store, id, bytes(id.charCodeAt(0)));
    const asked = [];
    const isDone = (row) => asked.push(row[0]) > 0 && row[0] === 98;
    await store.remove(["a", "b", "never"], isDone);
    must(asked.length === 2, "`isDone` must be asked once for each row that there is");
    await mustHold(store, [["a", bytes(97)]], "after the row that is done was removed");
  }],
  ["`load` gives every change that had resolved before it was called", async (store) => {
    const [, , rows] = await Promise.all([put(store, "a", bytes(1)).then(() => put(store, "b", bytes(2))), store.remove(["never"], always), put(store, "c", bytes(3)).then(() => store.load())]);
    must(rows.some(([id]) => id === "c"), "`load` must give a row whose change had resolved before");
    await mustHold(store, [["a", bytes(1)], ["b", bytes(2)], ["c", bytes(3)]], "after changes that had resolved");
  }],
  ["a row stays the same if the caller changes bytes that it gave or got", async (store) => {
    const given = bytes(1, 2, 3);
    await put(store, "a", given);
    given.fill(9);
    (await rowsOf(store)).get("a")?.fill(9);
    await store.change("a", (row) => (row.fill(9), null));
    await mustHold(store, [["a", bytes(1, 2, 3)]], "after the caller changed the bytes that it gave and got");
  }],
  ["after `close`, every call rejects, and `to` is not called", async (store) => {
    if (!store.hasClose) return;
    await put(store, "a", bytes(1));
    await store.close();
    let calls = 0;
    await mustReject(store.change("a", () => ((calls += 1), null)), "`change` must reject after `close`");
    must(calls === 0, "`to` must not be called after `close`");
    await mustReject(store.load(), "`load` must reject after `close`");
    await mustReject(store.remove(["a"], always), "`remove` must reject after `close`");
  }],
];

const REOPENED = [
  ["every change that has resolved is there after reopening", async (store, opened) => {
    const rows = [["every", EVERY_BYTE], ["long", MEBIBYTE], ["empty", bytes()]];
    for (const [id, row] of rows) await put(store, id, row);
    await put(store, "deleted", bytes(1));
    await store.change("deleted", () => undefined);
    await put(store, "removed", bytes(1));
    await store.remove(["removed"], always);
    await store.close();
    await mustHold(await opened(), rows, "after reopening");
  }],
  ["a change that is under way at `close` resolves and is stored, or rejects and is not", async (store, opened) => {
    const changes = Array.from({ length: 20 }, (_, index) => put(store, `row-${index}`, bytes(index)));
    const results = Promise.allSettled(changes);
    await store.close();
    const done = (await results).map(({ status }) => status === "fulfilled");
    await mustHold(await opened(), done.flatMap((isDone, index) => (isDone ? [[`row-${index}`, bytes(index)]] : [])), "after closing while changes were under way");
  }],
];

/** Two concurrent calls interleave differently each time, so they are repeated this often. */
const ROUNDS = 50;

const SHARED = [
  ["two openers see each other's changes", async (one, opened) => {
    const other = await opened();
    await put(one, "a", bytes(1));
    must(isSame(await get(other, "a"), bytes(1)), "`to` must get the row that another opener has put");
    await put(other, "a", bytes(2));
    await put(other, "b", bytes(3));
    await mustHold(one, [["a", bytes(2)], ["b", bytes(3)]], "after another opener's changes");
    await other.remove(["a"], always);
    must((await get(one, "a")) === undefined, "`to` must get undefined for a row that another opener has removed");
  }],
  ["concurrent changes of one row by two openers are all made", async (one, opened) => {
    const other = await opened();
    await Promise.all(Array.from({ length: CHANGES }, (_, index) => (index % 2 === 0 ? one : other).change("n", increment)));
    for (const store of [one, other]) {
      const counted = count(await get(store, "n"));
      must(counted === CHANGES, `${CHANGES} changes of one row by two openers made ${counted}: a change is not one transaction for all openers`);
    }
  }],
  ["concurrent changes of many rows by two openers are all made", async (one, opened) => {
    const other = await opened();
    const rows = Array.from({ length: CHANGES }, (_, index) => [`row-${index}`, bytes(index)]);
    await Promise.all(rows.map(([id, row], index) => put(index % 2 === 0 ? one : other, id, row)));
    for (const store of [one, other]) await mustHold(store, rows, `after two openers had put ${CHANGES} rows at once`);
  }],
  ["no change of another opener comes between `isDone` and the removal of the row", async (one, opened) => {
    const other = await opened();
    for (let round = 0; round < ROUNDS; round += 1) {
      await put(one, "a", bytes(1));
      await Promise.all([one.remove(["a"], (row) => row[0] === 1), put(other, "a", bytes(2))]);
      await mustHold(one, [["a", bytes(2)]], "after a row was put anew while it was removed as done");
    }
  }],
  ["`presence` tells every opener which owners are alive, from their first change until they leave", async (one, opened) => {
    if (one.presence === undefined) return;
    const other = await opened();
    const [gone, stays] = ["a", "b"].map((name) => `${name}-${Math.random().toString(36).slice(2)}`);
    const [leaving, staying] = [one.presence(gone), other.presence(stays)];
    const alive = (presence) => settled(presence.alive(), "alive");
    await Promise.all([put(one, "a", bytes(1)), put(other, "b", bytes(2))]);
    for (const presence of [leaving, staying]) {
      const owners = await alive(presence);
      must(owners.includes(gone) && owners.includes(stays), "`alive` must list every owner that has made a change and has not left");
    }
    leaving.leave();
    const untilMs = Date.now() + LEAVES_MS_MAX;
    for (let owners; (owners = await alive(staying)).includes(gone); await new Promise((resolve) => setTimeout(resolve, 50))) {
      must(Date.now() < untilMs, `\`alive\` must not list an owner that left ${LEAVES_MS_MAX} ms ago`);
    }
    must((await alive(staying)).includes(stays), "`alive` must still list an owner after another one has left");
    staying.leave();
  }],
  ["closing a store leaves its other openers working", async (one, opened) => {
    const other = await opened();
    await put(one, "a", bytes(1));
    await one.close();
    await put(other, "b", bytes(2));
    await mustHold(other, [["a", bytes(1)], ["b", bytes(2)]], "after another opener was closed");
  }],
];
