// The numbers of the lab that several files need.

/** What each click deposits, in dollars. */
export const AMOUNT = 10;
/** How long both clients wait between two attempts. */
export const RETRY_INTERVAL_MS = 300;
/** How long both clients wait for an answer. */
export const ATTEMPT_TIMEOUT_MS = 2_000;
/** The network delays nothing longer than this, whatever the settings. */
export const DELAY_MS_MAX = 5_000;
/** An attempt that was not heard of for this long did not arrive: its page is gone. */
export const SILENT_MS_MAX = DELAY_MS_MAX + ATTEMPT_TIMEOUT_MS + 3_000;
/** The most clicks of an account. For more, the visitor starts over. */
export const CLICKS_MAX = 500;
/** From this number of attempts of one client at one click, lost ones are not recorded: a client that is offline for hours makes many. */
export const ATTEMPTS_MAX = 60;
/** The clicks of a run, and the pause between two of them. */
export const RUN_CLICKS = 100;
export const RUN_INTERVAL_MS = 60;
