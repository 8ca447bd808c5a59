// Levels of the future: all → year → month → day → hour → second. Each gives its window, its steps,
// and the place of a step in the grid.

import { timeText, zoneName } from "../core/time.js";

const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const WEEKDAYS = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
const MOST_MONTHS = 36; // shown by day at once
const utc = () => zoneName() === "utc";
const numbers = (n, every, first = 0) => Array.from({ length: n }, (_, at) => (at % every === 0 ? String(at + first) : ""));
const at60 = numbers(60, 5);

/** The IANA name of the chosen zone. */
export const zoneOfPage = () => (utc() ? "UTC" : Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC");

/** {year, month (0…), day, hour, minute, second} of an instant in the chosen zone. */
export function local(ms) {
  const at = new Date(ms);
  return utc()
    ? { year: at.getUTCFullYear(), month: at.getUTCMonth(), day: at.getUTCDate(), hour: at.getUTCHours(), minute: at.getUTCMinutes(), second: at.getUTCSeconds() }
    : { year: at.getFullYear(), month: at.getMonth(), day: at.getDate(), hour: at.getHours(), minute: at.getMinutes(), second: at.getSeconds() };
}

function instant(year, month = 0, day = 1) {
  if (utc()) return Date.UTC(year, month, day);
  return new Date(year, month, day).getTime();
}

const HOUR_MS = 3_600_000;
const wholeHour = (ms) => Math.floor(ms / HOUR_MS) * HOUR_MS;
const clock = (ms) => timeText(ms, { to: "minute" }).slice(-5);

/**
 * name     in addresses and on the crumb
 * step     of the histogram
 * window   (ms) → [from, to] around a moment; null: everything
 * text     (ms) → the crumb's text
 * row      (ms) → {key, label}: the row of the step that begins then
 * column   (ms) → its column
 * columns  their texts
 * next     the level that a step opens
 * rowNext  the level that a row's label opens, if it is another one
 */
export const LEVELS = {
  all: {
    step: "day",
    window: () => null,
    text: () => "All",
    row: (ms) => ({ key: local(ms).year, label: String(local(ms).year) }),
    column: (ms) => local(ms).month,
    columns: MONTHS,
    next: "month",
    rowNext: "year",
  },
  year: {
    step: "day",
    window: (ms) => [instant(local(ms).year), instant(local(ms).year + 1)],
    text: (ms) => String(local(ms).year),
    row: (ms) => ({ key: local(ms).month, label: MONTHS[local(ms).month] }),
    column: (ms) => local(ms).day - 1,
    columns: numbers(31, 1, 1).map((text, at) => (at % 5 === 4 || at === 0 ? text : "")),
    next: "day",
    rowNext: "month",
    up: "all",
  },
  month: {
    step: "hour",
    window: (ms) => [instant(local(ms).year, local(ms).month), instant(local(ms).year, local(ms).month + 1)],
    text: (ms) => MONTHS[local(ms).month],
    row: (ms) => ({ key: local(ms).day, label: timeText(ms, { to: "day" }).slice(-5) }),
    column: (ms) => local(ms).hour,
    columns: numbers(24, 3),
    next: "hour",
    rowNext: "day",
    up: "year",
  },
  day: {
    step: "minute",
    window: (ms) => [instant(local(ms).year, local(ms).month, local(ms).day), instant(local(ms).year, local(ms).month, local(ms).day + 1)],
    text: (ms) => `${local(ms).day} (${WEEKDAYS[new Date(Date.UTC(local(ms).year, local(ms).month, local(ms).day)).getUTCDay()]})`,
    row: (ms) => ({ key: wholeHour(ms), label: clock(wholeHour(ms)) }),
    column: (ms) => Math.floor((ms - wholeHour(ms)) / 60_000),
    columns: at60,
    next: "hour",
    rowNext: "hour",
    up: "month",
  },
  hour: {
    step: "second",
    window: (ms) => [wholeHour(ms), wholeHour(ms) + HOUR_MS],
    text: (ms) => clock(wholeHour(ms)),
    row: (ms) => ({ key: Math.floor(ms / 60_000), label: clock(ms) }),
    column: (ms) => Math.floor(ms / 1_000) % 60,
    columns: at60,
    next: "second",
    up: "day",
  },
  second: { text: (ms) => timeText(ms).slice(-8), up: "hour" },
};

/** All pending messages by day, one row a month, unless that is too much. */
const MONTHLY = {
  ...LEVELS.all,
  row: (ms) => ({ key: local(ms).year * 12 + local(ms).month, label: `${MONTHS[local(ms).month]} ${local(ms).year % 100}` }),
  column: LEVELS.year.column,
  columns: LEVELS.year.columns,
  next: "day",
  rowNext: "month",
};

/** The level that is drawn: two years are shown by day, twenty by month. */
export function drawn(name, steps) {
  if (name !== "all" || !steps.length) return LEVELS[name];
  const [first, last] = [local(steps[0][0]), local(steps.at(-1)[0])];
  return (last.year - first.year) * 12 + last.month - first.month < MOST_MONTHS ? MONTHLY : LEVELS.all;
}

/** The levels from all down to `name`. */
export function pathTo(name) {
  const path = [];
  for (let at = name; at; at = LEVELS[at].up) path.unshift(at);
  return path;
}

/** Rows for `heat` from [start, count] steps that end at `toMs`. Steps that meet in one place are one cell. */
export function gridOf(level, steps, toMs) {
  const rows = new Map();
  for (const [at, [startMs, n]] of steps.entries()) {
    const endMs = steps[at + 1]?.[0] ?? toMs;
    // A day of a zone with half hours begins within an hour: its middle is certainly in the day.
    const inside = level.step === "second" || level.step === "minute" || level.step === "hour" ? startMs : startMs + (endMs - startMs) / 2;
    const { key, label } = level.row(inside);
    const column = level.column(inside);
    if (!rows.has(key)) rows.set(key, { label, startMs, n: 0, cells: [] });
    const row = rows.get(key);
    row.n += n;
    const same = row.cells.find((cell) => cell.column === column);
    if (same) Object.assign(same, { endMs, n: same.n + n });
    else row.cells.push({ column, startMs, endMs, n });
  }
  return [...rows.values()];
}
