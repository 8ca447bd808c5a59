"""Handlers of pop consumers of RocketMQ 5.x over remoting: leases, as gRPC clients have them."""

from __future__ import annotations

from functools import partial

from horolog.errors import ErrorCode, HorologError
from horolog.limits import ANSWER_BYTES_MAX, INVISIBLE_MAX_MS, POLL_MAX_MS, RECEIVE_BATCH_MAX
from horolog.protocol.commands import (
    Ack,
    Acked,
    Changed,
    ChangeInvisible,
    DescribeGroup,
    DescribeTopic,
    GroupQueueView,
    Receive,
    Received,
    TopicView,
)
from horolog.protocol.remoting.codes import Code, Status
from horolog.protocol.remoting.heartbeat import SQL92
from horolog.protocol.remoting.pop import counts_of, fields_of, handles_of_batch, popped
from horolog.protocol.remoting.request import DONE, I32_MAX, Answer, content, flag, integer, text
from horolog.protocol.rocketmq.lease_time import lease_duration
from horolog.protocol.rocketmq.names import check_attempt_id, check_group_name
from horolog.ready.pop_receipt import decode_pop, encode_pop
from horolog.ready.receipt import decode_receipt
from horolog.server.lease_release import release_leases
from horolog.server.remoting.family import Handler
from horolog.server.remoting.link import RemotingLink
from horolog.server.remoting.node import Node
from horolog.server.remoting.request import Request
from horolog.server.remoting.subscriptions import filter_asked
from horolog.server.remoting.unanswered import UnansweredRequests

_FROM_END = 1  # value of the field initMode; 0: begin at the start of the queues


class PopCodes:
    """Handlers of pops, acks of leases, changes of invisible time, and questions about pops.

    POP_MESSAGE, ACK_MESSAGE, BATCH_ACK_MESSAGE, CHANGE_MESSAGE_INVISIBLETIME, NOTIFICATION,
    POLLING_INFO.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self._under_way: UnansweredRequests[Receive] = UnansweredRequests(node.engine)

    def handlers(self) -> dict[Code, Handler]:
        """Map each request code to its handler."""
        return {
            Code.POP_MESSAGE: self.pop,
            Code.ACK_MESSAGE: self.ack,
            Code.BATCH_ACK_MESSAGE: self.ack_batch,
            Code.CHANGE_MESSAGE_INVISIBLETIME: self.change,
            Code.NOTIFICATION: self.notify,
            Code.POLLING_INFO: self.polling,
        }

    # --- pop --------------------------------------------------------------------------------------

    def pop(self, request: Request) -> None:
        """Lease messages of a topic, now or when there are some; in order if asked for."""
        frame = request.frame
        topic = text(frame, "topic")
        wanted = filter_asked(frame, topic, "exp", "expType")
        command = Receive(
            check_group_name(text(frame, "consumerGroup")),
            topic,
            integer(frame, "queueId", low=-1, high=I32_MAX),
            wanted.expression,
            integer(frame, "maxMsgNums", low=1, high=RECEIVE_BATCH_MAX),
            integer(frame, "invisibleTime", low=1, high=INVISIBLE_MAX_MS),
            False,
            max(0, min(integer(frame, "pollTime", 0), POLL_MAX_MS)),
            "",
            bytes_max=ANSWER_BYTES_MAX,
            is_sql=wanted.type == SQL92,
            attempt_id=check_attempt_id(text(frame, "attemptId", ""), "attemptId"),
            in_order=flag(frame, "order"),
            from_end=integer(frame, "initMode", 0) == _FROM_END,
            counts_rest=True,
        )
        if command.poll_ms:
            try:
                request.park()
            except HorologError as error:
                self._full(request, error)
                return
        ticket = self._node.engine.ask(command, partial(self._on_result, request, command))
        self._under_way.add(request, ticket, command)

    @staticmethod
    def _full(request: Request, error: HorologError) -> None:
        request.answer(Answer(Status.POLLING_FULL, fields_of([], 0, 0), remark=error.message))

    def _on_result(self, request: Request, command: Receive, result: object) -> None:
        self._under_way.remove(request)
        if isinstance(result, HorologError) and result.code is ErrorCode.TOO_MANY_REQUESTS:
            self._full(request, result)
            return
        if not isinstance(result, Received):
            assert isinstance(result, HorologError)
            request.fail(result)
            return
        if not result.messages:
            status = Status.POLLING_TIMEOUT if command.poll_ms else Status.PULL_NOT_FOUND
            request.answer(Answer(status, fields_of([], 0, 0)))
            return
        invisible_ms = command.invisible_ms
        popped_ms = decode_receipt(result.messages[0].receipt_handle).expires_ms - invisible_ms
        layouts = popped(result.messages, partial(self._handle, invisible_ms))
        fields = fields_of(result.messages, popped_ms, invisible_ms, result.rest)
        if command.in_order:
            fields["orderCountInfo"] = counts_of(result.messages)
        if not request.answer(Answer(fields=fields, remark="FOUND"), layouts):
            handles = [message.receipt_handle for message in result.messages]
            release_leases(self._node.engine, command, handles)

    def _handle(self, invisible_ms: int, handle: str) -> str:
        return encode_pop(decode_receipt(handle), invisible_ms, self._node.broker_name)

    def connection_ended(self, link: RemotingLink) -> None:
        """Cancel the pops of a connection that has ended."""
        self._under_way.cancel(link)

    # --- leases -----------------------------------------------------------------------------------

    async def ack(self, request: Request) -> Answer:
        """Acknowledge a message."""
        frame = request.frame
        command = Ack(
            text(frame, "consumerGroup"), text(frame, "topic"), [text(frame, "extraInfo")]
        )
        acked: Acked = await self._node.engine.submit(command)
        if acked.refused[0] is not None:
            raise acked.refused[0]
        return DONE

    async def ack_batch(self, request: Request) -> Answer:
        """Acknowledge messages; those with a stale handle come again, as with official brokers."""
        for group, topic, handles in handles_of_batch(content(request.frame)):
            await self._node.engine.submit(Ack(group, topic, handles))
        return DONE

    async def change(self, request: Request) -> Answer:
        """Change how long a message stays invisible."""
        frame = request.frame
        invisible_ms = integer(frame, "invisibleTime", low=0, high=INVISIBLE_MAX_MS)
        command = ChangeInvisible(
            text(frame, "consumerGroup"),
            text(frame, "topic"),
            text(frame, "extraInfo"),
            invisible_ms,
        )
        changed: Changed = await self._node.engine.submit(command)
        now = decode_pop(self._handle(lease_duration(invisible_ms), changed.receipt_handle))
        return Answer(
            fields={
                "popTime": str(now.granted_ms),
                "invisibleTime": str(now.invisible_ms),
                "reviveQid": str(now.serial),
            }
        )

    # --- questions --------------------------------------------------------------------------------

    async def notify(self, request: Request) -> Answer:
        """Return whether a topic has messages never leased to a group; do not wait for any.

        For a group that does not exist yet all messages count, as its first pop creates it.
        """
        frame = request.frame
        group = check_group_name(text(frame, "consumerGroup"))
        topic = text(frame, "topic")
        queue_id = integer(frame, "queueId", -1, low=-1, high=I32_MAX)
        try:
            views: list[GroupQueueView] = await self._node.engine.submit(
                DescribeGroup(group, topic)
            )
        except HorologError as error:
            if error.code is not ErrorCode.GROUP_NOT_FOUND:
                raise
            found: TopicView = await self._node.engine.submit(
                DescribeTopic(topic, with_pending=False)
            )
            lows, ends = found.min_offsets, found.queue_offsets
            ranges = list(zip(range(len(ends)), lows, ends, strict=True))
        else:
            ranges = [(view.queue_id, view.next_offset, view.max_offset) for view in views]
        has = any(low < end for queue, low, end in ranges if queue_id in (-1, queue))
        return Answer(fields={"hasMsg": "true" if has else "false", "pollingFull": "false"})

    def polling(self, request: Request) -> Answer:
        """Return how many pops of a group wait for a queue of a topic, or (−1) for any queue."""
        frame = request.frame
        group, topic = check_group_name(text(frame, "consumerGroup")), text(frame, "topic")
        place = group, topic, integer(frame, "queueId", -1, low=-1, high=I32_MAX)
        waiting = sum(
            (each.group, each.topic, each.queue_id) == place for each in self._under_way.commands()
        )
        return Answer(fields={"pollingNum": str(waiting)})
