// A page that imports the package with its wasm module inside (`semel/inline`). It does nothing with it until it is told to.

import * as semel from "semel/inline";
import { roundTrip } from "./round-trip.js";

globalThis.semel = semel;
globalThis.roundTrip = (settings) => roundTrip(semel, settings);
