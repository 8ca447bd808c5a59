// One look at the broker a second for all tabs of a browser: the tab that holds the lock asks, and shares the answer
// with the others. A hidden tab releases the lock, so ten open tabs make one request a second, and hidden ones none.

import { api, watch } from "./api.js";
import { heardClock } from "./clock.js";

const EVERY_MS = 1_000;
const NAME = "horolog-overview";
const STALE_MS = 5_000;
const KEPT = 120; // looks that charts show when they open: two minutes

const listeners = new Set();
const channel = new BroadcastChannel(NAME);
const state = { value: null, atMs: 0, error: null, history: [] };

/** The newest look: {value, atMs, error, history}; `value` is the answer of GET /v1/overview, null before the first. */
export const newest = () => state;

/** Whether the shown values are old, because no answer has come for a while. */
export const isStale = () => state.error !== null || (state.value !== null && Date.now() - state.atMs > STALE_MS);

/** Call `listener(state)` with every look, and now if there was one already, until `signal` ends. */
export function onOverview(listener, signal) {
  listeners.add(listener);
  signal.addEventListener("abort", () => listeners.delete(listener));
  if (state.value || state.error) listener(state);
}

function tell() {
  for (const listener of listeners) listener(state);
}

function take({ value, error }) {
  state.error = error;
  if (value) {
    state.value = value;
    heardClock(value.now_ms, value.clock);
    state.atMs = Date.now();
    if (value.now_ms !== state.history.at(-1)?.now_ms) state.history.push(value);
    if (state.history.length > KEPT) state.history.shift();
  }
  tell();
}

function lead(signal) {
  const spread = (message) => {
    take(message);
    channel.postMessage(message);
  };
  watch({
    load: (leaving) => api.get("/v1/overview", { signal: leaving, patienceMs: 5_000 }),
    everyMs: EVERY_MS,
    signal,
    got: (value) => spread({ value, error: null }),
    failed: ({ status, code, message }) => spread({ value: null, error: { status, code, message } }),
  });
}

/** Start; called once. */
export function startLive() {
  channel.onmessage = ({ data }) => take(data);
  let leading = null;
  const look = () => {
    if (document.hidden) {
      leading?.abort();
      leading = null;
    } else if (leading === null) {
      const mine = (leading = new AbortController());
      whenAlone(mine.signal, () => lead(mine.signal));
    }
  };
  document.addEventListener("visibilitychange", look);
  setInterval(() => isStale() && tell(), EVERY_MS);
  look();
}

/** Call `begin` when this tab gets the lock; where browsers have no locks, each tab asks for itself. */
function whenAlone(signal, begin) {
  if (!navigator.locks) {
    begin();
    return;
  }
  const hold = () =>
    new Promise((release) => {
      signal.addEventListener("abort", release);
      begin();
    });
  navigator.locks.request(NAME, { signal }, hold).catch(() => {}); // left before it was this tab's turn
}
