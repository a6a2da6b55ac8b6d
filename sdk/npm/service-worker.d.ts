// Sending after the last tab is closed, where the browser has Background Sync.

import type { Options, Semel } from "semel";

/**
 * In the service worker, in its first turn: on a sync event, or when a page that goes says so by the message `"semel"`, it opens an outbox with what
 * `options` gives, which is what the page opens its own with, and sends what no tab sees to any more. Answers are kept for the next page, unless
 * `onrecovered` is among the options. What is left when a page says `"semel here"`, or after two minutes, fails the event, and the browser asks again.
 */
export function sendInBackground(options: () => Options | Promise<Options>): void;

/**
 * In the page: wakes its service worker, by a message and by a sync event, when something waits and the network or the page is gone; and has what
 * it holds handed back when the page begins. Where there is no service worker or no Background Sync, it does nothing.
 */
export function askToSendInBackground(semel: Semel): void;
