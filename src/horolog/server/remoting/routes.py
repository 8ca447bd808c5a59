"""Handlers of requests to the name server: routes of topics, and the cluster."""

from __future__ import annotations

from horolog.errors import ErrorCode, HorologError
from horolog.limits import QUEUES_DEFAULT
from horolog.protocol.commands import DescribeTopic, TopicView
from horolog.protocol.remoting.codes import Code, Status
from horolog.protocol.remoting.request import Answer, text
from horolog.protocol.remoting.routes import (
    INHERIT,
    READ_WRITE,
    broker_entry,
    cluster,
    route,
)
from horolog.protocol.rocketmq.names import CLOUD_TRACE_PREFIX, LANES_TOPIC, check_group
from horolog.protocol.rocketmq.retry import RETRY_PREFIX
from horolog.protocol.topic_commands import PERM_READ
from horolog.server.remoting.family import Handler
from horolog.server.remoting.kv_table import ORDER_TOPICS
from horolog.server.remoting.node import TEMPLATE_TOPIC, TRACE_TOPIC, Node
from horolog.server.remoting.request import Request

_CLUSTER_TOPIC_QUEUES = 16


class RouteCodes:
    """Handlers of GET_ROUTEINFO_BY_TOPIC and GET_BROKER_CLUSTER_INFO."""

    def __init__(self, node: Node) -> None:
        self._node = node
        inherited = READ_WRITE | INHERIT
        # Topics without messages: clients make topics like them, and tools find brokers by them.
        self._defaults = {
            node.cluster_name: (_CLUSTER_TOPIC_QUEUES, inherited),
            node.broker_name: (1, inherited),
            "SELF_TEST_TOPIC": (1, READ_WRITE),
            "OFFSET_MOVED_EVENT": (1, READ_WRITE),
            TRACE_TOPIC: (1, READ_WRITE),
            node.reply_topic: (1, READ_WRITE),
            LANES_TOPIC: (len(node.levels.delays_ms), PERM_READ),
        }
        if node.auto_create:
            self._defaults[TEMPLATE_TOPIC] = (QUEUES_DEFAULT, inherited)

    def handlers(self) -> dict[Code, Handler]:
        """Map each request code to its handler."""
        return {
            Code.GET_ROUTEINFO_BY_TOPIC: self.route,
            Code.GET_BROKER_CLUSTER_INFO: self.cluster,
        }

    async def route(self, request: Request) -> Answer:
        """Return the queues of a topic, and the broker that has them."""
        topic = text(request.frame, "topic")
        broker = self._broker(request)
        try:
            view: TopicView = await self._node.engine.submit(
                DescribeTopic(topic, with_pending=False)
            )
        except HorologError as error:
            if error.code is not ErrorCode.TOPIC_NOT_FOUND:
                raise
        else:
            order = self._node.kv.get(ORDER_TOPICS, topic) or ""
            perm = view.settings.perm
            return Answer(body=route(broker, view.read_queues, view.write_queues, perm, order))
        if topic in self._defaults:
            queues, perm = self._defaults[topic]
            return Answer(body=route(broker, queues, queues, perm))
        if _is_of_retries(topic) or topic.startswith(CLOUD_TRACE_PREFIX):
            return Answer(body=route(broker, 1, 1, READ_WRITE))
        return Answer(Status.TOPIC_NOT_EXIST, remark=f"topic: {topic[:200]!r} does not exist")

    def cluster(self, request: Request) -> Answer:
        """Return all brokers and their cluster."""
        return Answer(body=cluster(self._broker(request)))

    def _broker(self, request: Request) -> dict[str, object]:
        node = self._node
        return broker_entry(node.broker_name, node.cluster_name, node.address(request))


def _is_of_retries(topic: str) -> bool:
    """Return whether a topic is the retry topic of a valid group, whether it exists or not.

    Tools find a group by its retry topic.  A consumer asks for the route before its first
    heartbeat, which creates the topic, and then not for 30 s: its failed messages would have to
    wait for that.
    """
    if not topic.startswith(RETRY_PREFIX):
        return False
    try:
        check_group(topic.removeprefix(RETRY_PREFIX))
    except HorologError:
        return False
    return True
