// A Worker that is a client. workerd runs each `test` as an event of its own, in one isolate.

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
/** The module is there already, and was made in another event. */
export const again = testOf("-again");
