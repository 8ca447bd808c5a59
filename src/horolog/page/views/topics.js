// All topics, and one of them: its figures, queues and settings, and the groups that consume it.

import { lines } from "../charts/lines.js";
import { api, part } from "../core/api.js";
import { brokerNow } from "../core/clock.js";
import { h, show } from "../core/dom.js";
import { count, rate } from "../core/format.js";
import { isAdmin } from "../core/identity.js";
import { newest, onOverview } from "../core/live.js";
import { keepQuery, link, register } from "../core/router.js";
import { durationText, MINUTE } from "../core/time.js";
import { empty, place } from "../parts/states.js";
import { facts, panel, table } from "../parts/table.js";

const EVERY_MS = 5_000;
const SHOWN = 500;
const ASKED_GROUPS = 50; // each is a request
const PERMISSIONS = { 2: "send only", 4: "consume only", 6: "send and consume" };
const sum = (numbers) => numbers.reduce((all, each) => all + each, 0);

/** Messages that are visible in the queues of a topic. */
const stored = (topic) => sum(topic.queue_offsets) - sum(topic.min_offsets);

/** Rates of a topic in the newest look; {} if the look has none for it. */
const ratesOf = (name) => newest().value?.topics.find(({ topic }) => topic === name)?.rates ?? {};

const hidden = (name) => name.startsWith("%RETRY%") || name.startsWith("%DLQ%");

function filterField(query, redraw) {
  const field = h("input", { type: "search", value: query.get("name") ?? "", placeholder: "part of a name", "aria-label": "Part of a name", oninput: changed });
  const own = h("input", { type: "checkbox", checked: query.get("all") === "1", onchange: changed });
  function changed() {
    keepQuery({ name: field.value, all: own.checked ? "1" : "" });
    redraw();
  }
  const node = h("div", { class: "tools" }, field, h("label", {}, own, "with retry and dead-letter topics"));
  return { node, wanted: (name) => name.toLowerCase().includes(field.value.toLowerCase()) && (own.checked || !hidden(name)) };
}

const COLUMNS = [
  { label: "Topic", kind: "name", cell: (topic) => h("a", { href: link("topics", topic.name) }, topic.name) },
  { label: "Type", cell: (topic) => topic.type },
  { label: "Queues", kind: "number", narrow: false, cell: (topic) => count(topic.queues) },
  { label: "Pending", kind: "number", cell: (topic) => count(topic.pending) },
  { label: "Visible", kind: "number", cell: (topic) => count(stored(topic)) },
  { label: "In/s", kind: "number", narrow: false, cell: ({ name }) => rate((ratesOf(name).scheduled ?? NaN) + (ratesOf(name).sent ?? NaN)) },
  { label: "Handed over/s", kind: "number", narrow: false, cell: ({ name }) => rate(ratesOf(name).handed_over) },
  { label: "Received/s", kind: "number", narrow: false, cell: ({ name }) => rate(ratesOf(name).received) },
];

function all(root, { query, signal }) {
  let topics = [];
  const body = h("div");
  const draw = () => show(body, drawAll(topics.filter(({ name }) => filter.wanted(name)), topics.length));
  const filter = filterField(query, draw);
  root.append(h("h1", {}, "Topics"), filter.node);
  place(root, {
    signal,
    everyMs: EVERY_MS,
    load: (leaving) => api.get("/v1/topics", { signal: leaving }),
    isEmpty: (found) => (found.topics.length ? null : empty("No topics yet", isAdmin() ? "horolog topic create NAME, or the first send of a RocketMQ 4.x client, makes one." : "None that you have a right to.")),
    draw: (found) => {
      topics = found.topics.sort((a, b) => b.pending - a.pending || (a.name < b.name ? -1 : 1));
      draw();
      return body;
    },
  });
}

function drawAll(topics, total) {
  if (!topics.length) return empty("No topic has a matching name");
  const more = topics.length > SHOWN ? h("p", { class: "faint" }, `The first ${SHOWN}; filter by a part of the name to see others.`) : null;
  return panel(
    topics.length === total ? `${count(total)} ${total === 1 ? "topic" : "topics"}` : `${count(topics.length)} of ${count(total)} topics`,
    table({ caption: "Topics", rows: topics.slice(0, SHOWN), key: ({ name }) => name, href: ({ name }) => link("topics", name), columns: COLUMNS }),
    more,
  );
}

function settings(topic) {
  const late = topic.late === "hand-over" ? "handed over all the same" : `${topic.late} after ${durationText(topic.late_after_ms)}`;
  return panel(
    "Settings",
    facts([
      ["Type", topic.type],
      ["Queues", `${count(topic.queues)} (${count(topic.read_queues)} read, ${count(topic.write_queues)} written)`],
      ["Permission", PERMISSIONS[topic.perm] ?? `perm ${topic.perm}`],
      ["Too late", late],
      ["Several tags", topic.multi_tag ? "yes" : "no"],
      ["Ordered", topic.order ? "yes" : "no"],
      ["Open transactions", count(topic.open_transactions)],
    ]),
  );
}

function queues(topic) {
  const rows = topic.queue_offsets.map((next, at) => ({ at, next, first: topic.min_offsets[at] }));
  return panel(
    "Queues",
    table({
      caption: "Queues",
      rows,
      key: ({ at }) => at,
      columns: [
        { label: "Queue", kind: "number", cell: ({ at }) => at },
        { label: "First kept", kind: "number", cell: ({ first }) => count(first) },
        { label: "Next offset", kind: "number", cell: ({ next }) => count(next) },
        { label: "Visible", kind: "number", cell: ({ first, next }) => count(next - first) },
      ],
    }),
  );
}

/** The groups that have progress in a topic, each with its lag there. */
async function groupsOf(name, signal) {
  const { groups, next } = await api.get("/v1/groups", { query: { limit: ASKED_GROUPS }, signal });
  const details = await Promise.all(groups.map(({ group }) => api.get(part`/v1/groups/${group}`, { signal }).catch(() => null)));
  const rows = details.filter(Boolean).flatMap((found) => found.topics.filter(({ topic }) => topic === name).map((of) => ({ ...of, group: found.group, consume: found.consume })));
  return { rows, more: next !== null };
}

function groupsPanel({ rows, more }) {
  const rest = more && h("p", { class: "faint" }, `Of the first ${ASKED_GROUPS} groups; `, h("a", { href: link("groups") }, "all groups"));
  if (!rows.length) return panel("Consumer groups", empty("No group has consumed this topic"), rest);
  return panel(
    "Consumer groups",
    table({
      caption: "Consumer groups of this topic",
      rows,
      key: ({ group }) => group,
      href: ({ group }) => link("groups", group),
      columns: [
        { label: "Group", kind: "name", cell: ({ group }) => h("a", { href: link("groups", group) }, group) },
        { label: "Lag", kind: "number", cell: ({ waiting }) => count(waiting) },
        { label: "Leased", kind: "number", cell: ({ leased }) => count(leased) },
        { label: "Oldest", kind: "number", cell: ({ oldest_waiting_ms: ms }) => (ms ? durationText(Math.max(brokerNow() - ms, 0)) : "–") },
        { label: "Members", kind: "number", narrow: false, cell: ({ members }) => count(members) },
        { label: "Takes", narrow: false, cell: ({ consume }) => consume || "–" },
      ],
    }),
    rest,
  );
}

function ratesPanel(name, { history, value }) {
  if (!value) return null;
  const points = (which) => history.map((look) => [look.now_ms, look.topics.find(({ topic }) => topic === name)?.rates?.[which] ?? null]);
  const series = [
    { label: "scheduled", points: points("scheduled") },
    { label: "handed over", points: points("handed_over") },
    { label: "received", points: points("received") },
    { label: "acked", points: points("acked") },
  ];
  return panel("Messages a second", lines({ series, spanMs: 2 * MINUTE, nowMs: value.now_ms, label: `Rates of ${name}` }));
}

function one(root, name, { signal, title }) {
  title(name);
  const links = h("p", { class: "tools" }, h("a", { href: link("future", { topic: name }) }, "pending messages, as a map"), h("a", { href: link("search", { topic: name }) }, "search its messages"));
  const live = h("div", { class: "live" });
  root.append(h("h1", {}, name), links, live);
  place(root, {
    signal,
    everyMs: EVERY_MS,
    load: (leaving) => api.get(part`/v1/topics/${name}`, { signal: leaving }),
    draw: (topic) => [
      h(
        "div",
        { class: "figures" },
        [["Pending", count(topic.pending)], ["Visible", count(stored(topic))], ["Queues", count(topic.queues)]].map(([label, value]) =>
          h("div", { class: "figure" }, h("span", { class: "label" }, label), h("span", { class: "value" }, value)),
        ),
      ),
      h("div", { class: "panels" }, settings(topic), queues(topic)),
    ],
  });
  place(root, { signal, everyMs: 2 * EVERY_MS, load: (leaving) => groupsOf(name, leaving), draw: groupsPanel });
  onOverview((state) => show(live, ratesPanel(name, state)), signal);
}

register({
  name: "topics",
  title: "Topics",
  key: "t",
  order: 20,
  render: (root, context) => (context.params.length ? one(root, context.params[0], context) : all(root, context)),
});
