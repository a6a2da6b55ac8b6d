// axios with axios-retry, as at the beginning of its README: three retries, for lost connections, and for a 5xx if the method is idempotent.

import axios from "axios";
import axiosRetry from "axios-retry";

axiosRetry(axios, { retries: 3, retryDelay: axiosRetry.exponentialDelay });

export function open(told) {
  return (n) => axios.post(`/orders/${n}`).then(
    () => told(n, "made"),
    () => told(n, "failed"),
  );
}
