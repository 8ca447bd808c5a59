// All consumer groups, and one of them: its lag in each topic, its members and its leases.

import { api, part } from "../core/api.js";
import { brokerNow } from "../core/clock.js";
import { h } from "../core/dom.js";
import { count, plural } from "../core/format.js";
import { isAdmin } from "../core/identity.js";
import { link, register } from "../core/router.js";
import { durationText, timeNode } from "../core/time.js";
import { empty, place } from "../parts/states.js";
import { facts, panel, table } from "../parts/table.js";

const EVERY_MS = 5_000;
const PAGE = 200;
const age = (ms) => (ms ? durationText(Math.max(brokerNow() - ms, 0)) : "–");

function all(root, { query, signal }) {
  const after = query.get("after") ?? "";
  root.append(h("h1", {}, "Consumer groups"));
  place(root, {
    signal,
    everyMs: EVERY_MS,
    load: (leaving) => api.get("/v1/groups", { query: { limit: PAGE, after }, signal: leaving }),
    isEmpty: ({ groups }) => (groups.length || after ? null : empty("No consumer groups yet", isAdmin() ? "A group is created when its first consumer connects or asks for messages." : "None that you have a right to.")),
    draw: ({ groups, next }) => [
      panel(
        `${after ? "More groups" : plural(groups.length, "group")}${next ? " on this page" : ""}`,
        table({
          caption: "Consumer groups",
          rows: groups,
          key: ({ group }) => group,
          href: ({ group }) => link("groups", group),
          columns: [
            { label: "Group", kind: "name", cell: ({ group }) => h("a", { href: link("groups", group) }, group) },
            { label: "Lag", kind: "number", cell: ({ waiting }) => count(waiting), title: () => "visible and not consumed, leased ones among them" },
            { label: "Leased", kind: "number", cell: ({ leased }) => count(leased) },
            { label: "Members", kind: "number", cell: ({ members }) => count(members) },
            { label: "Topics", kind: "number", narrow: false, cell: ({ topics }) => count(topics) },
            { label: "Takes", narrow: false, cell: ({ consume }) => consume || "–" },
            { label: "In order", narrow: false, cell: ({ orderly }) => (orderly ? "yes" : "no") },
            { label: "Retries", kind: "number", narrow: false, cell: ({ retry_max: most }) => count(most) },
          ],
        }),
      ),
      next ? h("p", {}, h("a", { href: link("groups", { after: next }) }, "The next page")) : null,
    ],
  });
}

function topicsPanel({ topics }) {
  if (!topics.length) return panel("Topics", empty("It has no progress in any topic"));
  return panel(
    "Topics",
    table({
      caption: "Topics of this group",
      rows: topics,
      key: ({ topic }) => topic,
      href: ({ topic }) => link("topics", topic),
      columns: [
        { label: "Topic", kind: "name", cell: ({ topic }) => h("a", { href: link("topics", topic) }, topic) },
        { label: "Lag", kind: "number", cell: ({ waiting }) => count(waiting) },
        { label: "Leased", kind: "number", cell: ({ leased }) => count(leased) },
        { label: "Oldest waits", kind: "number", cell: ({ oldest_waiting_ms: ms }) => age(ms) },
        { label: "since", kind: "time", narrow: false, cell: ({ oldest_waiting_ms: ms }) => timeNode(ms) },
        { label: "Members", kind: "number", narrow: false, cell: ({ members }) => count(members) },
      ],
    }),
  );
}

function membersPanel({ member_count: all, members }) {
  if (!members.length) return panel("Members", empty("No client is connected", "Consumers over the admin API have no connection of their own, and are not listed."));
  return panel(
    plural(all, "member") + (all > members.length ? `, the first ${count(members.length)} by id` : ""),
    table({
      caption: "Members",
      rows: members,
      key: (member) => `${member.client_id}|${member.address}`,
      columns: [
        { label: "Client", kind: "name", cell: (member) => member.client_id },
        { label: "Address", cell: (member) => h("code", {}, member.address) },
        { label: "Door", narrow: false, cell: (member) => member.door + (member.tls ? " (TLS)" : "") },
        { label: "Language", narrow: false, cell: (member) => `${member.language} ${member.version}` },
        { label: "Takes", narrow: false, cell: (member) => member.consumes },
        { label: "Connected", kind: "time", narrow: false, cell: (member) => timeNode(member.connected_ms) },
      ],
    }),
  );
}

function one(root, name, { signal, title }) {
  title(name);
  root.append(h("h1", {}, name));
  place(root, {
    signal,
    everyMs: EVERY_MS,
    load: (leaving) => api.get(part`/v1/groups/${name}`, { query: { limit: 1_000 }, signal: leaving }),
    draw: (group) => [
      panel(
        "Group",
        facts([
          ["Takes", group.consume || "nobody is connected"],
          ["In order", group.orderly ? "yes" : "no"],
          ["Retries", `${count(group.retry_max)} further attempts`],
          ["Lag", plural(group.topics.reduce((all, { waiting }) => all + waiting, 0), "message")],
          isAdmin() ? ["Dead letters", h("a", { href: link("dead-letters", name) }, "show them")] : null,
        ]),
      ),
      topicsPanel(group),
      membersPanel(group),
    ],
  });
}

register({
  name: "groups",
  title: "Groups",
  key: "g",
  order: 30,
  render: (root, context) => (context.params.length ? one(root, context.params[0], context) : all(root, context)),
});
