// What the module asks of an object's SQLite: one call a statement, for each across the boundary costs.
//
// Invariants:
// - A cursor is read to its end, or has none to read: what is left in the middle would keep its statement from being used again.
// - What is written without a savepoint is committed whole, or its object is ended before anything of it is committed.
// - Where a statement that failed has undone the whole transaction, as `INSERT OR ROLLBACK` does, the object is ended at once: each statement after it would be
//   a commit of its own, and what those before it have written is gone, whatever is recorded of them.

/** How many statements were run that may have written, whatever their object. */
let written = 0;

/** What reads, if it writes no row. */
const READS = /^(?:\s|--.*\n|\/\*[^]*?\*\/)*(?:select|with|values)\b/i;

/** What ends the object of each database. */
const ends = new WeakMap();

/** `end()` ends the object of a storage, and does not come back: nothing that is not committed yet will be. */
export const endBy = ({ sql }, end) => void ends.set(sql, end);

/** The cursor of a statement in a transaction. */
export function exec(sql, statement, values) {
  try {
    return sql.exec(statement, ...values);
  } catch (error) {
    if (/CONSTRAINT/.test(error) && !isOpen(sql)) ends.get(sql)?.();
    throw error;
  }
}

/** Whether a transaction is open: in one, SQLite sets no such pragma, whatever it was set to before. The runtime has begun one before whatever writes. */
function isOpen(sql) {
  const keys = (set = "") => sql.exec(`${set}PRAGMA foreign_keys`).one().foreign_keys;
  const before = keys();
  return keys(`PRAGMA foreign_keys=${1 - before};`) === before;
}

/** All rows, each an array of its values. */
export function rowsOf(sql, statement, values) {
  const cursor = exec(sql, statement, values);
  // All of the engine's own that read begin so.
  if (statement.startsWith("SELECT ")) return [...cursor.raw()];
  written += 1;
  const rows = [...cursor.raw()];
  if (cursor.rowsWritten === 0 && READS.test(statement)) written -= 1;
  return rows;
}

/** For what gives no rows: it is done once it is asked for. Returns how many rows were written. */
export function run(sql, statement, values) {
  const { rowsWritten } = exec(sql, statement, values);
  written += 1;
  return rowsWritten;
}

/** The same with whole numbers, and behind them bytes, if there are any: where both lie in the module's memory, which moves no sooner than the statement is done. */
export const runPlain = (sql, statement, numbers, bytes) => run(sql, statement, bytes.length === 0 ? numbers : [...numbers, bytes]);

/**
 * A transaction. One that `isLight` writes nothing before all that may ask to be undone is over, and has no savepoint, which is two statements that SQLite compiles each time:
 * what is undone with nothing written needs none. Where something is, and the storage or the module has failed, the object is ended.
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
