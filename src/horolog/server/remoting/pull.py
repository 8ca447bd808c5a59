"""Handlers of pulls of 4.x consumers: messages from an offset on, which the consumer keeps.

A pull may wait for messages.  A body is slices of the log, one for each message, joined once where
the answer is written.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial

from horolog.errors import ErrorCode, HorologError
from horolog.limits import POLL_MAX_MS, PULL_BYTES_MAX
from horolog.protocol.commands import CancelReceive
from horolog.protocol.queue_commands import CommitOffsets, Pull, Pulled, PullStatus
from horolog.protocol.remoting.codes import Code, Status
from horolog.protocol.remoting.frame import CPP, Frame
from horolog.protocol.remoting.heartbeat import SQL92, Subscription
from horolog.protocol.remoting.request import I32_MAX, I32_MIN, Answer, integer, text
from horolog.protocol.remoting.routes import ID_OF_LEADER
from horolog.protocol.rocketmq.names import check_group_name
from horolog.server.remoting.family import Handler
from horolog.server.remoting.link import RemotingLink
from horolog.server.remoting.node import Node
from horolog.server.remoting.request import Request
from horolog.server.remoting.subscriptions import check_filter, filter_asked
from horolog.server.remoting.unanswered import UnansweredRequests
from horolog.server.ticket import ignore_result

_COMMITS, _MAY_WAIT, _SUBSCRIBES = 1, 2, 4  # bits of the field sysFlag
_STATUS = {
    PullStatus.FOUND: Status.SUCCESS,
    PullStatus.FILTERED: Status.PULL_RETRY_IMMEDIATELY,
    PullStatus.NOTHING: Status.PULL_NOT_FOUND,
    PullStatus.MOVED: Status.PULL_OFFSET_MOVED,
}
_GIVEN = frozenset({PullStatus.FOUND, PullStatus.FILTERED})
_STOPPING = Answer(Status.SYSTEM_BUSY, remark="the broker is stopping; pull again later")


class PullCodes:
    """Handlers of PULL_MESSAGE and LITE_PULL_MESSAGE."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._is_stopping = False
        self._waiting: UnansweredRequests[Pull] = UnansweredRequests(node.engine)
        node.unseen_resets.on_reset = self._answer_waiting

    def handlers(self) -> dict[Code, Handler]:
        """Map each request code to its handler."""
        return {Code.PULL_MESSAGE: self.pull, Code.LITE_PULL_MESSAGE: self.pull}

    def pull(self, request: Request) -> None:
        """Return messages of a queue from an offset on, now or when there are some."""
        if self._is_stopping and request.link.language != CPP:
            request.answer(_STOPPING)
            return
        frame = request.frame
        group = check_group_name(text(frame, "consumerGroup"))
        topic = text(frame, "topic")
        queue_id = integer(frame, "queueId", low=I32_MIN, high=I32_MAX)
        flags = integer(frame, "sysFlag", 0, low=0, high=I32_MAX)
        expression = self._expression(request, group, topic, flags)
        if isinstance(expression, Answer):
            self._refuse(request, group, expression)
            return
        poll_ms = 0
        if flags & _MAY_WAIT:
            poll_ms = integer(frame, "suspendTimeoutMillis", 0)
        # Official brokers return one message to a client that asks for none.
        limit = max(1, integer(frame, "maxMsgNums", low=0, high=I32_MAX))
        room = integer(frame, "maxMsgBytes", PULL_BYTES_MAX, low=-1, high=I32_MAX)
        first = integer(frame, "queueOffset")
        must_learn = self._must_learn(request, group, topic, queue_id)
        if must_learn:
            poll_ms = 0
        elif flags & _COMMITS:
            commit = CommitOffsets(group, topic, {queue_id: integer(frame, "commitOffset", low=0)})
            self._node.engine.ask(commit, ignore_result)
        command = Pull(
            topic,
            queue_id,
            first,
            limit,
            min(room, PULL_BYTES_MAX) if room > 0 else PULL_BYTES_MAX,
            expression.expression,
            max(0, min(poll_ms, POLL_MAX_MS)),
            group=group,
            is_sql=expression.type == SQL92,
            broadcasts=not flags & _SUBSCRIBES and self._node.registry.broadcasts(group),
            # Push consumers that have consumed messages commit with each pull; other consumers
            # decide their offset themselves.
            resumes=bool(flags & _COMMITS),
        )
        if command.poll_ms:
            request.park()
        self._ask(request, command)

    def _must_learn(self, request: Request, group: str, topic: str, queue_id: int) -> bool:
        """Return whether a pull consumer must still learn that its group was reset in the queue."""
        return self._node.unseen_resets.has(
            group, topic, queue_id
        ) and self._node.registry.has_pulling(group, request.link)

    def _answer_waiting(self, group: str, topic: str) -> None:
        """Answer the waiting pulls of a group that was reset in a topic."""
        links = {member.link for member in self._node.registry.members(group)}
        for link in links:
            for ticket, command in self._waiting.of_link(link):
                if (command.group, command.topic) == (group, topic):
                    self._node.engine.ask(CancelReceive(ticket, answer=True), ignore_result)

    def _ask(self, request: Request, command: Pull) -> None:
        ticket = self._node.engine.ask(command, partial(self._on_result, request, command))
        if command.poll_ms:
            self._waiting.add(request, ticket, command)

    def _expression(
        self, request: Request, group: str, topic: str, flags: int
    ) -> Subscription | Answer:
        """Return the filter of the request, or else of the group's heartbeats; an Answer refuses.

        The heartbeats must be as new as the request.
        """
        frame = request.frame
        if flags & _SUBSCRIBES:
            return filter_asked(frame, topic, "subscription", "expressionType")
        version = integer(frame, "subVersion", 0)
        found = self._node.registry.subscription(group, topic)
        if found is None or found.version < version:
            found = self._node.asked.get(request.link, group, topic) or found
        if found is None:
            return Answer(
                Status.SUBSCRIPTION_NOT_EXIST,
                remark=(
                    f"subscription: no heartbeat of group {group!r} has one of topic {topic!r}"
                ),
            )
        if found.version < version:
            return Answer(
                Status.SUBSCRIPTION_NOT_LATEST,
                remark=(
                    f"subVersion: {version}; the newest heartbeat of group {group!r} has "
                    f"{found.version}"
                ),
            )
        check_filter(found)
        return found

    def _refuse(self, request: Request, group: str, refusal: Answer) -> None:
        """Refuse a pull, unless the client answers what it wants: its heartbeat is to come."""
        node, link = self._node, request.link
        asked = None
        if refusal.status == Status.SUBSCRIPTION_NOT_LATEST or not node.registry.has(link):
            asked = node.asked.ask(link, group, integer(request.frame, "subVersion", 0))
        if asked is None:
            request.answer(refusal)
        else:
            asked.add_done_callback(partial(self._pull_again, request, refusal))

    def _pull_again(self, request: Request, refusal: Answer, asked: asyncio.Future[Frame]) -> None:
        if not asked.cancelled() and asked.exception() is not None:
            request.answer(refusal)  # the client has not answered, or has gone
            return
        try:
            self.pull(request)
        except HorologError as error:
            request.fail(error)

    # --- results ----------------------------------------------------------------------------------

    def _on_result(self, request: Request, command: Pull, result: object) -> None:
        self._waiting.remove(request)
        if isinstance(result, Pulled):
            place = command.group, command.topic, command.queue_id
            if self._must_learn(request, *place):
                moved = self._node.unseen_resets.take(*place)
                if moved is not None and moved != command.first:
                    self._answer(request, _moved_to(result, moved))
                    return
            if command.group and result.status in _GIVEN:
                self._node.pulled.record(*place, result.next_offset)
            self._answer(request, result)
            return
        assert isinstance(result, HorologError)
        if result.code is ErrorCode.GROUP_NOT_FOUND:
            # The group was deleted while the pull waited: no settings forbid anything now.
            self._ask(request, command)
            return
        request.fail(result)

    @staticmethod
    def _answer(request: Request, result: Pulled) -> None:
        fields = {
            "suggestWhichBrokerId": ID_OF_LEADER,
            "nextBeginOffset": str(result.next_offset),
            "minOffset": str(result.min_offset),
            "maxOffset": str(result.max_offset),
        }
        request.answer(Answer(_STATUS[result.status], fields), result.layouts)

    def stop(self) -> None:
        """Refuse the waiting pulls, and all that come from now on.

        Clients of Java and Go pull again 3 s after a refusal.  Of a connection that just ends those
        of 4.x take no notice until their pull has waited for 30 s.  Clients of C++ would pull again
        at once, and are not refused.
        """
        self._is_stopping = True
        for link in self._waiting.links():
            if link.language != CPP:
                for request in self._waiting.cancel(link):
                    request.answer(_STOPPING)

    def connection_ended(self, link: RemotingLink) -> None:
        """Cancel the waiting pulls of a connection that has ended."""
        self._waiting.cancel(link)


def _moved_to(result: Pulled, offset: int) -> Pulled:
    """Return a result without messages that says where to go on."""
    return replace(result, status=PullStatus.MOVED, layouts=[], next_offset=offset)
