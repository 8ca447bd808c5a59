// All topics, and one of them.

import { api, part } from "../core/api.js";
import { h } from "../core/dom.js";
import { count } from "../core/format.js";
import { link, register } from "../core/router.js";
import { empty, place } from "../parts/states.js";
import { facts, panel, table } from "../parts/table.js";

const EVERY_MS = 5_000;
const sum = (numbers) => numbers.reduce((all, each) => all + each, 0);

/** Messages that are visible in the queues of a topic. */
const stored = (topic) => sum(topic.queue_offsets) - sum(topic.min_offsets);

function all(root, { signal }) {
  root.append(h("h1", {}, "Topics"));
  place(root, {
    signal,
    everyMs: EVERY_MS,
    load: (leaving) => api.get("/v1/topics", { signal: leaving }),
    isEmpty: ({ topics }) => (topics.length ? null : empty("No topics yet", "horolog topic create NAME, or any RocketMQ client, makes one.")),
    draw: ({ topics }) =>
      panel(
        `${count(topics.length)} topics`,
        table({
          caption: "Topics",
          rows: topics,
          key: (topic) => topic.name,
          href: (topic) => link("topics", topic.name),
          columns: [
            { label: "Topic", kind: "name", cell: (topic) => h("a", { href: link("topics", topic.name) }, topic.name) },
            { label: "Type", cell: (topic) => topic.type },
            { label: "Queues", kind: "number", narrow: false, cell: (topic) => topic.queues },
            { label: "Pending", kind: "number", cell: (topic) => count(topic.pending) },
            { label: "Visible", kind: "number", cell: (topic) => count(stored(topic)) },
          ],
        }),
      ),
  });
}

function one(root, name, { signal, title }) {
  title(name);
  root.append(h("h1", {}, name));
  place(root, {
    signal,
    everyMs: EVERY_MS,
    load: (leaving) => api.get(part`/v1/topics/${name}`, { signal: leaving }),
    draw: (topic) => [
      panel("Topic", facts([["Type", topic.type], ["Pending", count(topic.pending)], ["Visible", count(stored(topic))], ["Queues", topic.queues]])),
    ],
  });
}

register({
  name: "topics",
  title: "Topics",
  key: "t",
  order: 20,
  render: (root, context) => (context.params.length ? one(root, context.params[0], context) : all(root, context)),
});
