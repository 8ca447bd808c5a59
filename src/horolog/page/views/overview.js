// Present figures, from the one look a second that all tabs share.

import { histogram, meter, ranking } from "../charts/bars.js";
import { lines } from "../charts/lines.js";
import { h, show } from "../core/dom.js";
import { bytes, count, percent, plural, rate } from "../core/format.js";
import { onOverview } from "../core/live.js";
import { isAdmin } from "../core/identity.js";
import { link, register } from "../core/router.js";
import { clockText, durationText, fromNowText, MINUTE, onZone, timeNode } from "../core/time.js";
import { empty, errorState, loading, redrawKeepingFocus } from "../parts/states.js";
import { facts, panel, table } from "../parts/table.js";

const SPAN_MS = 2 * MINUTE;
const SHOWN_TOPICS = 12;
const LATE_MS = 1_000; // a message that is overdue for longer gets a colour

/** A large number with its name, and a small note below. */
function figure(label, value, note = "", { kind = "", title } = {}) {
  return h("div", { class: "figure", title }, h("span", { class: "label" }, label), h("span", { class: `value ${kind}` }, value), h("span", { class: "note" }, note));
}

/** "≤ 5 ms": a quantile is known as the bound of its bucket. */
function within(ms, of) {
  if (ms === null) return of ? "> 1 h" : "–";
  return `≤ ${durationText(ms)}`;
}

/** Exact to a second, so a message due within this second is due now. */
function nextDue({ next_due_ms: dueMs, now_ms: nowMs }) {
  if (!dueMs) return "–";
  return dueMs <= nowMs ? "now" : durationText(dueMs - nowMs);
}

const sum = (numbers) => (numbers ?? []).reduce((all, n) => all + n, 0);

function figures(look) {
  const { lateness, rates } = look;
  const recent = sum(lateness?.minute);
  const late = look.overdue_ms > LATE_MS;
  return h(
    "div",
    { class: "figures" },
    figure("Pending", count(look.pending), h("a", { href: link("future") }, "the future")),
    figure(look.next_due_ms > look.now_ms ? "Next due in" : "Next due", nextDue(look), look.next_due_ms ? timeNode(look.next_due_ms) : "nothing waits"),
    figure("Scheduled", rates ? `${rate(rates.scheduled)}/s` : "–", rates?.sent ? `and ${rate(rates.sent)}/s at once` : ""),
    figure("Handed over", rates ? `${rate(rates.handed_over)}/s` : "–", late ? `overdue for ${durationText(look.overdue_ms)}` : "nothing overdue", { kind: late ? "bad" : "" }),
    figure("Lateness p99", within(lateness?.minute_p99_ms ?? null, recent), recent ? `p50 ${within(lateness.minute_p50_ms, recent)}` : "none in the last minute", {
      title: "99 % of the hand-overs of the last minute were at most this late",
    }),
    figure("Received", rates ? `${rate(rates.received)}/s` : "–", rates ? `acked ${rate(rates.acked)}/s` : ""),
    figure("Problems", count(look.problems), h("a", { href: link("problems") }, look.problems ? "what is wrong" : "all checks"), { kind: look.problems ? "bad" : "" }),
  );
}

/** The figures that a user without all rights sees. */
function figuresOfUser({ pending, rates }) {
  const per = (name) => (rates ? `${rate(rates[name])}/s` : "–");
  return h(
    "div",
    { class: "figures" },
    figure("Pending", count(pending), h("a", { href: link("future") }, "the future")),
    figure("Scheduled", per("scheduled"), rates?.sent ? `and ${per("sent")} at once` : ""),
    figure("Handed over", per("handed_over")),
    figure("Received", per("received"), rates ? `acked ${per("acked")}` : ""),
  );
}

function ratesPanel(history, nowMs) {
  const series = [
    ["scheduled", "scheduled"],
    ["handed over", "handed_over"],
    ["received", "received"],
    ["acked", "acked"],
  ].map(([label, name]) => ({ label, points: history.map((look) => [look.now_ms, look.rates?.[name] ?? null]) }));
  return panel("Messages a second", lines({ series, spanMs: SPAN_MS, nowMs, label: "Rates of the last two minutes" }));
}

function latenessPanel({ lateness }) {
  if (!lateness || !sum(lateness.counts)) return panel("Lateness of hand-overs", empty("Nothing was handed over since the start"));
  const { bounds_ms: bounds, counts } = lateness;
  const bars = counts.map((n, at) => {
    const bound = bounds[at];
    const name = bound === undefined ? "more" : durationText(bound).replace(" ", "");
    return { label: name, n, title: bound === undefined ? `more than ${durationText(bounds.at(-1))}` : `at most ${durationText(bound)}` };
  });
  const last = bars.findLastIndex(({ n }) => n > 0);
  const total = sum(counts);
  return panel(
    "Lateness of hand-overs, since the start",
    histogram({ bars: bars.slice(0, Math.max(last + 2, 10)), label: "Hand-overs by lateness" }),
    h("p", { class: "faint" }, `${plural(total, "message")} · p50 ${within(lateness.p50_ms, total)} · p99 ${within(lateness.p99_ms, total)}`),
  );
}

function hotPanel(look) {
  if (!look.hot_seconds.length) return panel("Fullest seconds, this hour and the next", empty("Nothing is due in this hour and the next"));
  const rows = look.hot_seconds.map(({ at_ms: atMs, count: n }) => ({
    name: h("a", { href: link("future", { level: "second", at: atMs }), title: fromNowText(atMs, look.now_ms) }, clockText(atMs)),
    n,
  }));
  return panel("Fullest seconds, this hour and the next", ranking(rows));
}

function topicsPanel(look) {
  const all = [
    h("a", { href: link("topics") }, isAdmin() ? plural(look.topics_total, "topic") : "all your topics"),
    " · ",
    h("a", { href: link("groups") }, isAdmin() ? plural(look.groups_total, "group") : "your groups"),
  ];
  const busy = look.topics.filter(({ pending, rates }) => pending || sum(Object.values(rates ?? {})));
  if (!busy.length) return panel("Topics", empty("No topic is active"), h("p", { class: "faint" }, all));
  const per = (name) => (topic) => (topic.rates ? rate(topic.rates[name]) : "–");
  return panel(
    "Topics",
    table({
      caption: "Topics with the most pending messages",
      rows: busy.slice(0, SHOWN_TOPICS),
      key: ({ topic }) => topic,
      href: ({ topic }) => link("topics", topic),
      columns: [
        { label: "Topic", kind: "name", cell: ({ topic }) => topic },
        { label: "Pending", kind: "number", cell: ({ pending }) => count(pending) },
        { label: "Scheduled/s", kind: "number", narrow: false, cell: per("scheduled") },
        { label: "Handed over/s", kind: "number", cell: per("handed_over") },
        { label: "Received/s", kind: "number", narrow: false, cell: per("received") },
      ],
    }),
    h("p", { class: "faint" }, all),
  );
}

function brokerPanel(look) {
  const { disk, connections, waiting } = look;
  const used = disk && disk.size ? 1 - disk.free / disk.size : null;
  const doors = Object.entries(connections).map(([name, n]) => `${name} ${count(n)}`);
  const kept = Object.entries(waiting).filter(([, n]) => n).map(([name, n]) => `${count(n)} ${name === "tier" ? "in the lake" : name}`);
  return panel(
    "Broker",
    disk && [
      h("div", { class: "heading" }, h("span", { class: "soft" }, `Disk ${percent(used)} used`), h("span", { class: "faint" }, `${bytes(disk.free)} free · ${bytes(disk.headroom)} until sends are refused · ${bytes(disk.used)} in log, hours and runs`)),
      meter(used ?? 0, "Disk used"),
    ],
    facts([
      ["Connections", doors.join(" · ") || "–"],
      ["Waiting", kept.join(" · ") || "–"],
      ["Loaded", plural(look.loaded, "message")],
      ["Leases", count(look.leases)],
      ["Parked polls", count(look.parked_polls)],
      ["Version", look.version],
      ["Epoch", count(look.epoch)],
      ["Clock", look.clock === "simulated" ? h("span", { class: "badge warn" }, "simulated") : "system"],
    ]),
  );
}

function overview(root, { signal }) {
  const body = h("div", { class: "live" }, loading());
  root.append(h("h1", {}, "Overview"), body);
  const draw = ({ value, error, history }) => {
    if (!value) {
      if (error) show(body, errorState(error));
      return;
    }
    const parts = isAdmin()
      ? [
          figures(value),
          h("div", { class: "panels" }, ratesPanel(history, value.now_ms), latenessPanel(value)),
          h("div", { class: "panels" }, hotPanel(value), brokerPanel(value)),
          topicsPanel(value),
        ]
      : [h("p", { class: "soft" }, "Only topics that you have a right to."), figuresOfUser(value), ratesPanel(history, value.now_ms), topicsPanel(value)];
    redrawKeepingFocus(body, () => show(body, parts));
  };
  let shown = {};
  onOverview((state) => draw((shown = state)), signal);
  onZone(() => draw(shown), signal);
}

register({ name: "", title: "Overview", key: "o", order: 10, render: overview });
