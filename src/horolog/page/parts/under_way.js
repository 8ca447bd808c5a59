// Recalls, moves and hand-overs of windows that are under way in the broker, by any user, even if nobody waits for the
// answer any more. Loaded once a second while the view is open; hidden if there are none.

import { api, watch } from "../core/api.js";
import { h, show } from "../core/dom.js";
import { count, plural } from "../core/format.js";
import { timeText } from "../core/time.js";

const EVERY_MS = 1_000;
const ACTS = { recall: ["Recall", "recalled"], reschedule: ["Move", "moved"], hand_over: ["Hand over", "handed over"] };

const windowText = ({ from_ms: from, to_ms: to, tag }) => `${timeText(from)} – ${timeText(to)}${tag ? `, tag ${tag}` : ""}`;

function line(row, place, total) {
  const [verb, did] = ACTS[row.act] ?? [row.act, "done"];
  const name = row.dry_run ? `Dry run (${verb.toLowerCase()})` : verb;
  const n = row.dry_run ? row.matched : row.done;
  const of = total ? ` of ${count(total)}` : "";
  const text = place ? `waits for ${plural(place, "other")} before it` : `${count(n)}${of} ${row.dry_run ? "counted" : did}`;
  const bar = total && !place ? h("progress", { max: total, value: Math.min(n, total), "aria-label": `${name} ${row.topic}` }) : null;
  return h("li", {}, h("strong", {}, `${name} ${row.topic}`), ` ${windowText(row)}: `, h("span", { class: "number" }, text), bar);
}

/**
 * An area that shows them until `signal` ends. `expect(row => total or 0)` returns the expected number of messages of
 * each, if it is known.
 */
export function underWay(signal) {
  const node = h("section", { class: "panel under-way", "aria-label": "Under way", hidden: true });
  let totalOf = () => 0;
  const got = ({ under_way: rows }) => {
    node.hidden = rows.length === 0;
    show(node, h("h2", {}, "Under way"), h("ul", {}, rows.map((row, at) => line(row, at, totalOf(row)))));
  };
  const failed = () => (node.hidden = true); // the view's own requests show the error
  watch({ load: (leaving) => api.get("/v1/bulk", { signal: leaving }), everyMs: EVERY_MS, signal, got, failed });
  return { node, expect: (known) => (totalOf = known) };
}
