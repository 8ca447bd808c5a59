// The future: pending messages, as a heat map from years down to the messages of one second.

import { heat } from "../charts/heat.js";
import { drawn, gridOf, LEVELS, pathTo, zoneOfPage } from "../charts/levels.js";
import { api } from "../core/api.js";
import { brokerNow } from "../core/clock.js";
import { h, show } from "../core/dom.js";
import { bytes, count, plural } from "../core/format.js";
import { isAdmin } from "../core/identity.js";
import { go, link, redraw, register } from "../core/router.js";
import { DAY, onZone, timeNode, timeText } from "../core/time.js";
import { onKeys } from "../core/keys.js";
import { empty, place } from "../parts/states.js";
import { panel, table } from "../parts/table.js";

const EVERY_MS = { second: 2_000, hour: 3_000, day: 5_000 };
const SLOWLY_MS = 15_000;
const LISTED = 200;
let byKeys = false; // a key opened this view from the map, so the next map takes the focus

function crumbs(name, atMs, topic) {
  const path = pathTo(name);
  const links = path.map((level, at) => {
    const text = LEVELS[level].text(atMs);
    const query = { topic, level, at: level === "all" ? "" : atMs };
    return at === path.length - 1 ? h("span", { "aria-current": "page" }, text) : [h("a", { href: link("future", query) }, text), h("span", { class: "faint" }, " › ")];
  });
  return h("nav", { class: "crumbs", "aria-label": "Place in time" }, links);
}

function topicField(topic, signal) {
  const known = h("datalist", { id: "future-topics" });
  const field = h("input", { value: topic, list: "future-topics", placeholder: "all topics", size: 24, spellcheck: "false", autocomplete: "off", onchange: changed });
  function changed() {
    const query = new URLSearchParams(location.hash.split("?")[1] ?? "");
    go("future", { level: query.get("level"), at: query.get("at"), topic: field.value.trim() });
  }
  api
    .get("/v1/pending", { query: { by: "topic" }, signal })
    .then(({ rows }) => {
      const largest = rows.sort((a, b) => b.count - a.count).slice(0, 500);
      show(known, largest.map((row) => h("option", { value: row.topic }, `${row.topic}: ${count(row.count)}`)));
    })
    .catch(() => {}); // the field works without
  return h("label", {}, "Topic", field, known);
}

function describe(cell) {
  const long = cell.endMs - cell.startMs;
  const to = long > DAY / 2 ? "day" : long >= 60_000 ? "minute" : "second";
  const until = long > DAY / 2 && long < 2 * DAY ? "" : long > DAY ? ` to ${timeText(cell.endMs - 1, { to })}` : "";
  return `${timeText(cell.startMs, { to, mark: to !== "day" })}${until} · ${plural(cell.n, "message")}`;
}

function drawMap(found, { name, atMs, topic, cursor, moved }) {
  const level = drawn(name, found.rows);
  const rows = gridOf(level, found.rows, found.to_ms);
  const now = brokerNow();
  const open = (cell) => {
    byKeys = document.activeElement?.classList.contains("heat") ?? false;
    go("future", { topic, level: level.next, at: cell.startMs });
  };
  for (const row of rows) {
    if (level.rowNext) row.open = () => go("future", { topic, level: level.rowNext, at: row.startMs + (row.cells[0].endMs - row.startMs) / 2 });
    row.title = `${row.label}: ${plural(row.n, "message")}`;
  }
  const map = heat({
    rows,
    columns: level.columns,
    describe,
    open,
    start: cursor(),
    moved,
    label: `Pending messages, ${level.text(atMs)} by ${level.step}`,
    isNow: (cell) => cell.startMs <= now && now < cell.endMs,
    isPast: (cell) => cell.endMs <= now,
  });
  return [total(found, name), map];
}

function total(found, name) {
  const lake = found.in_tier > 0 && h("span", { class: "badge warn", title: "Only the lake's table has their minutes and seconds" }, `and ${count(found.in_tier)} in the lake`);
  return h("p", { class: "heat-total" }, h("strong", {}, count(found.total)), ` ${found.total === 1 ? "message waits" : "messages wait"}${name === "all" ? "" : " here"} `, lake);
}

function showMap(root, context, { name, atMs, topic }) {
  const level = LEVELS[name];
  const window = level.window(atMs);
  let cursorMs = null;
  let focused = byKeys;
  byKeys = false;
  place(root, {
    signal: context.signal,
    everyMs: EVERY_MS[name] ?? SLOWLY_MS,
    load: (signal) => histogram(level.step, window, topic, signal),
    isEmpty: (found) => (found.rows.length ? null : empty("Nothing is pending", topic ? "No message of this topic is scheduled." : "No message is scheduled.")),
    draw: (found) => {
      const nodes = drawMap(found, { name, atMs, topic, cursor: () => cursorMs, moved: (cell) => (cursorMs = cell.startMs) });
      const grid = nodes[1].querySelector(".heat");
      grid.dataset.key = "heat";
      if (focused) queueMicrotask(() => grid.focus());
      focused = false;
      return nodes;
    },
  });
}

/** The counts are in UTC if the broker does not know our zone, and by month if there are too many days. */
async function histogram(step, window, topic, signal) {
  const query = { step, topic, from: window?.[0], to: window?.[1], zone: zoneOfPage() };
  const ask = (changed) => api.get("/v1/pending/histogram", { query: { ...query, ...changed }, signal });
  try {
    return await ask({});
  } catch (error) {
    if (error.field === "zone") return ask({ zone: "UTC" });
    if (error.field === "to" && window === null) return ask({ step: "month" });
    throw error;
  }
}

function showSecond(root, { signal }, { atMs, topic }) {
  const from = Math.floor(atMs / 1000) * 1000;
  place(root, {
    signal,
    everyMs: EVERY_MS.second,
    load: (leaving) => api.get("/v1/pending/messages", { query: { topic, from, to: from + 1000, limit: LISTED }, signal: leaving }),
    isEmpty: ({ messages }) => (messages.length ? null : empty("Nothing is pending in this second", from < brokerNow() ? "It has passed: all messages that were due have been handed over." : "")),
    draw: ({ messages }) =>
      panel(
        messages.length < LISTED ? plural(messages.length, "message") : `The first ${LISTED} messages`,
        table({
          caption: "Messages due in this second",
          rows: messages,
          key: (message) => message.recall_handle,
          href: (message) => link("messages", message.topic, message.message_id),
          columns: [
            { label: "Due", kind: "time", cell: (message) => timeNode(message.deliver_at_ms, { to: "milli" }) },
            { label: "Topic", kind: "name", cell: (message) => message.topic },
            { label: "Message", cell: (message) => h("code", {}, message.message_id) },
            { label: "Tag", narrow: false, cell: (message) => message.tag },
            { label: "Keys", narrow: false, cell: (message) => message.keys.join(" ") },
            { label: "Size", kind: "number", narrow: false, cell: (message) => bytes(message.size_bytes) },
          ],
        }),
      ),
  });
}

/** Only administrators see the counts of all topics; other users choose one of their topics. */
function choose(root, { signal }) {
  root.append(h("h1", {}, "The future"));
  place(root, {
    signal,
    load: (leaving) => api.get("/v1/pending", { query: { by: "topic" }, signal: leaving }),
    isEmpty: ({ rows }) => (rows.length ? null : empty("Nothing is pending", "In no topic that you have a right to.")),
    draw: ({ rows }) =>
      panel(
        "Pending messages by topic",
        table({
          caption: "Topics with pending messages",
          rows: rows.sort((a, b) => b.count - a.count),
          key: ({ topic }) => topic,
          href: ({ topic }) => link("future", { topic }),
          columns: [
            { label: "Topic", kind: "name", cell: ({ topic }) => h("a", { href: link("future", { topic }) }, topic) },
            { label: "Pending", kind: "number", cell: ({ count: n }) => count(n) },
          ],
        }),
      ),
  });
}

function future(root, context) {
  const { query, signal } = context;
  const topic = query.get("topic") ?? "";
  if (!topic && !isAdmin()) {
    choose(root, context);
    return;
  }
  const name = Object.hasOwn(LEVELS, query.get("level") ?? "") ? query.get("level") : "all";
  const atMs = Number(query.get("at") ?? "") || brokerNow();
  root.append(
    h("div", { class: "heading" }, h("h1", {}, "The future"), h("span", { class: "faint" }, topic ? `of ${topic}` : "of all topics")),
    h("div", { class: "tools" }, crumbs(name, atMs, topic), h("span", { class: "spacer" }), topicField(topic, signal)),
  );
  const up = LEVELS[name].up;
  if (up) {
    onKeys("Backspace", "the level above, in the map", () => {
      byKeys = true;
      go("future", { topic, level: up, at: up === "all" ? "" : atMs });
    }, signal);
  }
  onZone(redraw, signal);
  if (name === "second") showSecond(root, context, { atMs, topic });
  else showMap(root, context, { name, atMs, topic });
}

register({ name: "future", title: "Future", key: "f", order: 15, render: future });

