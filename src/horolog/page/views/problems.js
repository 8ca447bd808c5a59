// Checks, the problems that they found, repairs, and the lake.

import { api } from "../core/api.js";
import { h } from "../core/dom.js";
import { bytes, count, plural } from "../core/format.js";
import { register } from "../core/router.js";
import { timeNode } from "../core/time.js";
import { empty, place } from "../parts/states.js";
import { facts, panel, table } from "../parts/table.js";

const EVERY_MS = 5_000;
const badge = (ok) => h("span", { class: `badge ${ok ? "good" : "bad"}` }, ok ? "ok" : "not ok");

function checks({ healthy, checks: rows }) {
  return panel(
    healthy ? "All checks pass" : "Some checks fail",
    table({
      caption: "Checks",
      rows,
      key: ({ name }) => name,
      columns: [
        { label: "Check", kind: "name", cell: ({ name }) => name },
        { label: "", cell: ({ ok }) => badge(ok) },
        { label: "Says", cell: ({ detail }) => detail || h("span", { class: "faint" }, "nothing to say") },
      ],
    }),
  );
}

function problems({ problems: texts, repairs, holes }) {
  const repaired = h("p", { class: "faint" }, `${plural(repairs, "damaged part")} repaired since the directory was created; ${plural(holes, "message")} of queues unreadable since the start.`);
  if (!texts.length) return panel("Problems", empty("No problems", "Damage, a full disk or an unreadable lake would be listed here."), repaired);
  return panel(plural(texts.length, "problem"), h("ul", { class: "notice bad" }, texts.map((text) => h("li", {}, text))), repaired);
}

function log(broker) {
  return panel(
    "Log",
    facts([
      ["Kept", bytes(broker.log_end - broker.log_start)],
      ["End", count(broker.log_end)],
      ["Not yet committed", bytes(broker.log_end - broker.commit_position)],
      ["Not yet on the disk", bytes(Math.max(broker.log_end - broker.durable_position, 0))],
      ["After the checkpoint", bytes(broker.log_end - broker.checkpoint_position)],
      ["Handed over", count(broker.handed_over)],
      ["Recalled or moved", count(broker.recalled)],
      ["Expired", count(broker.expired)],
    ]),
  );
}

function lake({ waiting, offloads }) {
  if (!offloads.length) return panel("The lake", empty("Nothing is in the lake", "Messages that are due far ahead can be kept there: see the guide on the lake."));
  return panel(
    `The lake: ${plural(waiting, "message")} there`,
    table({
      caption: "Offloads",
      rows: offloads,
      key: ({ number }) => number,
      columns: [
        { label: "Offload", kind: "number", cell: ({ number }) => number },
        { label: "By", kind: "name", cell: ({ app }) => app },
        { label: "Stage", cell: ({ stage }) => stage },
        { label: "Due from", kind: "time", cell: ({ from_ms: ms }) => timeNode(ms) },
        { label: "Waiting", kind: "number", cell: ({ waiting: n }) => count(n) },
        { label: "Table", kind: "long", narrow: false, cell: ({ lake: uri }) => h("code", {}, uri) },
      ],
    }),
  );
}

/** An answer of 503 has the checks, too: an unhealthy broker is just what this view shows. */
async function load(signal) {
  const [health, broker, offloads] = await Promise.all([
    api.get("/healthz", { signal }),
    api.get("/v1/broker", { signal }),
    api.get("/v1/offloads", { query: { to_ms: 0 }, signal }).catch(() => ({ waiting: 0, offloads: [] })),
  ]);
  return { health, broker, offloads };
}

function view(root, { signal }) {
  root.append(h("h1", {}, "Problems and checks"));
  place(root, {
    signal,
    everyMs: EVERY_MS,
    load,
    draw: ({ health, broker, offloads }) => [h("div", { class: "panels" }, checks(health), problems(broker)), log(broker), lake(offloads)],
  });
}

register({ name: "problems", title: "Problems", key: "p", order: 80, closed: true, render: view });
