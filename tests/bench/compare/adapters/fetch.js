// `fetch` in a loop, as many people write it by hand. This is the control: it must do things twice.

const RETRIES = 3;
const DELAY_MS = 200;

export function open(told) {
  return (n) => send(n, RETRIES).then(
    () => told(n, "made"),
    () => told(n, "failed"),
  );
}

async function send(n, retries) {
  try {
    const response = await fetch(`/orders/${n}`, { method: "POST" });
    if (!response.ok) throw new Error(String(response.status));
  } catch (error) {
    if (retries === 0) throw error;
    await new Promise((resolve) => setTimeout(resolve, DELAY_MS));
    return send(n, retries - 1);
  }
}
