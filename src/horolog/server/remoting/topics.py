"""Topics, for admin tools: create, change and list them, and show the state of their queues."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from horolog.errors import ErrorCode, HorologError, refused
from horolog.limits import QUEUES_DEFAULT, QUEUES_MAX, TOPICS_MAX
from horolog.protocol.commands import (
    ChangeTopic,
    CreateTopic,
    DeleteTopic,
    DescribeLanes,
    DescribeTopic,
    LaneView,
    TopicType,
    TopicView,
)
from horolog.protocol.remoting import topic_bodies as bodies
from horolog.protocol.remoting.codes import Code
from horolog.protocol.remoting.frame import Frame
from horolog.protocol.remoting.request import DONE, Answer, content, entries, flag, integer, text
from horolog.protocol.remoting.routes import INHERIT
from horolog.protocol.remoting.topic_bodies import QueueState
from horolog.protocol.rocketmq.late_policy import Late, parse_policy
from horolog.protocol.rocketmq.names import LANES_TOPIC, SYSTEM_TOPICS, check_topic
from horolog.protocol.rocketmq.retry import retry_topic
from horolog.protocol.topic_commands import PERM_READ, PERM_WRITE, TopicSettings, check_perm
from horolog.server.listing import groups, some_of, stored_ms, topics
from horolog.server.remoting.family import Handler
from horolog.server.remoting.node import Node
from horolog.server.remoting.request import Request

_PERM_MAX = 15


class TopicCodes:
    """Handlers of requests about topics."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._engine = node.engine
        self._rates = node.rates

    def handlers(self) -> dict[Code, Handler]:
        """Map each request code to its handler."""
        return {
            Code.UPDATE_AND_CREATE_TOPIC: self.put,
            Code.UPDATE_AND_CREATE_TOPIC_LIST: self.put_all,
            Code.WIPE_WRITE_PERM_OF_BROKER: self.stop_sends,
            Code.ADD_WRITE_PERM_OF_BROKER: self.allow_sends,
            Code.DELETE_TOPIC_IN_BROKER: self.delete,
            Code.DELETE_TOPIC_IN_NAMESRV: self.delete_route,
            Code.GET_ALL_TOPIC_CONFIG: self.configs,
            Code.GET_TOPIC_CONFIG: self.config,
            Code.GET_TOPIC_STATS_INFO: self.stats,
            Code.GET_ALL_DELAY_OFFSET: self.lane_offsets,
            Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self.names,
            Code.GET_TOPICS_BY_CLUSTER: self.names_of_cluster,
            Code.GET_SYSTEM_TOPIC_LIST_FROM_NS: self.system_names,
            Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: self.system_names,
        }

    async def put(self, request: Request) -> Answer:
        """Create a topic, or change its queues, settings or type."""
        await self._put(_wanted(request.frame.fields))
        return DONE

    async def put_all(self, request: Request) -> Answer:
        """Read several topics, then create or change them one by one, until one is refused."""
        configs = entries(content(request.frame), "topicConfigList")
        for wanted in [_wanted(bodies.fields_of_config(config)) for config in configs]:
            await self._put(wanted)
        return DONE

    async def _put(self, wanted: _Wanted) -> None:
        name, type, queues = wanted.name, wanted.type, max(wanted.read, wanted.write)
        try:
            known: TopicView = await self._engine.submit(DescribeTopic(name, with_pending=False))
        except HorologError as error:
            if error.code is not ErrorCode.TOPIC_NOT_FOUND:
                raise
            settings = wanted.settings(TopicSettings())
            await self._engine.submit(CreateTopic(name, type or TopicType.MIXED, queues, settings))
            return
        settings = wanted.settings(known.settings)
        await self._engine.submit(ChangeTopic(name, queues, settings, type))

    async def delete(self, request: Request) -> Answer:
        """Delete a topic without pending messages; one that does not exist is gone already."""
        name = check_topic(text(request.frame, "topic"))
        try:
            await self._engine.submit(DeleteTopic(name))
        except HorologError as error:
            if error.code is not ErrorCode.TOPIC_NOT_FOUND:
                raise
        self._node.forget(topic=name)
        return DONE

    async def delete_route(self, request: Request) -> Answer:
        """Change nothing: an existing topic keeps its route and its messages, as with RocketMQ."""
        name = check_topic(text(request.frame, "topic"))
        try:
            await self._engine.submit(DescribeTopic(name, with_pending=False))
        except HorologError as error:
            if error.code is not ErrorCode.TOPIC_NOT_FOUND:
                raise
            return DONE
        return Answer(
            remark=f"topic {name!r} is there, and so is its route; delete it in the broker"
        )

    async def stop_sends(self, request: Request) -> Answer:
        """Stop sends to all topics until ADD_WRITE_PERM_OF_BROKER; hand pending messages over."""
        changed = await self._change_perms(request, lambda perm: perm & ~PERM_WRITE)
        return Answer(fields={"wipeTopicCount": str(changed)})

    async def allow_sends(self, request: Request) -> Answer:
        """Allow sends to all topics."""
        changed = await self._change_perms(request, lambda perm: perm | PERM_WRITE)
        return Answer(fields={"addTopicCount": str(changed)})

    async def _change_perms(self, request: Request, changed: Callable[[int], int]) -> int:
        _check_named(request, "brokerName", self._node.broker_name)
        count = 0
        for topic in [topic async for topic in topics(self._engine)]:
            perm = changed(topic.settings.perm)
            if perm and perm != topic.settings.perm:  # one that is only sent to stays
                settings = replace(topic.settings, perm=perm)
                await self._engine.submit(ChangeTopic(topic.name, settings=settings))
                count += 1
        return count

    async def configs(self, request: Request) -> Answer:
        """Return the settings of all topics, or of `maxTopicNum` from `topicSeq` on."""
        first = integer(request.frame, "topicSeq", 0, low=0)
        limit = integer(request.frame, "maxTopicNum", TOPICS_MAX, low=0)
        count, found = await some_of(topics(self._engine), first, limit, bodies.config_entry)
        fields = {"totalTopicNum": str(count)}
        return Answer(fields=fields, body=bodies.topic_configs(found))

    async def config(self, request: Request) -> Answer:
        """Return the settings of a topic."""
        name = text(request.frame, "topic")
        if name == LANES_TOPIC:
            levels, settings = len(self._node.levels.delays_ms), TopicSettings(perm=PERM_READ)
            found = TopicView(name, TopicType.DELAY, levels, [], 0, settings=settings)
        else:
            found = await self._engine.submit(DescribeTopic(check_topic(name), with_pending=False))
        return Answer(body=bodies.encode(bodies.topic_config(found)))

    async def stats(self, request: Request) -> Answer:
        """Return lowest and next offset of every queue, and when its newest message was stored."""
        name = text(request.frame, "topic")
        if name == LANES_TOPIC:
            return await self._lanes()
        topic: TopicView = await self._engine.submit(
            DescribeTopic(check_topic(name), with_pending=False)
        )
        newest = [(queue_id, end - 1) for queue_id, end in enumerate(topic.queue_offsets)]
        times = await stored_ms(self._engine, name, newest)
        queues = [
            QueueState(*state)
            for state in zip(topic.min_offsets, topic.queue_offsets, times, strict=True)
        ]
        rate = self._rates.puts(name).minute.a_second
        return Answer(body=bodies.topic_stats(name, self._node.broker_name, queues, rate))

    async def _lanes(self) -> Answer:
        """Return a queue for every delay level; pending messages are between its two offsets."""
        found: list[LaneView] = await self._engine.submit(DescribeLanes())
        levels = max([len(self._node.levels.delays_ms), *(lane.level for lane in found)])
        queues = [QueueState(0, 0, 0)] * levels
        for lane in found:
            queues[lane.level - 1] = QueueState(lane.done, lane.scheduled, 0)
        rate = self._rates.puts(LANES_TOPIC).minute.a_second
        return Answer(body=bodies.topic_stats(LANES_TOPIC, self._node.broker_name, queues, rate))

    async def lane_offsets(self, request: Request) -> Answer:
        """Return how many messages of every delay level are done."""
        del request
        found: list[LaneView] = await self._engine.submit(DescribeLanes())
        table = {str(lane.level): lane.done for lane in found}
        return Answer(
            body=bodies.encode({"dataVersion": bodies.DATA_VERSION, "offsetTable": table})
        )

    async def names(self, request: Request) -> Answer:
        """Return the names of all topics, and of the retry topics of all groups."""
        del request
        names = {topic.name async for topic in topics(self._engine)}
        # Tools find consumer groups by their retry topics, even before these have messages.
        names.update([retry_topic(group.name) async for group in groups(self._engine)])
        return Answer(body=bodies.topic_list(sorted(names)))

    async def names_of_cluster(self, request: Request) -> Answer:
        """Return the names of all topics, if the cluster is this one."""
        _check_named(request, "cluster", self._node.cluster_name)
        return await self.names(request)

    async def system_names(self, request: Request) -> Answer:
        """Return the names that clients may not use, and those by which routes are found."""
        names = {*SYSTEM_TOPICS, self._node.cluster_name, self._node.broker_name}
        return Answer(body=bodies.topic_list(sorted(names), self._node.address(request)))


class _Wanted(NamedTuple):
    """The wanted state of a topic; None: unchanged."""

    name: str
    type: TopicType | None
    read: int  # queues
    write: int
    perm: int | None
    order: bool
    attributes: dict[str, str | None]
    multi_tag: bool | None

    def settings(self, known: TopicSettings) -> TopicSettings:
        """Return the topic's settings after the change; `known` are the present ones."""
        queues = max(self.read, self.write)
        attributes = {**known.attributes, **self.attributes}
        late = known.late_policy
        if bodies.LATE in attributes:
            late = parse_policy(str(attributes.pop(bodies.LATE) or Late.HAND_OVER), bodies.LATE)
        return TopicSettings(
            known.perm if self.perm is None else self.perm,
            self.order,
            self.read if self.read < queues else 0,
            self.write if self.write < queues else 0,
            {name: value for name, value in attributes.items() if value is not None},
            late.action,
            late.after_ms,
            known.multi_tag if self.multi_tag is None else self.multi_tag,
        )


def _wanted(fields: dict[str, str]) -> _Wanted:
    frame = Frame(Code.UPDATE_AND_CREATE_TOPIC, fields=fields)
    name = check_topic(text(frame, "topic"))
    type, attributes = bodies.attributes_wanted(text(frame, "attributes", ""))
    write = integer(frame, "writeQueueNums", QUEUES_DEFAULT, low=1, high=QUEUES_MAX)
    read = integer(frame, "readQueueNums", write, low=1, high=QUEUES_MAX)
    perm = _perm(frame) if fields.get("perm") else None
    order = flag(frame, "order")
    multi_tag = bodies.multi_tag_wanted(text(frame, "topicFilterType", ""), attributes)
    return _Wanted(name, type, read, write, perm, order, attributes, multi_tag)


def _check_named(request: Request, field: str, own: str) -> None:
    named = text(request.frame, field)
    if named != own:
        raise refused(field, f"{named[:200]!r} is not known here; this is {own!r}")


def _perm(frame: Frame) -> int:
    """Return a permission without RocketMQ's "inherit" bit; raise BAD_REQUEST if invalid."""
    asked = integer(frame, "perm", low=0, high=_PERM_MAX)
    perm = asked & ~INHERIT  # dashboards send 7 for read and write
    check_perm(perm, asked)
    return perm
