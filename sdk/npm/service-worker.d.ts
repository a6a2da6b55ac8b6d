// Sending after the last tab is closed, where the browser has Background Sync.

import type { Options, Semel } from "semel";

/**
 * In the service worker, in its first turn: on a sync event it opens an outbox with what `options` gives, which is what the page opens
 * its own with, and sends what no tab sees to any more. Answers are kept for the next page, unless `onrecovered` is among the options.
 */
export function sendInBackground(options: () => Options | Promise<Options>): void;

/**
 * In the page: asks the browser to wake its service worker when something waits and the network or the page is gone. Where there is no
 * service worker or no Background Sync, it does nothing.
 */
export function askToSendInBackground(semel: Semel): void;
