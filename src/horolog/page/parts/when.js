// Fields for instants and for durations. An instant is typed in the zone of the page, and shown in both zones.

import { h, show } from "../core/dom.js";
import { parseDuration } from "../core/durations.js";
import { fromNowText, timeText, zoneName } from "../core/time.js";


/** The text of a datetime-local field for an instant, in the chosen zone. */
export function fieldText(ms) {
  return ms === null || ms === undefined ? "" : timeText(ms, { to: "milli" }).replace(" ", "T").replace(/\.000$/, "");
}

/** The instant of a text in an address: epoch milliseconds, or a date with a zone; null for none. */
export function instantOf(text) {
  const ms = /^\d+$/.test(text ?? "") ? Number(text) : Date.parse(text ?? "");
  return Number.isFinite(ms) ? ms : null;
}

/** The instant in such a field; null for none. */
export function fieldMs(text) {
  if (!text) return null;
  const whole = text.length === 16 ? `${text}:00` : text;
  const ms = Date.parse(zoneName() === "utc" ? `${whole}Z` : whole);
  return Number.isFinite(ms) ? ms : null;
}

/** A field for an instant. */
export function instantField(properties, ms = null) {
  const field = h("input", { type: "datetime-local", step: "0.001", max: "9999-12-31T23:59:59.999", ...properties });
  field.value = fieldText(ms);
  return field;
}

/** An instant in both zones, and how far away it is, to read before agreeing. */
export function spelledOut(ms, nowMs) {
  const utc = timeText(ms, { to: "milli", utc: true, mark: true });
  const local = timeText(ms, { to: "milli", utc: false, mark: true });
  const same = local.slice(0, 23) === utc.slice(0, 23); // the machine's zone is UTC
  return `${same ? utc : `${local} · ${utc}`} · ${fromNowText(ms, nowMs)}`;
}

/**
 * "at a time" or "from now": {node, read() → {atMs} or {inMs} or null, focus()}. `changed` is called with every change.
 * `shift` adds a third way, a shift of the present time: {shiftMs}.
 */
export function whenFields({ nowMs, atMs = nowMs + 3_600_000, shift = false, changed = () => {} }) {
  const spelled = h("p", { class: "spelled", role: "status" });
  const at = instantField({ "aria-label": "new due time" }, Math.ceil(atMs / 60_000) * 60_000);
  const after = h("input", { "aria-label": "how long from now", placeholder: "1h30m", autocomplete: "off" });
  const by = h("input", { "aria-label": "shift by", placeholder: "2h or -15m", autocomplete: "off" });
  const ways = [
    ["at", "At", at],
    ["in", "In", after],
    ...(shift ? [["by", "Each by", by]] : []),
  ].map(([value, label, field]) => {
    const radio = h("input", { type: "radio", name: "when", value });
    field.addEventListener("focus", () => choose(radio));
    field.addEventListener("input", () => choose(radio));
    return { value, radio, field, node: h("div", { class: "way" }, h("label", {}, radio, label), field) };
  });
  const choose = (radio) => {
    radio.checked = true;
    drawn();
  };
  const chosen = () => ways.find(({ radio }) => radio.checked).value;
  function read() {
    if (chosen() === "at") {
      const ms = fieldMs(at.value);
      return ms === null ? null : { atMs: ms };
    }
    const ms = parseDuration((chosen() === "in" ? after : by).value);
    if (ms === null || (chosen() === "in" && ms < 0)) return null;
    return chosen() === "in" ? { inMs: ms } : { shiftMs: ms };
  }
  function drawn() {
    const found = read();
    const text = found?.atMs ?? (found?.inMs === undefined ? null : nowMs + found.inMs);
    if (text !== null) show(spelled, spelledOut(text, nowMs));
    else if (found) show(spelled, "Each becomes due this much later, or earlier with a minus sign.");
    else show(spelled, chosen() === "at" ? "Give a date and a time." : "Give a duration such as 90s, 1h30m or 2d.");
    changed(found);
  }
  for (const { radio } of ways) radio.addEventListener("change", drawn);
  ways[0].radio.checked = true;
  drawn();
  return { node: h("div", { class: "when" }, ways.map(({ node }) => node), spelled), read, focus: () => at.focus() };
}

/** "2026-11-23T18:00:00.000Z", for queries. */
export const isoText = (ms) => (ms === null ? "" : new Date(ms).toISOString());

