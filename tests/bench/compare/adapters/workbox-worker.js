// The service worker with Workbox's background sync, as its documentation shows, with its plugin that also queues a 5xx.

import { BackgroundSyncPlugin } from "workbox-background-sync";
import { clientsClaim } from "workbox-core";
import { registerRoute } from "workbox-routing";
import { NetworkOnly } from "workbox-strategies";

self.skipWaiting();
clientsClaim();

const statusPlugin = {
  fetchDidSucceed({ response }) {
    if (response.status >= 500) throw new Error("Server error.");
    return response;
  },
};
const plugins = [statusPlugin, new BackgroundSyncPlugin("orders", { maxRetentionTime: 24 * 60 })];
registerRoute(({ url }) => url.pathname.startsWith("/orders/"), new NetworkOnly({ plugins }), "POST");
