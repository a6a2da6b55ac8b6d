// The ledger's Worker, with a count of the rows that its objects write: what Cloudflare bills.

import ledger, { NaiveObject as Naive, SemelObject as Semel } from "./ledger.js";

/** An object's storage that adds up `rowsWritten` of every cursor. The engine can't tell it from the real one. */
function counting(storage, counted) {
  const exec = (...statement) => {
    const cursor = storage.sql.exec(...statement);
    counted(() => cursor.rowsWritten);
    return cursor;
  };
  const sql = {
    exec,
    get databaseSize() {
      return storage.sql.databaseSize;
    },
  };
  return { sql, transactionSync: (body) => storage.transactionSync(body) };
}

/** With how many rows were written since the last answer. */
const withRows = (Base) =>
  class extends Base {
    #cursors = [];

    storage() {
      return counting(super.storage(), (rows) => this.#cursors.push(rows));
    }

    run(attempt) {
      const [status, lines, ...rest] = super.run(attempt);
      const rows = this.#cursors.reduce((sum, rowsOf) => sum + rowsOf(), 0);
      this.#cursors = [];
      return [status, `${lines}x-rows-written:${rows}\n`, ...rest];
    }
  };

export const SemelObject = withRows(Semel);
export const NaiveObject = withRows(Naive);
export default ledger;
