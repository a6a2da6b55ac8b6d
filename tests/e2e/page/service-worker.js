// The service worker of the test page: it has the options of the outbox from its own address.

import { sendInBackground } from "/sdk/service-worker.js";

sendInBackground(() => JSON.parse(decodeURIComponent(new URL(location).search.slice(1))));
