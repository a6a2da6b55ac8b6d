// Deposits 5: sent until the answer is there, made once.

import { fileURLToPath } from "node:url";
import { Semel } from "semel";
import { fileStore } from "semel/file";

const semel = await Semel.open({
  url: "http://127.0.0.1:8787",
  // What is under way is on disk before it is sent. If this process dies, the next run goes on with it, and deposits its own.
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
