// Recurring schedules: all, one with its next firings, a new one, and a change.

import { api, part } from "../core/api.js";
import { h } from "../core/dom.js";
import { count } from "../core/format.js";
import { go, link, register } from "../core/router.js";
import { durationText, timeNode, timeText } from "../core/time.js";
import { stateBadge } from "../parts/badges.js";
import { confirm } from "../parts/dialog.js";
import { outcomePlace, refusalOf } from "../parts/outcome.js";
import { firings, scheduleForm } from "../parts/schedule_form.js";
import { empty, place } from "../parts/states.js";
import { facts, panel, table } from "../parts/table.js";

const EVERY_MS = 5_000;
const PAGE = 200;
const NEW = "new schedule"; // no schedule can have a name with a blank

const rule = (schedule) => (schedule.cron ? `${schedule.cron} (${schedule.zone})` : `every ${durationText(schedule.every_ms)}`);

function all(root, { query, signal }) {
  const after = query.get("after") ?? "";
  root.append(h("div", { class: "heading" }, h("h1", {}, "Schedules"), h("a", { href: link("schedules", NEW) }, "New schedule …")));
  place(root, {
    signal,
    everyMs: EVERY_MS,
    load: (leaving) => api.get("/v1/schedules", { query: { limit: PAGE, after }, signal: leaving }),
    isEmpty: ({ schedules }) => (schedules.length ? null : empty("No schedules", "A schedule sends a message repeatedly: by a cron expression in a time zone, or at an interval.")),
    draw: ({ schedules }) => [
      table({
        caption: "Schedules",
        rows: schedules,
        key: (each) => each.name,
        href: (each) => link("schedules", each.name),
        columns: [
          { label: "Schedule", kind: "name", cell: (each) => h("a", { href: link("schedules", each.name) }, each.name) },
          { label: "State", cell: (each) => [stateBadge(each.state), each.problem ? h("span", { class: "badge bad", title: each.problem }, "stuck") : null] },
          { label: "When", cell: rule },
          { label: "Topic", kind: "long", narrow: false, cell: (each) => each.topic },
          { label: "Fired", kind: "number", narrow: false, cell: (each) => count(each.fired) },
          { label: "Next", kind: "time", cell: (each) => timeNode(each.planned[0]?.deliver_at_ms) },
        ],
      }),
      schedules.length === PAGE ? h("a", { href: link("schedules", { after: schedules.at(-1).name }), rel: "next" }, "Next page") : null,
    ],
  });
}

function isNew(root, { title }) {
  title("New schedule");
  const outcome = outcomePlace();
  const form = scheduleForm({
    save: (name, body) => api.post("/v1/schedules", { name, ...body }),
    saved: (schedule) => go("schedules", schedule.name),
    outcome,
  });
  root.append(h("h1", {}, "New schedule"), outcome.node, form);
  form.querySelector("input").focus();
}

async function change(root, name, { signal, title }) {
  title(`Change ${name}`);
  const outcome = outcomePlace();
  root.append(h("h1", {}, "Change ", name), outcome.node);
  place(root, {
    signal,
    load: (leaving) => api.get(part`/v1/schedules/${name}`, { signal: leaving }),
    draw: (given) => [
      h("p", { class: "soft" }, "Its planned messages are recalled, and it continues from now."),
      scheduleForm({
        given,
        save: (_, body) => api.put(part`/v1/schedules/${name}`, { ...body, revision: given.revision }),
        saved: () => go("schedules", name),
        outcome,
      }),
    ],
  });
}

function whatItSays(schedule) {
  const until = [schedule.times && `${count(schedule.times)} times`, schedule.end_ms && `until ${timeText(schedule.end_ms, { mark: true })}`].filter(Boolean);
  return facts([
    ["State", stateBadge(schedule.state)],
    ["When", rule(schedule)],
    ["Topic", h("a", { href: link("topics", schedule.topic) }, schedule.topic)],
    ["Ends", until.length ? until.join(", ") : "never"],
    ["If clocks skip the time", schedule.gap],
    ["If clocks repeat the time", schedule.overlap],
    ["Missed while down", schedule.missed],
    ["Jitter", schedule.jitter_ms ? durationText(schedule.jitter_ms) : "none"],
    ["Tag", schedule.tag || "–"],
    ["Keys", schedule.keys.join(" ") || "–"],
    ["Fired", count(schedule.fired)],
    ["Revision", schedule.revision],
    ["Body", schedule.body ?? "(bytes)"],
  ]);
}

const ACTS = {
  pause: {
    label: "Pause …",
    title: "Pause this schedule?",
    body: "Its planned messages are recalled, and nothing fires until it is resumed.",
    act: (name) => api.post(part`/v1/schedules/${name}/pause`, {}),
    done: "Paused.",
  },
  resume: {
    label: "Resume …",
    title: "Resume this schedule?",
    body: "It continues from now; firings that were due meanwhile are skipped.",
    act: (name) => api.post(part`/v1/schedules/${name}/resume`, {}),
    done: "Resumed.",
  },
  remove: {
    label: "Remove …",
    title: "Remove this schedule?",
    body: "The schedule and its planned messages are removed. Messages that are already due stay.",
    act: (name) => api.remove(part`/v1/schedules/${name}`),
    done: "Removed.",
    kind: "danger",
  },
};

function one(root, name, { signal, title }) {
  title(name);
  const outcome = outcomePlace();
  root.append(h("h1", {}, name), outcome.node);
  const button = (which, again) => {
    const { label, title: asks, body, act, done, kind = "" } = ACTS[which];
    const run = async () => {
      const typed = which === "remove" ? name : "";
      if (!(await confirm({ title: asks, body, label: label.replace(" …", ""), kind: kind || "primary", typed }))) return;
      try {
        await act(name);
        outcome.tell({ kind: "good", text: done });
      } catch (error) {
        outcome.tell(refusalOf(error));
      }
      if (which === "remove") go("schedules");
      else again();
    };
    return h("button", { type: "button", class: kind, onclick: run, data: { key: which } }, label);
  };
  const look = place(root, {
    signal,
    everyMs: EVERY_MS,
    load: async (leaving) => {
      const [schedule, { next }] = await Promise.all([
        api.get(part`/v1/schedules/${name}`, { signal: leaving }),
        api.get(part`/v1/schedules/${name}/next`, { query: { limit: 10 }, signal: leaving }),
      ]);
      return { schedule, next };
    },
    draw: ({ schedule, next }) => [
      h(
        "div",
        { class: "tools" },
        h("a", { class: "button", href: link("schedules", name, "change") }, "Change …"),
        schedule.state === "active" ? button("pause", look) : null,
        schedule.state === "paused" ? button("resume", look) : null,
        button("remove", look),
      ),
      schedule.problem ? h("p", { class: "notice bad" }, schedule.problem) : null,
      panel("Next firings", next.length ? firings(next) : empty("It will not fire again"), schedule.state === "paused" ? h("p", { class: "faint" }, "If it were resumed now.") : null),
      panel("Schedule", whatItSays(schedule)),
    ],
  });
}

function schedules(root, context) {
  const [name, what] = context.params;
  if (name === undefined) all(root, context);
  else if (name === NEW) isNew(root, context);
  else if (what === "change") change(root, name, context);
  else one(root, name, context);
}

register({ name: "schedules", title: "Schedules", key: "c", order: 60, closed: true, render: schedules });
