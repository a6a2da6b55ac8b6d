// Runs the module's statements on an object's SQLite, with one call across the boundary for each, because calls across it are expensive.
//
// Invariants:
// - A cursor is read to its end, or has no rows. A cursor that is left in the middle would keep its statement from being reused.
// - Writes without a savepoint are committed as a whole, or the object is ended before any of them is committed.
// - If a failed statement has rolled back the whole transaction, as `INSERT OR ROLLBACK` does, the object is ended at once. Otherwise each later statement
//   would be a commit of its own, and records would claim effects that were rolled back.

/** How many statements were run that may have written, over all objects. */
let written = 0;

/** Statements that only read, provided that they wrote no row. */
const READS = /^(?:\s|--.*\n|\/\*[^]*?\*\/)*(?:select|with|values)\b/i;

/** For each database, the function that ends its object. */
const ends = new WeakMap();

/** Sets the function that ends the object of a storage. `end()` does not return, and whatever is not committed yet is lost. */
export const endBy = ({ sql }, end) => void ends.set(sql, end);

/** Runs a statement in a transaction, and returns its cursor. */
export function exec(sql, statement, values) {
  try {
    return sql.exec(statement, ...values);
  } catch (error) {
    if (/CONSTRAINT/.test(error) && !isOpen(sql)) ends.get(sql)?.();
    throw error;
  }
}

/** Whether a transaction is open: SQLite ignores this pragma inside of one. The runtime begins a transaction before the first statement that writes. */
function isOpen(sql) {
  const keys = (set = "") => sql.exec(`${set}PRAGMA foreign_keys`).one().foreign_keys;
  const before = keys();
  return keys(`PRAGMA foreign_keys=${1 - before};`) === before;
}

/** All rows, each an array of its values. */
export function rowsOf(sql, statement, values) {
  const cursor = exec(sql, statement, values);
  // All of the engine's own reads begin like this.
  if (statement.startsWith("SELECT ")) return [...cursor.raw()];
  written += 1;
  const rows = [...cursor.raw()];
  if (cursor.rowsWritten === 0 && READS.test(statement)) written -= 1;
  return rows;
}

/** Runs a statement that returns no rows. Returns how many rows it wrote. */
export function run(sql, statement, values) {
  const { rowsWritten } = exec(sql, statement, values);
  written += 1;
  return rowsWritten;
}

/** Like `run`, with integers and then, if there are any, bytes. Both are views of the module's memory, which does not move before the statement is done. */
export const runPlain = (sql, statement, numbers, bytes) => run(sql, statement, bytes.length === 0 ? numbers : [...numbers, bytes]);

/**
 * Runs `body` in a transaction. A light one writes only after the last step that may ask for a rollback, so it needs no savepoint, which would cost two
 * statements that SQLite compiles each time. If storage or module fail after a light transaction has written, the object is ended.
 */
export function transact(storage, isLight, body) {
  if (!isLight) return storage.transactionSync(body);
  const before = written;
  try {
    return body();
  } catch (error) {
    if (written !== before) ends.get(storage.sql)();
    throw error;
  }
}
