import { runStore } from "./run-store.js";

await runStore((entry) => import(entry));
