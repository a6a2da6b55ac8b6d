// axios with axios-retry, as its README begins: three retries, of lost connections, and of a 5xx where the method is idempotent.

import axios from "axios";
import axiosRetry from "axios-retry";

axiosRetry(axios, { retries: 3, retryDelay: axiosRetry.exponentialDelay });

export function open(told) {
  return (n) => axios.post(`/orders/${n}`).then(
    () => told(n, "made"),
    () => told(n, "failed"),
  );
}
