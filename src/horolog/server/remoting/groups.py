"""Consumer groups, for admin tools: their settings and their progress."""

from __future__ import annotations

from typing import NamedTuple

import orjson

from horolog.errors import ErrorCode, HorologError
from horolog.limits import GROUPS_MAX, UNREAD_BYTES_MAX
from horolog.protocol.commands import DescribeGroup, DescribeTopic, GroupQueueView
from horolog.protocol.queue_commands import (
    CommitOffsets,
    DeleteGroup,
    GetOffsets,
    GroupSettings,
    PutGroup,
)
from horolog.protocol.remoting import group_bodies as bodies
from horolog.protocol.remoting.codes import Code
from horolog.protocol.remoting.group_bodies import QueueProgress
from horolog.protocol.remoting.request import (
    DONE,
    Answer,
    content,
    entries,
    flag,
    integer,
    text,
    too_large,
)
from horolog.protocol.remoting.topic_bodies import encode, queue_key, topic_list
from horolog.protocol.rocketmq.names import check_group, check_topic
from horolog.server.listing import groups, known_group, some_of, stored_ms, unless_deleted
from horolog.server.remoting.assignments import modes_of, settings_of, with_modes
from horolog.server.remoting.family import Handler
from horolog.server.remoting.node import Node
from horolog.server.remoting.request import Request


class _Progress(NamedTuple):
    """Progress of a group in a topic.

    rows       encoded, one for each queue
    lag        messages that are not consumed
    in_flight  messages that are pulled, and not consumed
    """

    rows: list[bytes]
    lag: int
    in_flight: int


_NONE = _Progress([], 0, 0)  # of a topic that was deleted meanwhile


class GroupCodes:
    """Handlers of requests about consumer groups."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._engine = node.engine
        self._rates = node.rates

    def handlers(self) -> dict[Code, Handler]:
        """Map each request code to its handler."""
        return {
            Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self.put,
            Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: self.put_all,
            Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self.configs,
            Code.GET_SUBSCRIPTIONGROUP_CONFIG: self.config,
            Code.DELETE_SUBSCRIPTIONGROUP: self.delete,
            Code.GET_CONSUME_STATS: self.stats,
            Code.GET_BROKER_CONSUME_STATS: self.all_stats,
            Code.QUERY_TOPIC_CONSUME_BY_WHO: self.groups_of_topic,
            Code.QUERY_TOPICS_BY_CONSUMER: self.topics_of_group,
            Code.QUERY_CONSUME_TIME_SPAN: self.time_span,
            Code.GET_ALL_CONSUMER_OFFSET: self.offsets,
            Code.CLONE_GROUP_OFFSET: self.clone_offsets,
        }

    # --- settings ---------------------------------------------------------------------------------

    async def put(self, request: Request) -> Answer:
        """Create a consumer group, or change its settings."""
        name, settings = bodies.read_group_config(content(request.frame))
        await self._engine.submit(await self._change(check_group(name), settings))
        return DONE

    async def put_all(self, request: Request) -> Answer:
        """Read several groups, then create or change them one by one, until one is refused."""
        configs = entries(content(request.frame), "groupConfigList")
        wanted = [bodies.read_group_config(config) for config in configs]
        named = [(check_group(name), settings) for name, settings in wanted]
        for change in [await self._change(name, settings) for name, settings in named]:
            await self._engine.submit(change)
        return DONE

    async def _change(self, name: str, settings: GroupSettings) -> PutGroup:
        """Return the command that gives a group these settings; a refusal changes nothing."""
        before = await settings_of(self._engine, name)
        changed = with_modes(bodies.with_attributes_of(before, settings), modes_of(before))
        return PutGroup(name, changed)

    async def configs(self, request: Request) -> Answer:
        """Return the settings of all consumer groups, or of `maxGroupNum` from `groupSeq` on."""
        first = integer(request.frame, "groupSeq", 0, low=0)
        limit = integer(request.frame, "maxGroupNum", GROUPS_MAX, low=0)
        count, found = await some_of(groups(self._engine), first, limit, bodies.config_entry)
        fields = {"totalGroupNum": str(count)}
        return Answer(fields=fields, body=bodies.group_configs(found))

    async def config(self, request: Request) -> Answer:
        """Return the settings of a consumer group."""
        group = await known_group(self._engine, text(request.frame, "group"))
        return Answer(body=encode(bodies.group_config(group)))

    async def delete(self, request: Request) -> Answer:
        """Delete a consumer group; without `cleanOffset` keep its progress, to go on from later.

        Progress belongs to a group, so a group that keeps it stays listed, with default settings.
        """
        name = check_group(text(request.frame, "groupName"))
        try:
            group = await known_group(self._engine, name)
            if group.topics and not flag(request.frame, "cleanOffset"):
                await self._engine.submit(PutGroup(name, GroupSettings()))
                return DONE
            await self._engine.submit(DeleteGroup(name))
        except HorologError as error:
            if error.code is not ErrorCode.GROUP_NOT_FOUND:
                raise
        self._node.forget(group=name)
        return DONE

    # --- progress ---------------------------------------------------------------------------------

    async def stats(self, request: Request) -> Answer:
        """Return a group's progress in every queue of a topic, or of all topics it consumes.

        Refuse if the answer would be larger than clients read.
        """
        frame = request.frame
        group = await known_group(self._engine, text(frame, "consumerGroup"))
        names = text(frame, "topicList", "").split(";")
        if not any(names):
            names = [text(frame, "topic", "")]
        named = dict.fromkeys(filter(None, names))
        for name in named:
            await self._engine.submit(DescribeTopic(check_topic(name), with_pending=False))
        rows: list[bytes] = []
        size, rate = 0, 0.0
        for topic in named or group.topics:
            found = await unless_deleted(self._progress(group.name, topic), _NONE)
            rows += found.rows
            size += sum(map(len, found.rows))
            _check_answer("topicList", size, "name fewer topics")
            rate += self._rates.gets(topic, group.name).minute.a_second
        return Answer(body=encode(bodies.consume_stats(rows, rate)))

    async def all_stats(self, request: Request) -> Answer:
        """Return the lag of every group, with a table for each of its topics; refuse as `stats`."""
        only_orderly = flag(request.frame, "isOrder")
        listed = []
        lag = in_flight = size = 0
        async for group in groups(self._engine):
            if only_orderly and not group.settings.orderly:
                continue
            tables = []
            for topic in group.topics:
                progress = await unless_deleted(self._progress(group.name, topic), _NONE)
                lag += progress.lag
                in_flight += progress.in_flight
                size += sum(map(len, progress.rows))
                _check_answer("isOrder", size, "ask for one group at a time")
                rate = self._rates.gets(topic, group.name).minute.a_second
                tables.append(bodies.consume_stats(progress.rows, rate))
            listed.append({group.name: tables})
        found = {
            "brokerAddr": self._node.address(request),
            "consumeStatsList": listed,
            "totalDiff": lag,
            "totalInflightDiff": in_flight,
        }
        return Answer(body=encode(found))

    async def _progress(self, group: str, topic: str) -> _Progress:
        queues: list[GroupQueueView] = await self._engine.submit(DescribeGroup(group, topic))
        last = [(queue.queue_id, queue.ack_floor - 1) for queue in queues]
        times = await stored_ms(self._engine, topic, last)
        found = [
            QueueProgress(
                topic,
                queue.queue_id,
                queue.max_offset,
                queue.ack_floor,
                max(queue.next_offset, queue.ack_floor, min(pulled, queue.max_offset)),
                time_ms,
            )
            for queue, time_ms in zip(queues, times, strict=True)
            for pulled in [self._node.pulled.of(group, topic, queue.queue_id)]
        ]
        return _Progress(
            [bodies.progress_entry(self._node.broker_name, queue) for queue in found],
            sum(queue.max_offset - queue.committed for queue in found),
            sum(queue.pulled - queue.committed for queue in found),
        )

    async def time_span(self, request: Request) -> Answer:
        """Return when the oldest, newest and last consumed message of each queue were stored."""
        topic = check_topic(text(request.frame, "topic"))
        group = check_group(text(request.frame, "group"))
        queues: list[GroupQueueView] = await self._engine.submit(DescribeGroup(group, topic))
        now_ms = self._engine.clock.wall_ms()
        wanted = [
            (queue.queue_id, offset)
            for queue in queues
            for offset in (
                queue.min_offset if queue.min_offset < queue.max_offset else -1,
                queue.max_offset - 1,
                queue.ack_floor - 1,
                queue.ack_floor if queue.ack_floor < queue.max_offset else -1,
            )
        ]
        times = await stored_ms(self._engine, topic, wanted)
        spans = []
        for row, queue in enumerate(queues):
            oldest, newest, consumed, next_one = times[4 * row : 4 * row + 4]
            spans.append(
                {
                    "consumeTimeStamp": consumed,
                    "delayTime": now_ms - next_one if next_one else 0,
                    "maxTimeStamp": newest,
                    "messageQueue": queue_key(topic, self._node.broker_name, queue.queue_id),
                    "minTimeStamp": oldest,
                }
            )
        return Answer(body=encode({"consumeTimeSpanSet": spans}))

    async def groups_of_topic(self, request: Request) -> Answer:
        """Return the groups that have consumed a topic, or subscribe to it now."""
        topic = check_topic(text(request.frame, "topic"))
        await self._engine.submit(DescribeTopic(topic, with_pending=False))
        found = {group.name async for group in groups(self._engine) if topic in group.topics}
        found.update(self._node.registry.groups_of(topic))
        for door in self._node.neighbours:
            found.update(door.groups_of(topic))
        return Answer(body=encode({"groupList": sorted(found)}))

    async def topics_of_group(self, request: Request) -> Answer:
        """Return the topics that a group has consumed."""
        group = await known_group(self._engine, text(request.frame, "group"))
        return Answer(body=topic_list(group.topics, self._node.address(request)))

    async def offsets(self, request: Request) -> Answer:
        """Return the offsets of all groups, `topic@group` → queue → offset, as RocketMQ's file."""
        del request
        rows: list[bytes] = []  # as JSON: a table of all takes too long to encode
        size = 0
        async for group in groups(self._engine):
            for topic in group.topics:
                asked = self._engine.submit(GetOffsets(group.name, topic))
                found: dict[int, int] = await unless_deleted(asked, {})
                table = {str(queue): at for queue, at in found.items()}
                rows.append(orjson.dumps({f"{topic}@{group.name}": table})[1:-1])
                size += len(rows[-1])
                _check_answer("offsetTable", size, "ask for one group at a time")
        return Answer(body=b'{"offsetTable":{' + b",".join(rows) + b"}}")

    async def clone_offsets(self, request: Request) -> Answer:
        """Set the offsets of a group to those of another group."""
        frame = request.frame
        source = await known_group(self._engine, text(frame, "srcGroup"))
        target = check_group(text(frame, "destGroup"))
        topic = text(frame, "topic", "")
        for name in [check_topic(topic)] if topic else source.topics:
            found: dict[int, int] = await self._engine.submit(GetOffsets(source.name, name))
            await self._engine.submit(CommitOffsets(target, name, found, afresh=True))
        return DONE


def _check_answer(field: str, size: int, instead: str) -> None:
    if size > UNREAD_BYTES_MAX:
        raise too_large(field, "the answer would have", UNREAD_BYTES_MAX, instead)
