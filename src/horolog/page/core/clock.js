// The broker's clock, which may be a simulated one: what is due "in an hour" is so by that clock, whatever the
// browser's says. Each look at the broker tells it; in between it goes on as this machine's time passes.

const LOOK_MS = 2_000; // a look that is shared may be a second old when it comes
let known = null; // {nowMs, atMs of performance.now(), runs}

/** A look has told it; `kind` is "system" or "simulated", which stands still until somebody moves it. */
export function heardClock(nowMs, kind) {
  const runs = kind === "system";
  const behindMs = known === null ? 0 : brokerNow() - nowMs;
  // An old look tells nothing new; but a system clock may be set back.
  if (behindMs > 0 && known.runs === runs && (!runs || behindMs < LOOK_MS)) return;
  known = { nowMs, atMs: performance.now(), runs };
}

/** The broker's time; the browser's only while no answer has ever come. */
export function brokerNow() {
  if (known === null) return Date.now();
  return known.runs ? Math.round(known.nowMs + performance.now() - known.atMs) : known.nowMs;
}
