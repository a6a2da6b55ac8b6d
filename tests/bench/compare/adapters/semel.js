// Semel, with its defaults.

import { Semel } from "semel";

export async function open(told) {
  const outcome = (n, { ok }) => told(n, ok ? "made" : "failed");
  const failure = (n, { executed }) => told(n, executed === "no" ? "failed" : "unknown");
  const semel = await Semel.open({
    url: location.origin,
    onrecovered({ url, response, error }) {
      const n = Number(/order-(\d+)/.exec(url)[1]);
      response ? outcome(n, response) : failure(n, error);
    },
  });
  return (n) => semel.fetch(`/accounts/order-${n}/deposit`, { method: "POST", body: '{"amount":1}' }).then(
    (response) => outcome(n, response),
    (error) => failure(n, error),
  );
}
