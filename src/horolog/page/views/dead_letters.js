// Dead letters: the groups that have some, the letters of a group, and re-driving them.

import { api, part } from "../core/api.js";
import { h } from "../core/dom.js";
import { parseDuration } from "../core/durations.js";
import { bytes, count, plural } from "../core/format.js";
import { link, register } from "../core/router.js";
import { timeNode, timeText } from "../core/time.js";
import { confirm, dialog } from "../parts/dialog.js";
import { outcomePlace, refusalOf } from "../parts/outcome.js";
import { empty, place } from "../parts/states.js";
import { facts, table } from "../parts/table.js";

const EVERY_MS = 5_000;
const PAGE = 100;
const PATIENCE_MS = 600_000;

const topicOf = (group) => `%DLQ%${group}`;

function groups(root, { signal }) {
  root.append(h("h1", {}, "Dead letters"));
  place(root, {
    signal,
    everyMs: EVERY_MS,
    load: (leaving) => api.get("/v1/dead-letters", { signal: leaving }),
    isEmpty: (found) => (found.groups.length ? null : empty("No group has dead letters", "A message that fails too often becomes a dead letter.")),
    draw: (found) =>
      table({
        caption: "Groups with dead letters",
        rows: found.groups,
        key: (each) => each.group,
        href: (each) => link("dead-letters", each.group),
        columns: [
          { label: "Group", kind: "name", cell: (each) => h("a", { href: link("dead-letters", each.group) }, each.group) },
          { label: "Waiting", kind: "number", cell: (each) => count(each.waiting) },
          { label: "Re-driven", kind: "number", cell: (each) => count(each.redriven) },
          { label: "Topic", kind: "name", narrow: false, cell: (each) => each.topic },
        ],
      }),
  });
}

function letters(found, group, chosen, changed) {
  const box = (letter) => {
    const flip = () => {
      if (node.checked) chosen.add(letter.message_id);
      else chosen.delete(letter.message_id);
      changed();
    };
    const node = h("input", {
      type: "checkbox",
      checked: chosen.has(letter.message_id),
      disabled: letter.redriven,
      "aria-label": `choose ${letter.message_id}`,
      data: { key: `box ${letter.place}` },
      onchange: flip,
    });
    return node;
  };
  return table({
    caption: `Dead letters of ${group}`,
    rows: found.messages,
    key: (letter) => letter.place,
    href: (letter) => link("messages", topicOf(group), letter.message_id),
    columns: [
      { label: "", cell: box },
      { label: "Dead since", kind: "time", cell: (letter) => timeNode(letter.dead_ms) },
      { label: "Message", kind: "name", cell: (letter) => h("a", { class: "id", href: link("messages", topicOf(group), letter.message_id) }, letter.message_id) },
      { label: "Failed in", cell: (letter) => letter.origin_topic },
      { label: "Keys", narrow: false, cell: (letter) => letter.keys.join(" ") },
      { label: "Tag", narrow: false, cell: (letter) => letter.tag },
      { label: "Attempts", kind: "number", cell: (letter) => letter.attempts },
      { label: "Size", kind: "number", narrow: false, cell: (letter) => bytes(letter.size_bytes) },
      { label: "", cell: (letter) => (letter.redriven ? h("span", { class: "badge" }, "re-driven") : "") },
    ],
  });
}

/** Ask for topic, delay and rate; the fields of a request, or null if the user cancelled. */
async function askHow(title) {
  const to = h("input", { placeholder: "where each failed", autocomplete: "off", spellcheck: "false" });
  const delay = h("input", { placeholder: "at once, or 10m", autocomplete: "off" });
  const rate = h("input", { type: "number", min: 1, placeholder: "as fast as it goes" });
  const label = (text, field) => h("label", {}, h("span", {}, text), field);
  const body = h(
    "div",
    { class: "form" },
    h("p", {}, "Each becomes a new message with the same id, keys and body, and its attempts start again. A dead letter is re-driven once."),
    label("To topic", to),
    label("Due in", delay),
    label("Messages a second", rate),
  );
  let wanted = null;
  const read = () => {
    const inMs = delay.value.trim() ? parseDuration(delay.value) : 0;
    if (inMs === null || inMs < 0) return null;
    return {
      ...(to.value.trim() ? { to: to.value.trim() } : {}),
      ...(inMs ? { in_ms: inMs } : {}),
      ...(rate.value ? { rate: Number(rate.value) } : {}),
    };
  };
  const ready = ({ buttons }) => {
    const changed = () => {
      wanted = read();
      buttons[0].disabled = wanted === null;
    };
    for (const field of [to, delay, rate]) field.addEventListener("input", changed);
    changed();
    to.focus();
  };
  const actions = [
    { label: "Dry run", value: true, kind: "primary" },
    { label: "Leave it", value: false },
  ];
  return (await dialog({ title, body, actions, ready })) ? wanted : null;
}

function plan(report) {
  return facts([
    ["Will be sent", count(report.redriven)],
    report.already ? ["Re-driven before", count(report.already)] : null,
    report.refused ? ["Cannot be sent", count(report.refused)] : null,
    report.unknown?.length ? ["Not known", count(report.unknown.length)] : null,
    report.first_due_ms ? ["First due", timeText(report.first_due_ms, { mark: true })] : null,
    report.last_due_ms ? ["Last due", timeText(report.last_due_ms, { mark: true })] : null,
    report.refusals?.length ? ["First refusal", report.refusals[0].error.message] : null,
    report.next ? ["More", "The limit of one request was reached; repeat it to continue."] : null,
  ]);
}

function reportText(report) {
  const parts = [
    report.already && `${count(report.already)} had been re-driven before.`,
    report.refused && `${count(report.refused)} were refused and wait on: ${report.refusals[0]?.error.message ?? ""}`,
    report.unknown?.length && `${count(report.unknown.length)} are not known.`,
    report.next && "There are more: the limit of one request has been reached.",
  ].filter(Boolean);
  const kind = report.refused || report.unknown?.length ? "warn" : "good";
  return { kind, text: `${plural(report.redriven, "dead letter")} re-driven.`, detail: parts.join(" ") };
}

async function redrive(group, ids, outcome) {
  const how = await askHow(ids ? `Re-drive ${plural(ids.length, "dead letter")}` : "Re-drive all that remain");
  if (how === null) return;
  const post = (more) =>
    api.post(part`/v1/groups/${group}/dead-letters/redrive`, { ...how, ...(ids ? { ids } : {}), ...more }, { patienceMs: PATIENCE_MS });
  try {
    const before = await post({ dry_run: true });
    const title = `Re-drive ${plural(before.redriven, "dead letter")}?`;
    const typed = ids ? "" : String(before.redriven);
    if (!before.redriven) outcome.tell({ kind: "warn", text: "None of them can be re-driven.", detail: reportText(before).detail });
    else if (await confirm({ title, body: plan(before), label: "Re-drive", typed })) outcome.tell(reportText(await post({})));
    else outcome.tell({ kind: "", text: "Nothing was changed: it was a dry run." });
  } catch (error) {
    outcome.tell(refusalOf(error));
  }
}

function one(root, group, { query, signal, title }) {
  title(`Dead letters of ${group}`);
  const all = query.get("all") === "true";
  const from = query.get("from") ?? "";
  const chosen = new Set();
  const outcome = outcomePlace();
  const some = h("button", { type: "button", disabled: true }, "Re-drive chosen …");
  const every = h("button", { type: "button", class: "primary" }, "Re-drive all …");
  const changed = () => {
    some.disabled = !chosen.size;
    some.textContent = chosen.size ? `Re-drive ${chosen.size} chosen …` : "Re-drive chosen …";
  };
  const other = link("dead-letters", group, all ? {} : { all: "true" });
  root.append(
    h("div", { class: "heading" }, h("h1", {}, "Dead letters of ", group), h("a", { href: other }, all ? "only those that wait" : "with those that were re-driven")),
    h("div", { class: "tools" }, some, every, h("a", { href: link("search", { topic: topicOf(group) }) }, "Search them")),
    outcome.node,
  );
  const look = place(root, {
    signal,
    everyMs: EVERY_MS,
    load: (leaving) =>
      api.get(part`/v1/groups/${group}/dead-letters`, { query: { limit: PAGE, from, ...(all ? { all } : {}) }, signal: leaving }),
    draw: (found) => {
      every.disabled = !found.waiting;
      return [
        h("p", { class: "soft" }, `${plural(found.waiting, "dead letter")} waiting, ${count(found.redriven)} re-driven.`),
        found.messages.length ? letters(found, group, chosen, changed) : empty("None waits", "All of them were re-driven, or dropped by retention."),
        found.next ? h("a", { href: link("dead-letters", group, { all: all ? "true" : "", from: found.next }), rel: "next" }, "Next page") : null,
      ];
    },
  });
  const act = async (ids) => {
    await redrive(group, ids, outcome);
    if (ids) chosen.clear();
    changed();
    look();
  };
  some.addEventListener("click", () => act([...chosen]));
  every.addEventListener("click", () => act(null));
}

register({
  name: "dead-letters",
  title: "Dead letters",
  key: "d",
  order: 50, closed: true,
  render: (root, context) => (context.params.length ? one(root, context.params[0], context) : groups(root, context)),
});
