// The user of this page, so that the page offers only what the broker allows. The broker checks each request anyway.

import { api } from "./api.js";
import { heardClock } from "./clock.js";

let identity = { access_key: "", admin: true };

/** Ask once, before the first view, also for the clock. Without an answer, everything is shown, with the refusals. */
export async function learnIdentity() {
  const asked = (path) => api.get(path, { patienceMs: 5_000 });
  try {
    const [found, clock] = await Promise.all([asked("/v1/identity"), asked("/v1/clock")]);
    identity = found;
    heardClock(clock.wall_ms, clock.kind);
  } catch (error) {
    if (error.code === undefined) throw error;
  }
}

/** Whether the user may see and do everything. */
export const isAdmin = () => identity.admin;

/** The access key of a user with rights to some topics and groups; "" for administrators. */
export const userName = () => (identity.admin ? "" : identity.access_key);

/** Whether messages of a topic may be recalled and moved. */
export async function mayChange(topic, signal) {
  if (identity.admin) return true;
  return (await api.get("/v1/identity", { query: { topic }, signal })).rights.includes("PUB");
}
