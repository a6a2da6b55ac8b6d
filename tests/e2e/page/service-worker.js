// The service worker of the test page. The options of its outbox are in its own address.

import { sendInBackground } from "/sdk/service-worker.js";

sendInBackground(() => JSON.parse(decodeURIComponent(new URL(location).search.slice(1))));
