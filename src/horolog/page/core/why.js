// Explains in sentences why a message is late, or that it is not: each names a time of waiting, and its cause.

import { plural } from "./format.js";
import { durationText } from "./time.js";

const PROMPT_MS = 50; // people call a hand-over within this time "on time"
const SLOW_MS = 1_000;

const newestOf = (history, event) => history.findLast((each) => each.event === event && each.at_ms !== null);
const oldestOf = (history, event) => history.find((each) => each.event === event && each.at_ms !== null);

/** A sentence and its severity: "good", "warn", "bad" or "". */
const said = (kind, text) => ({ kind, text });

function ofAcceptance(message, history) {
  const accepted = oldestOf(history, "accepted");
  if (!accepted || !message.deliver_at_ms) return [];
  const moves = history.filter((each) => each.event === "moved");
  const late = accepted.at_ms - message.deliver_at_ms;
  if (!moves.length && late > PROMPT_MS) {
    return [said("warn", `The broker received it ${durationText(late)} after it was due.`)];
  }
  return moves.length ? [said("", `It was moved ${moves.length === 1 ? "once" : plural(moves.length, "time")}; the due time is that of the last move.`)] : [];
}

function ofHandOver(message, history, nowMs) {
  const over = newestOf(history, "handed_over");
  const due = over?.detail?.due_ms ?? message.deliver_at_ms;
  if (over && due) {
    const late = over.at_ms - due;
    const accepted = oldestOf(history, "accepted");
    if (late < 0) return [said("good", `It was handed over by request, ${durationText(-late)} before it was due.`)];
    if (late <= PROMPT_MS) return [said("good", `The broker handed it over on time: ${durationText(late)} after it was due.`)];
    if (accepted && accepted.at_ms >= due) {
      return [said("", `The broker handed it over ${durationText(over.at_ms - accepted.at_ms)} after it came.`)];
    }
    return [
      said(
        late > SLOW_MS ? "bad" : "warn",
        `The broker handed it over ${durationText(late)} after it was due. It was down, stopped or overloaded, or its clock stepped ahead: check the overview and the problems of that time.`,
      ),
    ];
  }
  if (message.state !== "pending" && message.state !== "lake") return [];
  if (!due || due > nowMs) return [said("good", `It is pending and not late: it is due in ${durationText(due - nowMs)}.`)];
  return [said("bad", `It was due ${durationText(nowMs - due)} ago and has not been handed over: check the problems and the disk.`)];
}

function ofGroup({ group, state, attempt, leased_ms, acked_ms, waiting }, overMs, nowMs) {
  const lines = [];
  const name = `Group ${group}`;
  if (leased_ms !== null && leased_ms !== undefined && overMs !== null) {
    const waited = leased_ms - overMs;
    if (waited < 0) lines.push(said("", `${name} has taken it.`));
    else lines.push(said(waited > SLOW_MS ? "bad" : "good", `${name} first took it ${durationText(waited)} after the hand-over${waited > SLOW_MS ? ": its consumers were away or behind" : ""}.`));
  }
  if (acked_ms !== null && acked_ms !== undefined && leased_ms !== null && leased_ms !== undefined) {
    lines.push(said(attempt > 1 ? "warn" : "good", `${name} acknowledged it ${durationText(acked_ms - leased_ms)} later${attempt > 1 ? `, at attempt ${attempt}` : ""}.`));
  } else if (state === "new" && overMs !== null) {
    const behind = waiting ? ` ${plural(waiting, "message")} of the topic wait for it.` : "";
    lines.push(said("bad", `${name} has not taken it for ${durationText(nowMs - overMs)}: its consumers are away or behind.${behind}`));
  } else if (state === "leased") {
    lines.push(said("warn", `${name} has it just now, and has not acknowledged it (attempt ${attempt}).`));
  } else if (state === "waits_again") {
    lines.push(said("bad", `${name} has failed on it ${plural(attempt, "time")}; it comes again.`));
  } else if (state === "consumed" && !lines.length) {
    lines.push(said("", `${name} has consumed it.`));
  }
  return lines;
}

/** The present state of each group, joined with its events in the history. */
function groupsOf(message, history) {
  const found = new Map((message.groups ?? []).map((each) => [each.group, { ...each, leased_ms: null, acked_ms: null }]));
  for (const { event, at_ms, detail } of history) {
    if (!detail?.group || at_ms === null) continue;
    const group = found.get(detail.group) ?? { group: detail.group, state: "", attempt: 0, leased_ms: null, acked_ms: null };
    if (event === "leased") group.leased_ms ??= at_ms;
    if (event === "acked") group.acked_ms = at_ms;
    if (detail.attempt) group.attempt = Math.max(group.attempt, detail.attempt);
    found.set(detail.group, group);
  }
  return [...found.values()];
}

function ofEnd(history, nowMs) {
  const lines = [];
  for (const { event, at_ms, detail } of history) {
    const when = at_ms === null ? "" : ` ${durationText(nowMs - at_ms)} ago`;
    const whose = detail?.group ? ` of group ${detail.group}` : "";
    if (event === "recalled") lines.push(said("warn", `It was recalled${when}: no consumer gets it.`));
    if (event === "expired") lines.push(said("bad", `It was too late for the rule of its topic, and was dropped${when}.`));
    if (event === "dead_lettered") lines.push(said("bad", `It became a dead letter${whose}${when}.`));
    if (event === "quarantined") lines.push(said("bad", `It is damaged, and was set aside${when}.`));
  }
  return lines;
}

/**
 * Sentences {kind, text} about a message as GET /v1/messages/{id} returns it, in the order of
 * time. `nowMs` is the broker's.
 */
export function whyLate(message, nowMs) {
  const history = message.history ?? [];
  const over = newestOf(history, "handed_over");
  const overMs = over?.at_ms ?? null;
  const lines = [...ofAcceptance(message, history), ...ofHandOver(message, history, nowMs)];
  if (message.state === "delivered" || overMs !== null) {
    const groups = groupsOf(message, history);
    for (const group of groups) lines.push(...ofGroup(group, overMs, nowMs));
    if (!groups.length && overMs !== null) lines.push(said("warn", "No consumer group takes from its topic yet."));
  }
  lines.push(...ofEnd(history, nowMs));
  if (!lines.length) lines.push(said("", "Its history is no longer known: retention has dropped that part of the log."));
  return lines;
}
