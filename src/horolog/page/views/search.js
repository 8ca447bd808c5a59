// Find messages: by id or key, by tag, by due time, by state. The address of a search has all
// of it, so that it can be shared.

import { api } from "../core/api.js";
import { brokerNow } from "../core/clock.js";
import { h, show } from "../core/dom.js";
import { bytes, plural } from "../core/format.js";
import { isAdmin } from "../core/identity.js";
import { onKeys } from "../core/keys.js";
import { looksLikeId, searchMessages } from "../core/messages.js";
import { go, link, register } from "../core/router.js";
import { fromNowText, timeNode, timeText } from "../core/time.js";
import { stateBadge } from "../parts/badges.js";
import { empty, place } from "../parts/states.js";
import { table } from "../parts/table.js";
import { fieldMs, instantField, instantOf, isoText } from "../parts/when.js";

const PAGE = 100;
const FIELDS = ["topic", "id", "key", "tag", "from", "to", "state", "after"];
const STATES = ["pending", "delivered", "recalled", "moved", "expired", "lake", "quarantined", "ended"];
const DAY_MS = 86_400_000;

/** A due time as a cell: in the chosen zone, how far away, and in UTC below. */
export function dueCell(ms, nowMs) {
  if (!ms) return h("span", { class: "faint" }, "at once");
  return [
    h("span", { class: "nowrap" }, timeNode(ms, { to: "milli" }), " ", h("span", { class: "soft" }, fromNowText(ms, nowMs))),
    h("span", { class: "below wide-only" }, timeText(ms, { to: "milli", utc: true, mark: true })),
  ];
}

const idLink = (message) =>
  h("a", { href: link("messages", message.topic, message.message_id), class: "id" }, message.message_id);

function results({ messages, next, nowMs }, query) {
  const rows = table({
    caption: "Messages that were found",
    rows: messages,
    key: (message) => `${message.message_id} ${message.deliver_at_ms} ${message.state}`,
    href: (message) => link("messages", message.topic, message.message_id),
    columns: [
      { label: "State", cell: (message) => stateBadge(message.state) },
      { label: "Due", kind: "time", cell: (message) => dueCell(message.deliver_at_ms, nowMs) },
      { label: "Message", kind: "name", cell: idLink },
      { label: "Topic", kind: "long", narrow: false, cell: (message) => h("a", { href: link("topics", message.topic) }, message.topic) },
      { label: "Keys", kind: "long", cell: (message) => message.keys.join(" ") },
      { label: "Tag", kind: "long", narrow: false, cell: (message) => message.tag },
      { label: "Size", kind: "number", narrow: false, cell: (message) => bytes(message.size_bytes) },
    ],
  });
  const pages = h("div", { class: "tools pages" });
  if (query.after) pages.append(h("a", { href: link("search", { ...query, after: "" }) }, "First page"));
  if (next) pages.append(h("a", { href: link("search", { ...query, after: next }), rel: "next" }, "Next page"));
  const shown = `${plural(messages.length, "message")}${next ? " on this page; there are more" : ""}`;
  return [h("p", { class: "soft", role: "status" }, shown), rows, pages];
}

function nothing(query) {
  const hint = query.after
    ? "There are no more."
    : (query.id || query.key) && !query.topic
      ? "No message of any topic has this id. If it is a key, give its topic. Messages that retention has dropped are not found."
    : "Ids and keys find messages in any state; tags and times find pending messages, and messages in the queues of a topic. Messages that retention has dropped are not found.";
  return empty("No message matches", hint);
}

function labelled(text, field) {
  return h("label", {}, h("span", {}, text), field);
}

/** The form; `values()` returns the query. */
function makeForm(query, signal) {
  const topics = h("datalist", { id: "topics-known" });
  const text = (name, value, more = {}) =>
    h("input", { name, value, autocomplete: "off", spellcheck: "false", ...more });
  const topic = text("topic", query.topic, { list: "topics-known", placeholder: "orders" });
  const what = text("what", query.id || query.key, { placeholder: "an id, or a key such as an order number" });
  const tag = text("tag", query.tag);
  const from = instantField({ name: "from" }, instantOf(query.from));
  const to = instantField({ name: "to" }, instantOf(query.to));
  const state = h(
    "select",
    { name: "state" },
    h("option", { value: "" }, "any"),
    STATES.map((each) => h("option", { value: each, selected: each === query.state }, each)),
  );
  const fill = async () => {
    const { topics: known } = await api.get("/v1/topics", { signal });
    show(topics, known.map((each) => h("option", { value: each.name })));
    if (!topic.value && known.length === 1) topic.value = known[0].name;
  };
  fill().catch(() => {}); // only suggestions: the search itself shows the error
  const values = () => {
    const wanted = what.value.trim();
    const named = { topic: topic.value.trim(), state: state.value };
    // An id or a key identifies the message: the window is for searches without them.
    if (wanted) return { ...named, [looksLikeId(wanted) ? "id" : "key"]: wanted };
    return {
      ...named,
      tag: tag.value.trim(),
      from: isoText(fieldMs(from.value)),
      to: isoText(fieldMs(to.value)),
    };
  };
  const window = (fromMs, toMs) => {
    what.value = "";
    go("search", { ...values(), from: isoText(fromMs), to: isoText(toMs) });
  };
  const quick = (label, before, after) =>
    h("button", { type: "button", class: "small", onclick: () => window(brokerNow() - before, brokerNow() + after) }, label);
  const node = h(
    "form",
    { class: "panel form", role: "search", onsubmit: (event) => { event.preventDefault(); go("search", values()); } },
    labelled("Topic", topic),
    labelled("Id or key", what),
    labelled("Tag", tag),
    labelled("Due from", from),
    labelled("Due before", to),
    labelled("State", state),
    topics,
    h(
      "div",
      { class: "tools" },
      h("button", { type: "submit", class: "primary" }, "Search"),
      quick("Due in the past day", DAY_MS, 0),
      quick("Due in the next hour", 0, DAY_MS / 24),
      quick("Due in the next day", 0, DAY_MS),
    ),
  );
  return { node, what };
}

function search(root, { query: given, signal, title }) {
  const query = Object.fromEntries(FIELDS.map((name) => [name, given.get(name) ?? ""]));
  const form = makeForm(query, signal);
  const many = link("many", { topic: query.topic, from: query.from, to: query.to, tag: query.tag });
  root.append(
    h("div", { class: "heading" }, h("h1", {}, "Search"), h("a", { href: many }, "Recall or move many at once …")),
    form.node,
  );
  onKeys("/", "to the field for an id or a key", () => form.what.focus(), signal);
  if (!FIELDS.some((name) => query[name])) {
    root.append(empty("Give an id, a key, or a time", "An id is enough; a key needs its topic. A tag or a time alone finds pending messages."));
    form.what.focus();
    return;
  }
  if (!isAdmin() && !query.topic && !query.id && !query.key) {
    root.append(empty("Give a topic, or an id", "Only administrators see the pending messages of all topics."));
    return;
  }
  title(query.id || query.key || "Search");
  place(root, {
    signal,
    load: (leaving) => searchMessages({ ...query, limit: PAGE }, leaving),
    isEmpty: ({ messages }) => (messages.length ? null : nothing(query)),
    draw: (found) => results(found, query),
  });
}

register({ name: "search", title: "Search", key: "s", order: 40, render: search });
