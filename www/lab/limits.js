// The numbers of the lab that more than one file needs.

/** What each click deposits, in dollars. */
export const AMOUNT = 10;
/** Both clients wait so long between two attempts. */
export const RETRY_INTERVAL_MS = 300;
/** Both clients wait so long for an answer. */
export const ATTEMPT_TIMEOUT_MS = 2_000;
/** The network keeps nothing longer than this, whatever the settings. */
export const DELAY_MS_MAX = 5_000;
/** An attempt of which nothing was heard for so long did not arrive: its page is gone. */
export const SILENT_MS_MAX = DELAY_MS_MAX + ATTEMPT_TIMEOUT_MS + 3_000;
/** Clicks of an account. For more, start over. */
export const CLICKS_MAX = 500;
/** Past so many attempts of a click by one client, those that are lost are not recorded: one that waits offline for hours makes many. */
export const ATTEMPTS_MAX = 60;
/** Clicks of a run, and the pause between two of them. */
export const RUN_CLICKS = 100;
export const RUN_INTERVAL_MS = 60;
