// A script for a runtime that may read no files: it uses the entry that needs none. Its arguments are the server and the account.

import * as semel from "semel/inline";
import { roundTrip } from "./round-trip.js";

const [url, account] = process.argv.slice(2);
console.log(JSON.stringify(await roundTrip(semel, { url, account, durability: "memory" })));
