import { run } from "./run.js";

await run((entry) => import(entry));
