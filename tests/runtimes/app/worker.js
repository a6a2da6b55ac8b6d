// A Worker that is a client. workerd runs each `test` as a separate event, in one isolate.

import * as semel from "semel";
import { roundTrip } from "./round-trip.js";

const testOf = (suffix) => ({
  async test(_controller, { URL_OF_LEDGER }) {
    const account = `workerd${suffix}`;
    const result = await roundTrip(semel, { url: URL_OF_LEDGER, account, durability: "memory" });
    console.log(`told ${JSON.stringify({ exports: Object.keys(semel).sort(), ...result })}`);
  },
});

export default testOf("");
/** The wasm module exists already: it was instantiated in another event. */
export const again = testOf("-again");
