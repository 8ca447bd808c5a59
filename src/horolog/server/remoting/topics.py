"""Topics, for admin tools: made, changed, listed, and how far each queue has come."""

from __future__ import annotations

from typing import NamedTuple

from horolog.errors import ErrorCode, HorologError
from horolog.limits import QUEUES_DEFAULT, QUEUES_MAX, TOPICS_MAX
from horolog.protocol.commands import (
    ChangeTopic,
    CreateTopic,
    DescribeTopic,
    TopicType,
    TopicView,
)
from horolog.protocol.remoting import topic_bodies as bodies
from horolog.protocol.remoting.codes import Code
from horolog.protocol.remoting.frame import Frame
from horolog.protocol.remoting.request import DONE, Answer, content, entries, integer, text
from horolog.protocol.remoting.topic_bodies import PERM_READ_WRITE, QueueState
from horolog.protocol.rocketmq.names import SYSTEM_TOPICS, check_topic
from horolog.server.rates import Rates
from horolog.server.remoting.family import Handler
from horolog.server.remoting.listing import groups, stored_ms, topics
from horolog.server.remoting.node import RETRY_PREFIX, Node
from horolog.server.remoting.request import Request

_PERM_MAX = 15


class TopicCodes:
    """Answers what is asked of topics."""

    def __init__(self, node: Node, rates: Rates) -> None:
        self._node = node
        self._engine = node.engine
        self._rates = rates

    def handlers(self) -> dict[Code, Handler]:
        """Who handles which code."""
        return {
            Code.UPDATE_AND_CREATE_TOPIC: self.put,
            Code.UPDATE_AND_CREATE_TOPIC_LIST: self.put_all,
            Code.DELETE_TOPIC_IN_BROKER: self.delete,
            Code.DELETE_TOPIC_IN_NAMESRV: self.delete,
            Code.GET_ALL_TOPIC_CONFIG: self.configs,
            Code.GET_TOPIC_CONFIG: self.config,
            Code.GET_TOPIC_STATS_INFO: self.stats,
            Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self.names,
            Code.GET_TOPICS_BY_CLUSTER: self.names_of_cluster,
            Code.GET_SYSTEM_TOPIC_LIST_FROM_NS: self.system_names,
            Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: self.system_names,
        }

    async def put(self, request: Request) -> Answer:
        """Make a topic, or give it more queues."""
        await self._put(_wanted(request.frame.fields))
        return DONE

    async def put_all(self, request: Request) -> Answer:
        """The same of several topics, one by one, until one is refused; all of them are read before."""
        configs = entries(content(request.frame), "topicConfigList")
        for wanted in [_wanted(bodies.fields_of_config(config)) for config in configs]:
            await self._put(wanted)
        return DONE

    async def _put(self, wanted: _Wanted) -> None:
        name, type, queues = wanted
        try:
            known: TopicView = await self._engine.submit(DescribeTopic(name, with_pending=False))
        except HorologError as error:
            if error.code is not ErrorCode.TOPIC_NOT_FOUND:
                raise
            await self._engine.submit(CreateTopic(name, type or TopicType.MIXED, queues))
            return
        if type is not None and type is not known.type:
            await self._engine.submit(CreateTopic(name, type, known.queues))  # says why it cannot
        await self._engine.submit(ChangeTopic(name, queues))

    async def delete(self, request: Request) -> Answer:
        """Topics are not deleted; what is not there is gone already."""
        name = check_topic(text(request.frame, "topic"))
        try:
            await self._engine.submit(DescribeTopic(name, with_pending=False))
        except HorologError as error:
            if error.code is not ErrorCode.TOPIC_NOT_FOUND:
                raise
            return DONE
        raise HorologError(
            ErrorCode.NOT_IMPLEMENTED,
            f"topic {name!r} stays: topics cannot be deleted yet",
            field="topic",
        )

    async def configs(self, request: Request) -> Answer:
        """Settings of all topics, or of `maxTopicNum` of them from `topicSeq` on."""
        first = integer(request.frame, "topicSeq", 0, low=0)
        limit = integer(request.frame, "maxTopicNum", TOPICS_MAX, low=0)
        found = [topic async for topic in topics(self._engine)]
        fields = {"totalTopicNum": str(len(found))}
        return Answer(fields=fields, body=bodies.topic_configs(found[first : first + limit]))

    async def config(self, request: Request) -> Answer:
        """The settings of a topic."""
        name = check_topic(text(request.frame, "topic"))
        found: TopicView = await self._engine.submit(DescribeTopic(name, with_pending=False))
        return Answer(body=bodies.encode(bodies.topic_config(found)))

    async def stats(self, request: Request) -> Answer:
        """Lowest and next offset of every queue of a topic, and when its newest message was stored."""
        name = text(request.frame, "topic")
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

    async def names(self, request: Request) -> Answer:
        """Names of all topics, and of those for retries of all groups."""
        del request
        names = {topic.name async for topic in topics(self._engine)}
        # Tools find consumer groups by them, also before there is anything in them.
        names.update([RETRY_PREFIX + group.name async for group in groups(self._engine)])
        return Answer(body=bodies.topic_list(sorted(names)))

    async def names_of_cluster(self, request: Request) -> Answer:
        """The same names, if the cluster is this one."""
        cluster = text(request.frame, "cluster")
        if cluster != self._node.cluster_name:
            raise HorologError(
                ErrorCode.BAD_REQUEST,
                f"cluster: {cluster!r} is not known here; this is {self._node.cluster_name!r}",
                field="cluster",
            )
        return await self.names(request)

    async def system_names(self, request: Request) -> Answer:
        """Names that clients may not use, and those by which routes are found."""
        names = {*SYSTEM_TOPICS, self._node.cluster_name, self._node.broker_name}
        return Answer(body=bodies.topic_list(sorted(names), self._node.address(request)))


class _Wanted(NamedTuple):
    """A topic; type None: whatever it is."""

    name: str
    type: TopicType | None
    queues: int


def _wanted(fields: dict[str, str]) -> _Wanted:
    frame = Frame(Code.UPDATE_AND_CREATE_TOPIC, fields=fields)
    perm = integer(frame, "perm", PERM_READ_WRITE, low=0, high=_PERM_MAX)
    if perm != PERM_READ_WRITE:
        raise HorologError(
            ErrorCode.NOT_IMPLEMENTED,
            f"perm: {perm}; topics are for reading and writing ({PERM_READ_WRITE}) only",
            field="perm",
            limit=f"{PERM_READ_WRITE}",
        )
    name = check_topic(text(frame, "topic"))
    return _Wanted(name, bodies.type_wanted(text(frame, "attributes", "")), _queues(frame))


def _queues(frame: Frame) -> int:
    """How many queues are wanted: here a queue is read and written."""
    write = integer(frame, "writeQueueNums", QUEUES_DEFAULT, low=1, high=QUEUES_MAX)
    read = integer(frame, "readQueueNums", write, low=1, high=QUEUES_MAX)
    if read != write:
        raise HorologError(
            ErrorCode.BAD_REQUEST,
            f"readQueueNums: {read}, and writeQueueNums {write}; every queue is read and written, "
            "so they must be the same",
            field="readQueueNums",
            limit=str(write),
        )
    return write
