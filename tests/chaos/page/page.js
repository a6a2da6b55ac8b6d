// The client of the run that is a page, with its outbox in IndexedDB. It tells by a request that it awaits.

import { Semel } from "semel";
import { Client } from "./client.js";

const client = new Client(async (n, answer) => {
  const response = await fetch("/tell", { method: "POST", body: JSON.stringify({ n, ...answer }) });
  if (response.status !== 204) throw new Error(`/tell: ${response.status}`);
});

window.chaos = { open: (options) => client.open(Semel, options), calls: client };
