// Durations as people type them: 90s, 1h30m, 2 d. The same units as those of the horolog command.

const UNITS = { ms: 1, s: 1_000, m: 60_000, min: 60_000, h: 3_600_000, d: 86_400_000, w: 604_800_000 };
const WHOLE = /^(?:\d+(?:\.\d+)?(?:ms|min|s|m|h|d|w))+$/;
const PART = /(\d+(?:\.\d+)?)(ms|min|s|m|h|d|w)/g;
const MOST = 36_525 * UNITS.d;

/** Milliseconds, rounded up; null if the text is no duration. A leading minus is for shifts. */
export function parseDuration(text) {
  const compact = text.trim().toLowerCase().replaceAll(/[\s_]/g, "").replace("−", "-");
  const sign = compact.startsWith("-") ? -1 : 1;
  const size = compact.replace(/^[+-]/, "");
  if (!WHOLE.test(size)) return null;
  let sum = 0;
  for (const [, number, unit] of size.matchAll(PART)) sum += Number(number) * UNITS[unit];
  return sum > MOST ? null : sign * Math.ceil(sum);
}
