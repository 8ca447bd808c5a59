// One look at the broker a second for all tabs of a browser: whoever holds the lock asks, and tells the others. A tab
// that nobody sees gives the lock up, so ten open tabs are one request a second, and none when all are hidden.

import { api, watch } from "./api.js";
import { heardClock } from "./clock.js";

const EVERY_MS = 1_000;
const NAME = "horolog-overview";
const STALE_MS = 5_000;
const KEPT = 120; // looks that charts have when they are opened: two minutes

const listeners = new Set();
const channel = new BroadcastChannel(NAME);
const state = { value: null, atMs: 0, error: null, history: [] };

/** The newest look: {value, atMs, error, history}; `value` is that of GET /v1/overview, null before the first. */
export const newest = () => state;

/** Whether what is shown is old: nothing came for a while. */
export const isStale = () => state.error !== null || (state.value !== null && Date.now() - state.atMs > STALE_MS);

/** Call `listener(state)` with every look, and now if there was one; until `signal` ends. */
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

/** Begin; called once. */
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

/** Call `begin` while no other tab of this browser has the lock; where there are no locks each tab is alone. */
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
