// axios with axios-retry, configured to also retry a POST that got a 5xx.

import axios from "axios";
import axiosRetry, { isRetryableError } from "axios-retry";

axiosRetry(axios, { retries: 3, retryDelay: axiosRetry.exponentialDelay, retryCondition: isRetryableError });

export function open(told) {
  return (n) => axios.post(`/orders/${n}`).then(
    () => told(n, "made"),
    () => told(n, "failed"),
  );
}
