// Numbers for people: whole, short, bytes, rates.

const GROUPED = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const SHORT = new Intl.NumberFormat("en-US", { notation: "compact", maximumSignificantDigits: 3 });

const known = (n) => n !== null && n !== undefined && Number.isFinite(Number(n));

/** 1 234 567 with thin spaces: exact. */
export const count = (n) => (known(n) ? GROUPED.format(n).replaceAll(",", "\u202f") : "–");

/** 1.23M: for axes and small cells; give the exact one in the title. */
export const short = (n) => (known(n) ? SHORT.format(n) : "–");

/** "1 message", "2 messages". */
export const plural = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;

/** "12.5 MiB". */
export function bytes(n) {
  if (!known(n)) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let at = 0;
  let rest = Number(n);
  while (Math.abs(rest) >= 1024 && at < units.length - 1) {
    rest /= 1024;
    at += 1;
  }
  return `${at && rest < 100 ? rest.toFixed(1) : Math.round(rest)} ${units[at]}`;
}

/** Events a second. */
export function rate(n) {
  if (!known(n)) return "–";
  if (n === 0) return "0";
  return n < 10 ? Number(n).toFixed(n < 1 ? 2 : 1) : n < 10_000 ? count(Math.round(n)) : short(n);
}

/** "12.5 %". */
export const percent = (share) => (known(share) ? `${(share * 100).toFixed(share < 0.1 ? 1 : 0)} %` : "–");
