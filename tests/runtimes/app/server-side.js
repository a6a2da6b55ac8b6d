// A part of a page that a framework renders on a server. What it shows needs no outbox, and what it does happens in the browser.

import { Semel } from "semel";

export const render = () => `<button>Deposit</button><script>/* ${typeof Semel.open} */</script>`;
export * as semel from "semel";
