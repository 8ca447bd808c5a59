// Messages for the views: one with its history, or a page of a search.

import { api, part } from "./api.js";
import { brokerNow, heardClock } from "./clock.js";

const ID = /^(?:[0-9A-F]{2})?[0-9A-F]{32}$/i; // of 5.x clients with a version in front
const INFLATED_MOST = 16 * 1024 * 1024; // a small body may claim to be a huge one

/** Whether a text looks like the id of a message rather than a key. */
export const looksLikeId = (text) => ID.test(text);

/** A message of a topic ("": of any topic), its history, its body as `bytes`, and `nowMs`, the time of the request. */
export async function oneMessage(topic, id, signal) {
  const [message, clock] = await Promise.all([
    api.get(part`/v1/messages/${id}`, { query: { topic }, signal }),
    api.get("/v1/clock", { signal }),
  ]);
  heardClock(clock.wall_ms, clock.kind);
  const stored = Uint8Array.from(atob(message.body), (letter) => letter.charCodeAt(0));
  const inflated = message.compressed ? await inflate(stored) : null;
  return { ...message, nowMs: clock.wall_ms, bytes: inflated ?? stored, isInflated: inflated !== null };
}

/** The content of a body that its producer has compressed with zlib; null if it is something else, or too large. */
async function inflate(stored) {
  try {
    const reader = new Blob([stored]).stream().pipeThrough(new DecompressionStream("deflate")).getReader();
    const pieces = [];
    let size = 0;
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      size += value.length;
      if (size > INFLATED_MOST) {
        reader.cancel();
        return null;
      }
      pieces.push(value);
    }
    return new Uint8Array(await new Blob(pieces).arrayBuffer());
  } catch {
    return null;
  }
}

/** A page of messages: {messages, next}. `query` has topic, id, key, tag, from, to, state, limit, after. */
export async function searchMessages(query, signal) {
  const look = (wanted) => api.get("/v1/messages/search", { query: wanted, signal, patienceMs: 60_000 });
  const asked = query.key && !query.topic ? { ...query, id: query.key, key: "" } : query;
  const found = await look(asked);
  const nowMs = brokerNow();
  const named = query.id || query.key;
  // Any text may be an id, and a key may look like one.
  if (found.messages.length || !named || !query.topic) return { ...found, nowMs };
  return { ...(await look({ ...query, id: query.key, key: query.id })), nowMs };
}
