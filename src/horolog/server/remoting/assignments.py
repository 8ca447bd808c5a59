"""Assign queues to consumers, for clients that leave that to the broker."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson

from horolog.errors import ErrorCode, HorologError, refused
from horolog.protocol.commands import DescribeTopic, TopicView
from horolog.protocol.queue_commands import FindGroup, GroupSettings, GroupView, PutGroup
from horolog.protocol.remoting.assignment import ANY_QUEUE, POP, PULL, check_mode, share
from horolog.protocol.remoting.codes import Code
from horolog.protocol.remoting.request import DONE, Answer, content
from horolog.protocol.rocketmq.names import check_topic
from horolog.protocol.rocketmq.retry import RETRY_PREFIX
from horolog.server.loop import Engine
from horolog.server.remoting import presence
from horolog.server.remoting.family import Handler
from horolog.server.remoting.node import Node
from horolog.server.remoting.request import Request

_MODES = "messageRequestModes"  # key in a group's attributes; its value maps topic → mode
_ASK_LATER = Answer(body=orjson.dumps({"messageQueueAssignments": None}))
"""Clients keep their queues.  After an error some of Java 5.x, 5.1.4 for one, share out the queues of
the topic by themselves until they end: they would go on pulling when their group is told to pop."""


class AssignmentCodes:
    """Handlers of QUERY_ASSIGNMENT and SET_MESSAGE_REQUEST_MODE."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def handlers(self) -> dict[Code, Handler]:
        """Map each request code to its handler."""
        return {
            Code.QUERY_ASSIGNMENT: self.assign,
            Code.SET_MESSAGE_REQUEST_MODE: self.set_mode,
        }

    async def assign(self, request: Request) -> Answer:
        """Return the queues of a client, and whether it pulls or pops them."""
        wanted = content(request.frame)
        topic, group = _text(wanted, "topic"), _text(wanted, "consumerGroup")
        view: TopicView = await self._node.engine.submit(DescribeTopic(topic, with_pending=False))
        mode = modes_of(await settings_of(self._node.engine, group)).get(topic, PULL)
        if mode == POP:
            queues = [ANY_QUEUE]
        elif wanted.get("messageModel") == "BROADCASTING":
            queues = list(range(view.read_queues))
        elif presence.is_awaiting(self._node, group):
            return _ASK_LATER
        else:
            clients = [member.client_id for member in self._node.registry.members(group)]
            strategy = _text(wanted, "strategyName", "AVG")
            queues = share(strategy, view.read_queues, _text(wanted, "clientId"), clients)
        broker = self._node.broker_name
        assigned = [
            {
                "messageQueue": {"topic": topic, "brokerName": broker, "queueId": queue},
                "mode": mode,
            }
            for queue in queues
        ]
        return Answer(body=orjson.dumps({"messageQueueAssignments": assigned}))

    async def set_mode(self, request: Request) -> Answer:
        """Set whether a group pops or pulls messages of a topic; its attributes keep the mode."""
        wanted = content(request.frame)
        topic, group = check_topic(_text(wanted, "topic")), _text(wanted, "consumerGroup")
        mode = check_mode(wanted.get("mode"))
        if topic.startswith(RETRY_PREFIX):
            raise refused("topic", "retry topics are always pulled")
        engine = self._node.engine
        view: GroupView = await engine.submit(PutGroup(group))
        modes = {**modes_of(view.settings), topic: mode}
        await engine.submit(PutGroup(group, with_modes(view.settings, modes)))
        return DONE


async def settings_of(engine: Engine, group: str) -> GroupSettings:
    """Return the settings of a group; the defaults if there is no such group."""
    try:
        view: GroupView = await engine.submit(FindGroup(group))
    except HorologError as error:
        if error.code is not ErrorCode.GROUP_NOT_FOUND:
            raise
        return GroupSettings()
    return view.settings


def modes_of(settings: GroupSettings) -> dict[str, str]:
    """Return how a group takes messages from topics, where that was set: topic → mode."""
    found = settings.attributes.get(_MODES)
    return found if isinstance(found, dict) else {}


def with_modes(settings: GroupSettings, modes: dict[str, str]) -> GroupSettings:
    """Return group settings with these modes, in an attribute that no client knows."""
    if not modes:
        return settings
    return replace(settings, attributes={**settings.attributes, _MODES: modes})


def _text(wanted: dict[str, Any], name: str, default: str = "") -> str:
    value = wanted.get(name) or default
    if not isinstance(value, str) or not value:
        raise refused(name, "missing, or no text")
    return value
