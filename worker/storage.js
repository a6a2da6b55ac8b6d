// What the module asks of an object's SQLite: one call a statement, for each across the boundary costs.
//
// Invariant: a cursor is read to its end, or has none to read: what is left in the middle would keep its statement from being used again.

/** All rows, each an array of its values. */
export const rowsOf = (sql, statement, values) => [...sql.exec(statement, ...values).raw()];

/** For what gives no rows: it is done once it is asked for. Returns how many rows were written. */
export const run = (sql, statement, values) => sql.exec(statement, ...values).rowsWritten;
