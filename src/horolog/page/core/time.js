// Instants in the chosen zone (this machine's, or UTC), and durations for people.

import { h } from "./dom.js";

const KEY = "horolog.zone";
const two = (n) => String(n).padStart(2, "0");
let zone = localStorage.getItem(KEY) === "utc" ? "utc" : "local";
const changed = new EventTarget();

export const SECOND = 1_000;
export const MINUTE = 60 * SECOND;
export const HOUR = 60 * MINUTE;
export const DAY = 24 * HOUR;

/** "local" or "utc". */
export const zoneName = () => zone;

/** Switch to the other zone; all instants on the page change. */
export function switchZone() {
  zone = zone === "utc" ? "local" : "utc";
  localStorage.setItem(KEY, zone);
  changed.dispatchEvent(new Event("zone"));
}

/** Call a function when the zone changes, until `signal` ends. */
export const onZone = (listener, signal) => changed.addEventListener("zone", listener, { signal });

function fields(ms, utc) {
  const at = new Date(ms);
  return utc
    ? [at.getUTCFullYear(), at.getUTCMonth() + 1, at.getUTCDate(), at.getUTCHours(), at.getUTCMinutes(), at.getUTCSeconds(), at.getUTCMilliseconds()]
    : [at.getFullYear(), at.getMonth() + 1, at.getDate(), at.getHours(), at.getMinutes(), at.getSeconds(), at.getMilliseconds()];
}

function offset(ms) {
  const minutes = -new Date(ms).getTimezoneOffset();
  const sign = minutes < 0 ? "−" : "+";
  return `${sign}${two(Math.floor(Math.abs(minutes) / 60))}:${two(Math.abs(minutes) % 60)}`;
}

/** "2026-11-23 18:03:12" ("day": the date; "minute", "milli": as far as that), in a zone. */
export function timeText(ms, { to = "second", utc = zone === "utc", mark = false } = {}) {
  if (ms === null || ms === undefined || !Number.isFinite(ms) || Math.abs(ms) > 8.64e15) return "–";
  const [year, month, day, hour, minute, second, milli] = fields(ms, utc);
  let text = `${year}-${two(month)}-${two(day)}`;
  if (to !== "day") text += ` ${two(hour)}:${two(minute)}`;
  if (to === "second" || to === "milli") text += `:${two(second)}`;
  if (to === "milli") text += `.${String(milli).padStart(3, "0")}`;
  return mark ? `${text} ${utc ? "UTC" : offset(ms)}` : text;
}

/** Only the time of the day. */
export const clockText = (ms, utc = zone === "utc") => timeText(ms, { utc }).slice(-8);

/** A <time> that follows the chosen zone; its title has both zones. No instant (0, null) is a dash. */
export function timeNode(ms, { to = "second", mark = false } = {}) {
  if (!ms) return h("span", { class: "faint" }, "–");
  const iso = Math.abs(ms) < 8.64e15 ? new Date(ms).toISOString() : "";
  const title = `${timeText(ms, { to: "milli", utc: false, mark: true })}\n${timeText(ms, { to: "milli", utc: true, mark: true })}\n${ms} ms`;
  return h("time", { datetime: iso, title, data: { ms, to, mark: mark ? "1" : "" } }, timeText(ms, { to, mark }));
}

changed.addEventListener("zone", () => {
  for (const node of document.querySelectorAll("time[data-ms]")) {
    const { ms, to, mark } = node.dataset;
    node.textContent = timeText(Number(ms), { to, mark: mark !== "" });
  }
});

const STEPS = [
  [365.25 * DAY, "y", DAY, "d"],
  [DAY, "d", HOUR, "h"],
  [HOUR, "h", MINUTE, "min"],
  [MINUTE, "min", SECOND, "s"],
];

/** "3 d 4 h", "12 min 5 s", "4.2 s", "180 ms". */
export function durationText(ms) {
  if (ms === null || ms === undefined || !Number.isFinite(ms)) return "–";
  const size = Math.abs(ms);
  const sign = ms < 0 ? "−" : "";
  if (size < SECOND) return `${sign}${size < 10 && size % 1 ? size.toFixed(1) : Math.round(size)} ms`;
  if (size < MINUTE) return `${sign}${size < 10 * SECOND ? (size / SECOND).toFixed(1) : Math.floor(size / SECOND)} s`;
  for (const [unit, name, lesser, lesserName] of STEPS) {
    if (size < unit) continue;
    const rest = Math.floor((size % unit) / lesser);
    return `${sign}${Math.floor(size / unit)} ${name}${rest ? ` ${rest} ${lesserName}` : ""}`;
  }
  return "–";
}

/** "in 3 d 4 h", "5 s ago". */
export function fromNowText(ms, nowMs) {
  const rest = ms - nowMs;
  if (Math.abs(rest) < 500) return "now";
  return rest > 0 ? `in ${durationText(rest)}` : `${durationText(-rest)} ago`;
}
