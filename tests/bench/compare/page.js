// The page of every library: makes orders on demand, and keeps what the application was told about each.

import { open } from "./adapter.js";

const words = [];
const order = await open((n, word) => void words.push({ n, word }));
window.shop = { order: (n) => void order(n), words };
