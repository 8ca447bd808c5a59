// The broker's clock, which may be a simulated one: "due in an hour" is meant by that clock, whatever the browser's
// clock shows. Each look at the broker sets it; in between it runs on with the time of this machine.

const LOOK_MS = 2_000; // a shared look may be a second old when it arrives
let known = null; // {nowMs, atMs of performance.now(), runs}

/** Set the clock after a look; `kind` is "system", or "simulated", which stands still until it is moved. */
export function heardClock(nowMs, kind) {
  const runs = kind === "system";
  const behindMs = known === null ? 0 : brokerNow() - nowMs;
  // Ignore an old look; but a system clock may be set back.
  if (behindMs > 0 && known.runs === runs && (!runs || behindMs < LOOK_MS)) return;
  known = { nowMs, atMs: performance.now(), runs };
}

/** The broker's time; the browser's until the first answer. */
export function brokerNow() {
  if (known === null) return Date.now();
  return known.runs ? Math.round(known.nowMs + performance.now() - known.atMs) : known.nowMs;
}
