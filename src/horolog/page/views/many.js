// Recall, move or hand over all messages of a topic that are due in a window: first a dry run that counts them, then a
// question that the user answers by typing the count.

import { api } from "../core/api.js";
import { brokerNow } from "../core/clock.js";
import { h } from "../core/dom.js";
import { bytes, count, plural } from "../core/format.js";
import { link, register } from "../core/router.js";
import { timeText } from "../core/time.js";
import { confirm } from "../parts/dialog.js";
import { outcomePlace, refusalOf } from "../parts/outcome.js";
import { facts } from "../parts/table.js";
import { underWay } from "../parts/under_way.js";
import { fieldMs, instantField, instantOf, whenFields } from "../parts/when.js";

const PATIENCE_MS = 1_800_000; // to recall a million messages takes seconds, to move them a minute or two, those of the lake longer

const ACTS = {
  recall: { label: "Recall", done: "recalled", name: "recall", path: "/v1/recall/window", kind: "danger" },
  move: { label: "Move", done: "moved", name: "reschedule", path: "/v1/reschedule/window", kind: "primary" },
  "hand-over": { label: "Hand over now", done: "handed over", name: "hand_over", path: "/v1/hand-over/window", kind: "primary" },
};

/** A name for the shift, so that a repeated request shifts only once. */
const operationId = () => `page-${[...crypto.getRandomValues(new Uint32Array(4))].map((each) => each.toString(36)).join("-")}`;

const changedOf = (answer) => answer.cancelled ?? answer.handed_over ?? answer.moved ?? 0;

function whatIsMeant(wanted, found) {
  return facts([
    ["Topic", wanted.topic],
    ["Due from", timeText(wanted.from_ms, { to: "milli", mark: true })],
    ["Due before", timeText(wanted.to_ms, { to: "milli", mark: true })],
    wanted.tag ? ["Tag", wanted.tag] : null,
    ["Messages", count(found.matched)],
    ["Bytes", `${count(found.size_bytes)} (${bytes(found.size_bytes)})`],
  ]);
}

/** The result, compared with the dry run. */
function doneText(act, before, after) {
  const changed = changedOf(after);
  const text = `${plural(changed, "message")} ${changed === 1 ? "was" : "were"} ${act.done}.`;
  if (after.left) return { kind: "warn", text, detail: `${plural(after.left, "message")} had no room for another due time, and wait as before.` };
  const missing = before.matched - changed;
  if (missing === 0) return { kind: "good", text };
  if (missing > 0) {
    const detail = `The dry run counted ${count(before.matched)}: ${count(missing)} of them were handed over, recalled or moved by somebody else in between.`;
    return { kind: "warn", text, detail };
  }
  return { kind: "warn", text, detail: `The dry run counted ${count(before.matched)}: ${count(-missing)} more were sent in between.` };
}

const post = (act, body) => api.post(act.path, body, { patienceMs: PATIENCE_MS });

/** The disk has become full on the way: the broker says how many messages were changed before. */
const stopped = (error) => ({ kind: "bad", code: error.code, text: "It stopped before all of it was complete.", detail: error.message, isUnknown: true });

/** Carry it out. Without an answer, the request can be repeated: the broker does the rest, and nothing twice. */
async function carryOut(act, wanted, before, outcome) {
  outcome.tell({ kind: "", text: "Under way …" });
  try {
    outcome.tell(doneText(act, before, await post(act, wanted)));
  } catch (error) {
    const refusal = error.code === "disk_full" ? stopped(error) : refusalOf(error);
    const again = h("button", { type: "button", onclick: () => carryOut(act, wanted, before, outcome) }, "Repeat the request");
    outcome.tell(refusal, ...(refusal.isUnknown ? [again] : []));
  }
}

async function run(act, wanted, outcome, progress) {
  let before;
  try {
    before = await post(act, { ...wanted, dry_run: true });
  } catch (error) {
    outcome.tell(refusalOf(error));
    return;
  }
  if (!before.matched) {
    outcome.tell({ kind: "", text: "Nothing is pending there: there is nothing to do." });
    return;
  }
  const body = h("div", {}, whatIsMeant(wanted, before), h("p", {}, act.kind === "danger" ? "No consumer will get them. This cannot be undone." : "All of them."));
  const title = `${act.label} ${plural(before.matched, "message")}?`;
  const yes = await confirm({ title, body, label: act.label, kind: act.kind, typed: String(before.matched) });
  if (!yes) {
    outcome.tell({ kind: "", text: `Nothing was changed: ${plural(before.matched, "message")}, ${bytes(before.size_bytes)}.` });
    return;
  }
  const isThis = (row) => row.act === act.name && !row.dry_run && row.topic === wanted.topic && row.from_ms === wanted.from_ms && row.to_ms === wanted.to_ms;
  progress.expect((row) => (isThis(row) ? before.matched : 0));
  await carryOut(act, wanted, before, outcome);
}

function fieldsOf(query) {
  const text = (name, more = {}) => h("input", { name, value: query.get(name) ?? "", autocomplete: "off", spellcheck: "false", ...more });
  const instant = (name) => instantField({ name, required: true }, instantOf(query.get(name)));
  return { topic: text("topic", { required: true }), from: instant("from"), to: instant("to"), tag: text("tag") };
}

function many(root, { query, signal }) {
  root.append(
    h("h1", {}, "Many at once"),
    h("p", { class: "soft" }, "All pending messages of a topic that are due in a window. ", h("a", { href: link("search") }, "Search"), " shows which they are."),
  );
  const fields = fieldsOf(query);
  const when = whenFields({ nowMs: brokerNow(), shift: true });
  const whenBox = h("fieldset", { hidden: true }, h("legend", {}, "New due time"), when.node);
  const choice = h(
    "select",
    { name: "act", onchange: () => (whenBox.hidden = choice.value !== "move") },
    Object.entries(ACTS).map(([name, { label }]) => h("option", { value: name }, label)),
  );
  const outcome = outcomePlace();
  const progress = underWay(signal);
  const button = h("button", { type: "submit", class: "primary" }, "Dry run …");
  async function submitted(event) {
    event.preventDefault();
    const act = ACTS[choice.value];
    const found = choice.value === "move" ? when.read() : {};
    if (found === null) {
      outcome.tell({ kind: "bad", text: "Give the new due time." });
      return;
    }
    const to = found.atMs ?? (found.inMs === undefined ? undefined : brokerNow() + found.inMs);
    const wanted = {
      topic: fields.topic.value.trim(),
      from_ms: fieldMs(fields.from.value),
      to_ms: fieldMs(fields.to.value),
      ...(fields.tag.value.trim() ? { tag: fields.tag.value.trim() } : {}),
      ...(to === undefined ? {} : { new_deliver_at_ms: to }),
      ...(found.shiftMs === undefined ? {} : { shift_ms: found.shiftMs, operation_id: operationId() }),
    };
    button.disabled = true;
    outcome.clear();
    await run(act, wanted, outcome, progress).finally(() => (button.disabled = false));
  }
  const label = (text, field) => h("label", {}, h("span", {}, text), field);
  const form = h(
    "form",
    { class: "panel form", onsubmit: submitted },
    label("What", choice),
    label("Topic", fields.topic),
    label("Due from", fields.from),
    label("Due before", fields.to),
    label("Tag", fields.tag),
    whenBox,
    h("div", { class: "tools" }, button, h("span", { class: "faint" }, "It only counts; nothing is changed before you confirm.")),
  );
  root.append(form, outcome.node, progress.node);
}

register({ name: "many", title: "Many at once", order: 0, under: "search", render: many });
