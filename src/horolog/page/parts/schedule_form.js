// The form of a recurring schedule. Before it can be saved, the broker lists when it would fire, so users need not know
// what a cron expression means, or what happens on a day without 02:30.

import { h, show } from "../core/dom.js";
import { parseDuration } from "../core/durations.js";
import { durationText, timeNode } from "../core/time.js";
import { refusalOf } from "./outcome.js";
import { table } from "./table.js";
import { fieldMs, instantField } from "./when.js";

/** Firings as a table: {firing, nominal, deliver_at_ms, message_id}. */
export function firings(next) {
  return table({
    caption: "Next firings",
    rows: next,
    key: (firing) => String(firing.firing),
    columns: [
      { label: "Firing", kind: "number", cell: (firing) => firing.firing },
      { label: "Local time of the schedule", kind: "time", cell: (firing) => firing.nominal },
      { label: "Due", kind: "time", cell: (firing) => timeNode(firing.deliver_at_ms, { mark: true }) },
      { label: "Planned", narrow: false, cell: (firing) => (firing.message_id ? "waits as a message" : "") },
    ],
  });
}

function select(name, options, chosen) {
  return h("select", { name }, options.map(([value, label]) => h("option", { value, selected: value === chosen }, label)));
}

function makeFields(given) {
  const text = (name, value, more = {}) =>
    h("input", { name, value: value ?? "", autocomplete: "off", spellcheck: "false", ...more });
  const body = h("textarea", { name: "body", rows: 4 });
  body.value = given?.body ?? "";
  return {
    name: text("name", given?.name, { required: true, readonly: Boolean(given) }),
    topic: text("topic", given?.topic, { required: true }),
    cron: text("cron", given?.cron, { placeholder: "0 9 * * 1-5" }),
    every: text("every", given?.every_ms ? durationText(given.every_ms).replaceAll(" ", "") : "", { placeholder: "15m" }),
    zone: text("zone", given?.zone ?? Intl.DateTimeFormat().resolvedOptions().timeZone, { list: "zones-known" }),
    gap: select("gap", [["", "by the expression"], ["shift", "first moment after it"], ["skip", "not on that day"]], given?.cron ? given.gap : ""),
    overlap: select("overlap", [["", "by the expression"], ["first", "once"], ["both", "twice"]], given?.cron ? given.overlap : ""),
    missed: select("missed", [["latest", "the last one"], ["all", "all"], ["skip", "none"]], given?.missed),
    start: instantField({ name: "start" }, given?.start_ms || null),
    end: instantField({ name: "end" }, given?.end_ms || null),
    times: text("times", given?.times || "", { type: "number", min: 1, placeholder: "without end" }),
    jitter: text("jitter", given?.jitter_ms ? durationText(given.jitter_ms).replaceAll(" ", "") : "", { placeholder: "0s" }),
    tag: text("tag", given?.tag),
    keys: text("keys", given?.keys?.join(" ")),
    body,
  };
}

class Mistyped extends Error {
  constructor(field, message) {
    super(message);
    this.code = "bad_request";
    this.field = field;
  }
}

function millis(name, field) {
  if (!field.value.trim()) return 0;
  const ms = parseDuration(field.value);
  if (ms === null || ms < 0) throw new Mistyped(name, `${name}: ${field.value} is not a duration such as 15m or 1h30m`);
  return ms;
}

/** The body of a request; settings without a field in the form stay as they were. */
function wantedOf(fields, given) {
  const value = (field) => field.value.trim();
  const cron = value(fields.cron);
  const everyMs = millis("every", fields.every);
  if (!cron === !everyMs) throw new Mistyped("cron", "Give either a cron expression or an interval.");
  return {
    topic: value(fields.topic),
    ...(given?.body_base64 !== undefined && !fields.body.value ? { body_base64: given.body_base64 } : { body: fields.body.value }),
    ...(value(fields.tag) ? { tag: value(fields.tag) } : {}),
    keys: value(fields.keys).split(/\s+/).filter(Boolean),
    properties: given?.properties ?? {},
    ...(given?.message_group ? { message_group: given.message_group } : {}),
    cron,
    every_ms: everyMs,
    zone: value(fields.zone) || "UTC",
    ...(cron && fields.gap.value ? { gap: fields.gap.value } : {}),
    ...(cron && fields.overlap.value ? { overlap: fields.overlap.value } : {}),
    missed: fields.missed.value,
    start_ms: fieldMs(fields.start.value) ?? 0,
    end_ms: fieldMs(fields.end.value) ?? 0,
    times: Number(fields.times.value) || 0,
    jitter_ms: millis("jitter", fields.jitter),
  };
}

/**
 * The form as a node. `given` is the schedule to change, none for a new one. save(name, body) sends it, also with `dry_run`
 * in the body; saved(schedule) is called afterwards.
 */
export function scheduleForm({ given, save, saved, outcome }) {
  const fields = makeFields(given);
  const preview = h("div", { class: "preview", role: "status" });
  const saveButton = h("button", { type: "button", class: "primary", disabled: true }, given ? "Save the change" : "Create");
  let checked = "";
  const text = () => JSON.stringify([fields.name.value.trim(), wantedOf(fields, given)]);
  // An input after a preview makes the preview invalid.
  const typed = () => {
    saveButton.disabled = true;
    checked = "";
  };
  async function look(event) {
    event.preventDefault();
    try {
      const wanted = wantedOf(fields, given);
      const found = await save(fields.name.value.trim(), { ...wanted, dry_run: true });
      show(preview, h("h3", {}, `The next ${found.next.length} firings`), firings(found.next));
      checked = text();
      saveButton.disabled = false;
      saveButton.focus();
    } catch (error) {
      if (error.code === undefined) throw error;
      show(preview, h("p", { class: "notice bad" }, error.field ? `${error.message}` : refusalOf(error).text));
    }
  }
  async function act() {
    saveButton.disabled = true;
    try {
      if (text() !== checked) return;
      saved(await save(fields.name.value.trim(), wantedOf(fields, given)));
    } catch (error) {
      if (error.code === undefined) throw error;
      outcome.tell(refusalOf(error));
    }
  }
  saveButton.addEventListener("click", act);
  const label = (name, field, more = {}) => h("label", more, h("span", {}, name), field);
  const zones = h("datalist", { id: "zones-known" }, ["UTC", ...(Intl.supportedValuesOf?.("timeZone") ?? [])].map((value) => h("option", { value })));
  return h(
    "form",
    { class: "panel form", onsubmit: look, oninput: typed },
    label("Name", fields.name),
    label("Topic", fields.topic),
    label("Cron expression", fields.cron),
    label("or every", fields.every),
    label("Time zone", fields.zone),
    label("If clocks skip the time", fields.gap),
    label("If clocks repeat the time", fields.overlap),
    label("Missed while down", fields.missed),
    label("Not before", fields.start),
    label("Not after", fields.end),
    label("Number of firings", fields.times),
    label("Jitter up to", fields.jitter),
    label("Tag", fields.tag),
    label("Keys", fields.keys),
    label("Body", fields.body, { class: "whole" }),
    zones,
    h("div", { class: "tools" }, h("button", { type: "submit" }, "Show the next ten firings"), saveButton),
    preview,
  );
}
