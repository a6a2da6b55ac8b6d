// Deposits 5: sent until the answer is there, made once.

import { Semel } from "semel";

// Node has no IndexedDB, so what is under way is kept in memory: it outlives lost answers and a restart of the server, but
// not this process. If that dies, read from the server what was done; run again, this script deposits again.
const semel = await Semel.open({ url: "http://127.0.0.1:8787", durability: "memory" });

const response = await semel.fetch("/accounts/bob/deposit", {
  method: "POST",
  headers: { "content-type": "application/json" },
  body: JSON.stringify({ amount: 5 }),
});
console.log(response.status, await response.json());
await semel.close();
