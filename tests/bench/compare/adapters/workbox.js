// The page for Workbox. A failed request goes into the service worker's queue, which tells no page how the request ends.

export async function open(told) {
  const controlled = new Promise((resolve) => (navigator.serviceWorker.oncontrollerchange = resolve));
  await navigator.serviceWorker.register("/worker.js");
  if (!navigator.serviceWorker.controller) await controlled;
  return (n) => fetch(`/orders/${n}`, { method: "POST" }).then(
    ({ ok }) => told(n, ok ? "made" : "failed"),
    () => told(n, "queued"),
  );
}
