// Who looks at this page, so that nobody is offered what the broker would refuse. It refuses that all the same.

import { api } from "./api.js";

let identity = { access_key: "", admin: true };

/** Ask once, before the first view; who gets no answer is shown everything, with the refusals. */
export async function learnIdentity() {
  try {
    identity = await api.get("/v1/identity", { patienceMs: 5_000 });
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
