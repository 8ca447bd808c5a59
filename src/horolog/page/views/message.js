// One message: its fields, why it is late or not, its history and its body.

import { h, show } from "../core/dom.js";
import { bytes, count } from "../core/format.js";
import { mayChange } from "../core/identity.js";
import { oneMessage } from "../core/messages.js";
import { link, register } from "../core/router.js";
import { whyLate } from "../core/why.js";
import { actButtons } from "../parts/acts.js";
import { stateBadge } from "../parts/badges.js";
import { copyButton } from "../parts/clipboard.js";
import { content } from "../parts/content.js";
import { outcomePlace } from "../parts/outcome.js";
import { place } from "../parts/states.js";
import { facts, panel } from "../parts/table.js";
import { timeline } from "../parts/timeline.js";
import { spelledOut } from "../parts/when.js";

const WAITS = new Set(["pending", "lake"]);

const why = (message) =>
  h("ul", { class: "why" }, whyLate(message, message.nowMs).map(({ kind, text }) => h("li", { class: kind }, text)));

function whatItIs(message) {
  const copied = (text) => (text ? [text, " ", copyButton(text, () => text)] : "–");
  return facts([
    ["State", stateBadge(message.state)],
    ["Due", message.deliver_at_ms ? spelledOut(message.deliver_at_ms, message.nowMs) : "at once"],
    ["Topic", h("a", { href: link("topics", message.topic) }, message.topic)],
    ["Id", [h("code", {}, message.message_id), " ", copyButton("the id", () => message.message_id)]],
    ["Keys", message.keys?.length ? message.keys.map((key) => h("span", { class: "keys" }, copied(key))) : "–"],
    ["Tag", message.tag || "–"],
    message.message_group ? ["Message group", message.message_group] : null,
    message.queue_offset >= 0 && !WAITS.has(message.state) ? ["Queue", `${message.queue_id}, offset ${count(message.queue_offset)}`] : null,
    ["Body", `${bytes(message.bytes.length)}${message.isInflated ? ", sent compressed" : ""}`],
    message.recall_handle ? ["Recall handle", copyButton("the recall handle", () => message.recall_handle)] : null,
  ]);
}

function properties(message) {
  const pairs = Object.entries(message.properties ?? {});
  if (!pairs.length) return h("p", { class: "faint" }, "It has none.");
  const rows = pairs.map(([name, value]) => h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, value)));
  return h("div", { class: "scroll" }, h("table", { class: "rows properties" }, h("tbody", {}, rows)));
}

function acts(message, acting) {
  if (message.mayChange) return actButtons(message, acting);
  return h("p", { class: "notice" }, `To recall, move or hand it over you need the right PUB to ${message.topic}.`);
}

async function load(topic, id, signal) {
  const message = await oneMessage(topic, id, signal);
  return { ...message, mayChange: await mayChange(message.topic, signal) };
}

function draw(message, acting) {
  const gap = message.history_complete === false && h("p", { class: "notice" }, "Part of its history is no longer known, or was not read.");
  return [
    WAITS.has(message.state) && message.recall_handle ? acts(message, acting) : null,
    panel("In short", why(message)),
    panel("Message", whatItIs(message)),
    panel("History", gap, timeline(message.history ?? [])),
    panel("Properties", properties(message)),
    panel("Body", message.compressed && !message.isInflated ? h("p", { class: "notice" }, "Compressed in a way that this page does not read: shown as stored.") : null, content(message.bytes, message.message_id)),
  ];
}

/** #/messages/TOPIC/ID; the topic may be missing. */
function view(root, { params, signal, title }) {
  const [id, topic = ""] = params.toReversed();
  if (!id) {
    show(root, h("h1", {}, "A message"), h("p", {}, h("a", { href: link("search") }, "Search for a message")));
    return;
  }
  title(id);
  const outcome = outcomePlace();
  const again = h("button", { type: "button", class: "small" }, "Look again");
  root.append(h("div", { class: "heading" }, h("h1", { class: "id" }, id), again), outcome.node);
  const look = place(root, {
    signal,
    load: (leaving) => load(topic, id, leaving),
    draw: (message) => draw(message, { begun: outcome.clear, done }),
  });
  function done(ended) {
    outcome.tell(ended);
    look();
  }
  again.addEventListener("click", look);
}

register({ name: "messages", title: "Message", order: 0, under: "search", render: view });
