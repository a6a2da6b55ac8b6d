// A part of a page as frameworks render it on a server: what it shows needs no outbox, and what it does happens in the browser.

import { Semel } from "semel";

export const render = () => `<button>Deposit</button><script>/* ${typeof Semel.open} */</script>`;
export * as semel from "semel";
