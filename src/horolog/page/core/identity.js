// Who looks at this page, so that nobody is offered what the broker would refuse. It refuses that all the same.

import { api } from "./api.js";
import { heardClock } from "./clock.js";

let identity = { access_key: "", admin: true };

/** Ask once, before the first view, and for the clock; who gets no answer is shown everything, with the refusals. */
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

/** Whether everything may be seen and done. */
export const isAdmin = () => identity.admin;

/** The access key of a user with rights to some topics and groups; "" for administrators. */
export const userName = () => (identity.admin ? "" : identity.access_key);

/** Whether messages of a topic may be recalled and moved. */
export async function mayChange(topic, signal) {
  if (identity.admin) return true;
  return (await api.get("/v1/identity", { query: { topic }, signal })).rights.includes("PUB");
}
