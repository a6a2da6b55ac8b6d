// The ledger's Worker, which also counts the rows that its objects write, because Cloudflare bills them.

import ledger, { NaiveObject as Naive, SemelObject as Semel } from "./ledger.js";

/** Wraps an object's storage, and adds up `rowsWritten` of every cursor. The engine can't tell it from the real storage. */
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

/** Adds a header to each answer: how many rows were written since the answer before. */
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
