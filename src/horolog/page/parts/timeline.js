// The history of a message: each event, its time, and the time since the event before.

import { h } from "../core/dom.js";
import { link } from "../core/router.js";
import { durationText, timeNode, timeText } from "../core/time.js";

const WORDS = {
  prepared: "prepared as a half message",
  accepted: "accepted",
  moved: "moved",
  offloaded: "went into the lake",
  handed_over: "handed over",
  leased: "leased",
  lease_changed: "lease changed",
  passed_over: "passed over by a filter",
  acked: "acknowledged",
  consumed: "consumed",
  reset: "group set back to it",
  sent_back: "sent back for another attempt",
  dead_lettered: "became a dead letter",
  redriven: "re-driven",
  recalled: "recalled",
  expired: "dropped as too late",
  quarantined: "set aside as damaged",
};
const KINDS = { handed_over: "good", acked: "good", dead_lettered: "bad", expired: "bad", recalled: "warn", quarantined: "bad" };

const INSTANTS = { due_ms: "due", deliver_at_ms: "due", from_due_ms: "was due" };

/** A detail as text: instants and durations in words, everything else as it is. */
function detailText(name, value) {
  if (value === null || value === undefined || value === "") return null;
  if (typeof value === "object") return `${name} ${JSON.stringify(value)}`;
  if (name === "lateness_ms") return `${durationText(Number(value))} after it was due`;
  if (INSTANTS[name]) return `${INSTANTS[name]} ${timeText(Number(value), { to: "milli", mark: true })}`;
  if (name.endsWith("_ms")) return `${name.replace(/_ms$/, "").replaceAll("_", " ")} ${durationText(Number(value))}`;
  return `${name.replaceAll("_", " ")} ${value}`;
}

function details(detail) {
  const { group, ...rest } = detail ?? {};
  const texts = Object.entries(rest).map(([name, value]) => detailText(name, value)).filter((text) => text !== null);
  return [
    group && ["group ", h("a", { href: link("groups", group) }, group)],
    group && texts.length ? " · " : "",
    texts.join(" · "),
  ];
}

/** Nodes for the events of GET /v1/messages/{id}. */
export function timeline(history) {
  let beforeMs = null;
  const rows = history.map(({ event, at_ms, detail }) => {
    const after = at_ms !== null && beforeMs !== null ? durationText(at_ms - beforeMs) : "";
    if (at_ms !== null) beforeMs = at_ms;
    return h(
      "li",
      { class: KINDS[event] ?? "", data: { event } },
      h("span", { class: "at" }, at_ms === null ? h("span", { class: "faint" }, "time unknown") : timeNode(at_ms, { to: "milli" })),
      h("span", { class: "after faint", title: "after the one before" }, after && `+${after}`),
      h("strong", {}, WORDS[event] ?? String(event).replaceAll("_", " ")),
      h("span", { class: "detail" }, details(detail)),
    );
  });
  return h("ol", { class: "timeline" }, rows);
}
