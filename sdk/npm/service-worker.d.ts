// Sends requests after the last tab was closed, in browsers that have Background Sync.

import type { Options, Semel } from "semel";

/**
 * Call it in the service worker, while its script first runs. On a sync event, or on the message `"semel"` of a page that is being left, it opens an
 * outbox and sends the requests that no tab takes care of any more.
 *
 * - `options` must give the options with which your page opens its outbox.
 * - Answers are kept for the next page, unless the options have an `onrecovered`.
 * - It stops when a page sends the message `"semel here"`, and after two minutes. If requests are left then, the sync event fails, and the browser
 *   dispatches it again later.
 */
export function sendInBackground(options: () => Options | Promise<Options>): void;

/**
 * Call it in the page. When requests are waiting and the network or the page goes away, it wakes the service worker by a message and by a sync event.
 * When the page begins, it has the service worker hand back its requests. Without a service worker or Background Sync it does nothing.
 */
export function askToSendInBackground(semel: Semel): void;
