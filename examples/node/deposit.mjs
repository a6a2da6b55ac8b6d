// Deposits 5. The SDK sends the deposit until it has the answer; the deposit is made exactly once.

import { fileURLToPath } from "node:url";
import { Semel } from "semel";
import { fileStore } from "semel/file";

const semel = await Semel.open({
  url: "http://127.0.0.1:8787",
  // Each request is on disk before it is sent. If this process dies, the next run finishes the request, and then makes its own deposit.
  store: fileStore(fileURLToPath(new URL("outbox", import.meta.url))),
  onrecovered: ({ method, url, response, error }) => console.log("Of an earlier run:", method, url, response?.status ?? error.code),
});

const response = await semel.fetch("/accounts/bob/deposit", {
  method: "POST",
  headers: { "content-type": "application/json" },
  body: JSON.stringify({ amount: 5 }),
});
console.log(response.status, await response.json());
await semel.close();
