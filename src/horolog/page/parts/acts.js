// Actions on a pending message: recall it, move it, hand it over now. Each asks first, and names the message by its
// handle, which holds the due time that the user saw: if that has changed meanwhile, nothing is done.

import { api } from "../core/api.js";
import { h, show } from "../core/dom.js";
import { timeText } from "../core/time.js";
import { dialog } from "./dialog.js";
import { refusalOf } from "./outcome.js";
import { facts } from "./table.js";
import { spelledOut, whenFields } from "./when.js";

const both = (ms) => `${timeText(ms, { to: "milli", mark: true })}`;

function whatItIs(message) {
  return facts([
    ["Message", h("code", {}, message.message_id)],
    ["Topic", message.topic],
    message.keys?.length ? ["Keys", message.keys.join(" ")] : null,
    ["Due", spelledOut(message.deliver_at_ms, message.nowMs)],
  ]);
}

async function asked({ title, body, label, kind = "primary", ready }) {
  const actions = [
    { label, value: true, kind },
    { label: "Leave it", value: false },
  ];
  return (await dialog({ title, body, actions, ready })) === true;
}

/** Carry it out, and return the outcome; an error is an outcome, too. */
async function outcome(act) {
  try {
    return await act();
  } catch (error) {
    if (error.code === undefined) throw error;
    return refusalOf(error);
  }
}

/** Ask, then recall the message; returns the outcome, or null if the user cancelled. */
export async function recall(message) {
  const body = h("div", {}, whatItIs(message), h("p", {}, "No consumer will get it. This cannot be undone."));
  if (!(await asked({ title: "Recall this message?", body, label: "Recall", kind: "danger" }))) return null;
  return outcome(async () => {
    await api.post("/v1/recall", { handle: message.recall_handle });
    return { kind: "good", code: "CANCELLED", text: "Recalled: no consumer will get it." };
  });
}

/** Ask for another due time, then move the message there. */
export async function move(message) {
  let wanted = null;
  let act = null;
  const changed = (found) => {
    wanted = found;
    if (act) act.disabled = !found;
  };
  const when = whenFields({ nowMs: message.nowMs, atMs: Math.max(message.deliver_at_ms, message.nowMs), changed });
  const body = h("div", {}, whatItIs(message), h("h3", {}, "New due time"), when.node);
  const ready = ({ buttons }) => {
    [act] = buttons;
    act.disabled = !wanted;
    when.focus();
  };
  if (!(await asked({ title: "Move this message", body, label: "Move", ready })) || !wanted) return null;
  const to = wanted.atMs === undefined ? { in_ms: wanted.inMs } : { new_deliver_at_ms: wanted.atMs };
  return outcome(async () => {
    const moved = await api.post("/v1/reschedule", {
      handle: message.recall_handle,
      expected_deliver_at_ms: message.deliver_at_ms,
      ...to,
    });
    return { kind: "good", code: moved.status, text: movedText(moved) };
  });
}

/** Ask, then hand the message over at once. */
export async function handOver(message) {
  const body = h("div", {}, whatItIs(message), h("p", {}, "Consumers can receive it at once, before it is due."));
  if (!(await asked({ title: "Hand this message over now?", body, label: "Hand over now" }))) return null;
  return outcome(async () => {
    const moved = await api.post("/v1/hand-over", { handle: message.recall_handle });
    return { kind: "good", code: moved.status, text: movedText(moved) };
  });
}

function movedText(moved) {
  if (moved.queue_offset >= 0) return `Handed over: queue ${moved.queue_id}, offset ${moved.queue_offset}.`;
  return `Moved: it is due at ${both(moved.deliver_at_ms)}.`;
}

/**
 * The buttons for a pending message; `begun()` is called when an action begins, `done(outcome)` when it has ended. They
 * belong to the message as it was before: draw new ones afterwards.
 */
export function actButtons(message, { begun, done }) {
  const all = h("div", { class: "tools acts" });
  const button = (label, act, kind = "") => {
    const node = h("button", { type: "button", class: kind, onclick: run }, label);
    async function run() {
      node.disabled = true;
      begun();
      let ended = null;
      try {
        ended = await act(message);
      } finally {
        node.disabled = false;
      }
      if (!ended) return;
      for (const each of all.children) each.disabled = true;
      done(ended);
    }
    return node;
  };
  return show(all, button("Move …", move), button("Hand over now …", handOver), button("Recall …", recall, "danger"));
}
