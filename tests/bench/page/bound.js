// The bound in a browser: what a call that happens exactly once can't do without, written by hand, and nothing else.
//
// It is no SDK: it handles one call at a time, has one row of a fixed length for each, looks at no answer, retries nothing, and recovers nothing.
// It does what no SDK can leave out. Before a request leaves, its row is durable. The same transaction looks at the row of the call before, turns it
// into
// an acknowledgement, and deletes the acknowledgement before that. The answer is read to its end, and is a Response.

const ROWS = "rows";

/**
 * Opens a database. Resolves to a function of `(body, fetched)`, which sends by `fetched(id, acknowledged ids, body)`, and resolves to a Response.
 */
export async function openBound(durability, row) {
  const database = await new Promise((resolve, reject) => {
    const opening = indexedDB.open("bound", 1);
    opening.onupgradeneeded = () => opening.result.createObjectStore(ROWS);
    opening.onsuccess = () => resolve(opening.result);
    opening.onerror = () => reject(opening.error);
  });
  let before;
  let gone;
  return async (body, fetched) => {
    const request = new Request("/", { method: "POST", body });
    const bytes = await request.arrayBuffer();
    const id = crypto.randomUUID();
    await new Promise((resolve, reject) => {
      const transaction = database.transaction(ROWS, "readwrite", { durability });
      Object.assign(transaction, { oncomplete: resolve, onabort: () => reject(transaction.error) });
      const rows = transaction.objectStore(ROWS);
      rows.put(row, id);
      if (gone) rows.delete(gone);
      if (!before) return;
      const found = rows.get(before);
      found.onsuccess = () => rows.put(found.result, before);
    });
    const answer = await fetched(id, before, bytes);
    [before, gone] = [id, before];
    const { status, headers } = answer;
    return new Response(await answer.arrayBuffer(), { status, headers });
  };
}
