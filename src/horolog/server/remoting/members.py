"""Connected clients, for admin tools: their identity, subscriptions and offsets, and resets.

Some questions only a client can answer: the question goes to the client over its own connection,
and its answer to the tool.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson

from horolog.errors import HorologError, refused
from horolog.limits import ANSWER_BYTES_MAX, REPORT_BYTES_MAX
from horolog.protocol.commands import DescribeTopic, TopicView
from horolog.protocol.queue_commands import CommitOffsets, GetOffsets, ReadMessage
from horolog.protocol.remoting import client_bodies as bodies
from horolog.protocol.remoting import group_bodies, object_keys
from horolog.protocol.remoting.codes import Code, Status
from horolog.protocol.remoting.frame import Frame, FrameFault
from horolog.protocol.remoting.request import Answer, flag, integer, text, too_large
from horolog.protocol.remoting.topic_bodies import encode
from horolog.protocol.rocketmq.names import check_group, check_topic
from horolog.server.listing import known_group, paced
from horolog.server.remoting import presence
from horolog.server.remoting.family import Handler
from horolog.server.remoting.node import Node
from horolog.server.remoting.registry import Member
from horolog.server.remoting.request import Request
from horolog.server.remoting.resets import notify_reset
from horolog.server.remoting.subscriptions import as_java
from horolog.server.resets import End, offsets_of
from horolog.units import counted

_ASK_S = 5.0  # tools wait as long, or give up earlier
_ASKED_AT_ONCE = 256  # clients; each answer may be as large as a frame
_TO_THE_END = -1  # as a time of a reset: after the newest message


class MemberCodes:
    """Handlers of requests about connected producers and consumers."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._engine = node.engine
        self._registry = node.registry

    def handlers(self) -> dict[Code, Handler]:
        """Map each request code to its handler."""
        return {
            Code.GET_CONSUMER_CONNECTION_LIST: self.consumers,
            Code.GET_PRODUCER_CONNECTION_LIST: self.producers,
            Code.GET_ALL_PRODUCER_INFO: self.all_producers,
            Code.QUERY_SUBSCRIPTION_BY_CONSUMER: self.subscription,
            Code.INVOKE_BROKER_TO_RESET_OFFSET: self.reset,
            Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: self.offsets_of_clients,
            Code.GET_CONSUMER_RUNNING_INFO: self.running_info,
            Code.CONSUME_MESSAGE_DIRECTLY: self.consume,
        }

    # --- connected clients ------------------------------------------------------------------------

    async def consumers(self, request: Request) -> Answer:
        """Return the clients and subscriptions of a consumer group, or CONSUMER_NOT_ONLINE."""
        group = check_group(text(request.frame, "consumerGroup"))
        clients = await _connections("consumerGroup", presence.consumers(self._node, group))
        consumer = presence.consumer(self._node, group)
        if consumer is None:
            return _not_online(f"consumerGroup: {group!r} has no client just now")
        wanted = {
            topic: as_java(subscription) or {}
            for topic, subscription in presence.subscriptions(self._node, group).items()
        }
        return Answer(body=bodies.consumer_connections(clients, consumer, wanted))

    async def producers(self, request: Request) -> Answer:
        """Return the clients of a producer group, which for 5.x producers is a topic."""
        group = text(request.frame, "producerGroup")
        found = await _connections("producerGroup", presence.producers(self._node, group))
        if not found:
            return Answer(
                Status.SYSTEM_ERROR, remark=f"producerGroup: {group[:200]!r} has no client just now"
            )
        return Answer(body=bodies.producer_connections(found))

    async def all_producers(self, request: Request) -> Answer:
        """Return the clients of all producer groups; refuse if they are too many."""
        del request
        found: dict[str, list[bytes]] = {}
        size = 0
        async for group, client in paced(presence.all_producers(self._node)):
            found.setdefault(group, []).append(shown := bodies.producer_info(client))
            size += len(shown)
            if size > ANSWER_BYTES_MAX:
                raise too_large(
                    "producerGroup",
                    "clients take",
                    ANSWER_BYTES_MAX,
                    "ask for the clients of one group",
                )
        return Answer(body=bodies.producer_table(dict(sorted(found.items()))))

    def subscription(self, request: Request) -> Answer:
        """Return the subscription of a consumer group to a topic."""
        group = check_group(text(request.frame, "group"))
        topic = text(request.frame, "topic")
        shown = as_java(presence.subscriptions(self._node, group).get(topic))
        return Answer(body=encode({"group": group, "subscriptionData": shown, "topic": topic}))

    # --- offsets ----------------------------------------------------------------------------------

    async def reset(self, request: Request) -> Answer:
        """Reset a group to a time, or to an offset of one queue.

        Without `isForce`, a reset to a time only moves offsets back.  Stored offsets change here,
        and connected clients are told to go on there.
        """
        frame = request.frame
        topic = check_topic(text(frame, "topic"))
        group = (await known_group(self._engine, text(frame, "group"))).name
        view: TopicView = await self._engine.submit(DescribeTopic(topic, with_pending=False))
        wanted = await self._wanted_offsets(frame, view)
        forced = _names_offset(frame) or flag(frame, "isForce", default=True)
        if not forced:
            stored: dict[int, int] = await self._engine.submit(GetOffsets(group, topic))
            wanted = {queue: min(at, stored.get(queue, at)) for queue, at in wanted.items()}
        await self._engine.submit(CommitOffsets(group, topic, wanted, afresh=forced))
        await notify_reset(self._node, group, topic, wanted, integer(frame, "timestamp", 0))
        return Answer(body=group_bodies.offsets(topic, self._node.broker_name, wanted))

    async def _wanted_offsets(self, frame: Frame, topic: TopicView) -> dict[int, int]:
        only = integer(frame, "queueId", -1, low=-1, high=topic.queues - 1)
        if _names_offset(frame):
            low, high = topic.min_offsets[only], topic.queue_offsets[only]
            return {only: integer(frame, "offset", low=low, high=high)}
        at_ms = integer(frame, "timestamp")
        to = End.LATEST if at_ms == _TO_THE_END else at_ms
        return await offsets_of(self._engine, topic, to, only if only >= 0 else None)

    async def offsets_of_clients(self, request: Request) -> Answer:
        """Return the offsets of the clients of a group, as the clients report them."""
        frame = request.frame
        topic, group = check_topic(text(frame, "topic")), check_group(text(frame, "group"))
        only = text(frame, "clientAddr", "")  # holds a client id
        everybody = self._registry.members(group)
        members = [each for each in everybody if not only or each.client_id == only]
        if not members:
            who = f"clientAddr: {only[:200]!r}" if everybody else f"group: {group!r}"
            return _not_online(f"{who} has no client just now")
        reported = await _offsets_reported(members, {"topic": topic, "group": group})
        table = {}
        for client_id, body in reported.items():
            table[client_id] = object_keys.table(_offsets_in(body))
            await asyncio.sleep(0)  # a long report takes 25 ms to read
        return Answer(body=orjson.dumps({"consumerTable": table}))

    # --- what only a client knows -----------------------------------------------------------------

    async def running_info(self, request: Request) -> Answer:
        """Return what a client reports of itself; for 5.x, what the broker knows, and stacks.

        A 4.x client is asked over its own connection, and a 5.x client for its thread stacks.
        """
        frame = request.frame
        group, client_id = text(frame, "consumerGroup"), text(frame, "clientId")
        found = presence.neighbour_of(self._node, group, client_id)
        if found is None or self._registry.member(group, client_id) is not None:
            return await self._forward(frame, b"")
        door, client = found
        stacks = ""
        if flag(frame, "jstackEnable"):
            stacks = await door.thread_stacks(group, client_id, _ASK_S)
        return Answer(body=encode(presence.running_info(self._node, group, client, stacks)))

    async def consume(self, request: Request) -> Answer:
        """Have a client consume a message at once, and return its result."""
        message_id = text(request.frame, "msgId", "")
        try:
            position = int(message_id[-16:], 16)
        except ValueError:
            position = -1
        if len(message_id) not in (32, 56) or not 0 <= position < 1 << 63:
            raise refused("msgId", f"{message_id[:80]!r} is no id that names a place in the log")
        layout: bytes = await self._engine.submit(ReadMessage(position))
        return await self._forward(request.frame, layout)

    async def _forward(self, frame: Frame, body: bytes) -> Answer:
        group = check_group(text(frame, "consumerGroup"))
        client_id = text(frame, "clientId")
        member = self._registry.member(group, client_id)
        if member is None and presence.neighbour_of(self._node, group, client_id) is not None:
            return Answer(
                Status.SYSTEM_ERROR,
                remark=f"clientId: {client_id!r} is a 5.x client, and takes no message from tools",
            )
        if member is None:
            return _not_online(f"clientId: {client_id[:200]!r} is no client of {group!r} just now")
        said = await _ask(member, frame.code, frame.fields, body)
        return Answer(said.code, said.fields, said.body, said.remark)


async def _connections(field: str, clients: Iterable[bodies.Connected]) -> list[bytes]:
    """Encode clients as connections, some in each turn; refuse if they are too many."""
    found = []
    size = 0
    async for client in paced(clients):
        found.append(shown := bodies.connection(client))
        size += len(shown)
        if size > ANSWER_BYTES_MAX:
            raise too_large(field, "its clients take", ANSWER_BYTES_MAX, "list them over HTTP")
    return found


def _names_offset(frame: Frame) -> bool:
    """Return whether a reset is to an offset of one queue; a tool sends no `isForce` with it."""
    return integer(frame, "queueId", -1) >= 0 and integer(frame, "offset", -1) >= 0


def _offsets_in(body: bytes) -> list[tuple[dict[str, Any], Any]]:
    """Return the offsets that a client reports; nothing if the body has another form."""
    if len(body) > REPORT_BYTES_MAX:
        return []
    try:
        found = object_keys.read(body).get("messageQueueTable")
    except HorologError:
        return []
    return object_keys.rows(found) if isinstance(found, dict) else []


def _not_online(why: str) -> Answer:
    return Answer(Status.CONSUMER_NOT_ONLINE, remark=why)


async def _offsets_reported(
    members: Sequence[Member], fields: Mapping[str, str]
) -> dict[str, bytes]:
    """Return the bodies in which clients report their offsets; who is silent is left out.

    A few clients at a time are asked, so that few of their answers wait in memory.
    """
    found: dict[str, bytes] = {}
    size = 0
    to_ask = iter(members)
    until_s = time.monotonic() + _ASK_S

    async def ask_next() -> None:
        nonlocal size
        for member in to_ask:
            within_s = until_s - time.monotonic()
            if within_s <= 0 or size > ANSWER_BYTES_MAX:
                return
            code = Code.GET_CONSUMER_STATUS_FROM_CLIENT
            said = await _ask(member, code, fields, b"", within_s)
            if said.code == Status.SUCCESS:
                size += len(said.body)
                found[member.client_id] = said.body

    await asyncio.gather(*(ask_next() for _ in range(min(_ASKED_AT_ONCE, len(members)))))
    if size > ANSWER_BYTES_MAX:
        whose = counted(len(members), "client")
        raise too_large(
            "clientAddr", f"the offsets of {whose} take", ANSWER_BYTES_MAX, "name one client"
        )
    return found


async def _ask(
    member: Member, code: int, fields: Mapping[str, str], body: bytes, within_s: float = _ASK_S
) -> Frame:
    try:
        return await member.link.ask(code, fields, body, within_s)
    except TimeoutError:
        return _failed(
            Status.CONSUME_MSG_TIMEOUT, member, f"has not answered within {within_s:g} s"
        )
    except ConnectionError:
        return _failed(Status.CONSUMER_NOT_ONLINE, member, "has gone")
    except FrameFault as fault:
        return _failed(Status.SYSTEM_ERROR, member, f"cannot be asked: {fault}")


def _failed(status: Status, member: Member, why: str) -> Frame:
    return Frame(status, remark=f"clientId: {member.client_id!r} {why}")
