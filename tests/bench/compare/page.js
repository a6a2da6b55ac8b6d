// The page of every library: orders on demand, and keeps what the application was told of each.

import { open } from "./adapter.js";

const words = [];
const order = await open((n, word) => void words.push({ n, word }));
window.shop = { order: (n) => void order(n), words };
