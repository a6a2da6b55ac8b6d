// What the module asks of an object's SQLite: one call a statement, for each across the boundary costs.
//
// Invariant: a cursor is read to its end, or has none to read: what is left in the middle would keep its statement from being used again.

/** All rows, each an array of its values. */
export const rowsOf = (sql, statement, values) => [...sql.exec(statement, ...values).raw()];

/** The same as `run` with whole numbers, and behind them bytes, if there are any: where both lie in the module's memory, which moves no sooner than the statement is done. */
export const runPlain = (sql, statement, numbers, bytes) =>
  (bytes.length === 0 ? sql.exec(statement, ...numbers) : sql.exec(statement, ...numbers, bytes)).rowsWritten;

/** For what gives no rows: it is done once it is asked for. Returns how many rows were written. */
export const run = (sql, statement, values) => sql.exec(statement, ...values).rowsWritten;
