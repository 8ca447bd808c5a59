"""Handlers of heartbeats, unregistration, and questions about other clients of a group."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Iterable

import orjson

from horolog.clock import monotonic_ms
from horolog.errors import ErrorCode, HorologError, refused
from horolog.limits import HEARTBEAT_BYTES_MAX, NOTIFIED_AT_ONCE, NOTIFY_MS
from horolog.protocol.commands import CreateTopic, TopicType
from horolog.protocol.queue_commands import PutGroup
from horolog.protocol.remoting.codes import Code, Status
from horolog.protocol.remoting.heartbeat import Heartbeat, read_heartbeat, read_subscription
from horolog.protocol.remoting.request import DONE, Answer, content, text
from horolog.protocol.rocketmq.names import is_system_group
from horolog.protocol.rocketmq.retry import retry_topic
from horolog.server.remoting import presence
from horolog.server.remoting.family import Handler
from horolog.server.remoting.link import RemotingLink
from horolog.server.remoting.node import Node
from horolog.server.remoting.request import Request
from horolog.server.remoting.subscriptions import check_filter

_SEEN = Answer(fields={"IS_SUPPORT_HEART_BEAT_V2": "false", "IS_SUB_CHANGE": "false"})


class ClientCodes:
    """Handles HEART_BEAT, UNREGISTER_CLIENT, GET_CONSUMER_LIST_BY_GROUP, CHECK_CLIENT_CONFIG."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._changed: dict[str, None] = {}  # groups to notify, in the order they changed
        self._to_notify: deque[tuple[RemotingLink, str]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def handlers(self) -> dict[Code, Handler]:
        """Map each request code to its handler."""
        return {
            Code.HEART_BEAT: self.heartbeat,
            Code.UNREGISTER_CLIENT: self.unregister,
            Code.GET_CONSUMER_LIST_BY_GROUP: self.members,
            Code.CHECK_CLIENT_CONFIG: self.check,
        }

    def heartbeat(self, request: Request) -> Awaitable[Answer]:
        """Register a client with its groups; create missing groups and their retry topics.

        The client is registered at once: it may unregister or disconnect while groups are made.
        """
        heartbeat = read_heartbeat(content(request.frame, HEARTBEAT_BYTES_MAX))
        now_ms = monotonic_ms()
        changed = self._node.registry.take_heartbeat(request.link, heartbeat, now_ms)
        self._notify(changed | self._forget(request.link))
        return self._make_groups(heartbeat)

    async def _make_groups(self, heartbeat: Heartbeat) -> Answer:
        for consumer in heartbeat.consumers:
            if is_system_group(consumer.group):
                continue  # a tool's group: it only reads, and nothing is kept of it
            await self._node.engine.submit(PutGroup(consumer.group))
            await self._create_topic(retry_topic(consumer.group))
        return _SEEN

    async def _create_topic(self, topic: str) -> None:
        try:
            await self._node.engine.submit(CreateTopic(topic, TopicType.MIXED, 1))
        except HorologError as error:
            # TOPIC_EXISTS: the topic has other settings by now.  DISK_FULL: consumption goes on,
            # and a later heartbeat makes the topic.
            if error.code not in (ErrorCode.TOPIC_EXISTS, ErrorCode.DISK_FULL):
                raise

    def unregister(self, request: Request) -> Answer:
        """Remove a client from the producer and consumer group named; each may be blank."""
        frame = request.frame
        self._notify(
            self._node.registry.remove_client(
                text(frame, "clientID"),
                text(frame, "producerGroup", ""),
                text(frame, "consumerGroup", ""),
            )
        )
        return DONE

    def members(self, request: Request) -> Answer:
        """Return the client ids of a consumer group: to a member those of 4.x clients, else all.

        The 4.x clients share the group's queues by these ids.  Nobody gets any while a client of
        the group is awaited: the others keep the queues that they have.
        """
        group = text(request.frame, "consumerGroup")
        if presence.is_awaiting(self._node, group):
            return presence.AWAITING
        found = presence.client_ids(self._node, group, request.link)
        if not found:
            return Answer(
                Status.SYSTEM_ERROR, remark=f"consumerGroup: {group!r} has no client just now"
            )
        return Answer(body=orjson.dumps({"consumerIdList": found}))

    def check(self, request: Request) -> Answer:
        """Check that the broker can filter by a client's subscription."""
        wanted = content(request.frame).get("subscriptionData")
        if not isinstance(wanted, dict):
            raise refused("subscriptionData", "missing, or no JSON object")
        check_filter(read_subscription(wanted))
        return DONE

    # --- changes ----------------------------------------------------------------------------------

    def connection_ended(self, link: RemotingLink) -> None:
        """Remove the clients of a connection that has ended."""
        changed = self._node.registry.remove_connection(link)
        self._notify(changed | self._forget(link))

    def _forget(self, link: RemotingLink) -> set[str]:
        """Drop what a client said before its heartbeat; return the groups that it came back to."""
        self._node.asked.forget(link)
        return self._node.returning.forget(link)

    def sweep(self, now_ms: int) -> None:
        """Remove clients that were not heard of for too long."""
        self._notify(self._node.registry.expire(now_ms))

    def _notify(self, groups: Iterable[str]) -> None:
        """Notify the members of changed groups, so that they share the queues again at once.

        Notifications are sent a little later, and a limited count at a time: when a thousand
        clients come back, notifying each client of each change would be a million pushes.
        """
        self._changed.update(dict.fromkeys(groups))
        if self._changed and self._timer is None:
            self._schedule_notifications()

    def _schedule_notifications(self) -> None:
        awaits_ms = self._node.returning.all_for_ms(monotonic_ms())
        self._timer = asyncio.get_running_loop().call_later(
            max(NOTIFY_MS, awaits_ms) / 1_000, self._send_notifications
        )

    def _send_notifications(self) -> None:
        self._timer = None
        for _ in range(NOTIFIED_AT_ONCE):
            while not self._to_notify and self._changed:
                group = next(iter(self._changed))
                del self._changed[group]
                members = self._node.registry.members(group)
                self._to_notify.extend((member.link, group) for member in members)
            if not self._to_notify:
                return
            link, group = self._to_notify.popleft()
            link.push(Code.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": group})
        self._schedule_notifications()
