// The colour and word of each state.

import { h } from "../core/dom.js";

const KINDS = {
  pending: "",
  delivered: "good",
  recalled: "warn",
  moved: "",
  expired: "bad",
  lake: "",
  quarantined: "bad",
  active: "good",
  paused: "warn",
  ended: "",
};
const MEANINGS = {
  pending: "waits until it is due",
  delivered: "handed over: consumers can take it",
  recalled: "cancelled: nobody gets it",
  moved: "its due time was changed: it waits with another one",
  expired: "dropped, because it was too late for its topic",
  lake: "waits in the lake until it is nearly due",
  quarantined: "damaged, and set aside",
};

/** A state of a message or a schedule. */
export const stateBadge = (state) => h("span", { class: `badge ${KINDS[state] ?? ""}`, title: MEANINGS[state] }, state);
