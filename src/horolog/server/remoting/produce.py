"""Handlers of sends of 4.x clients, and of recalls by handle or by a cancelling message.

All sends of a connection until the next turn become one command for each topic
(`protocol.remoting.send`), and sends of one shape from several connections become one command too:
they share the cost of the command, and each frame has its own answer.  A missing topic is created,
if that is wanted, as RocketMQ does: with as many queues as the client asks for, at most those of
the template topic.  All sends to the topic until it exists wait, and are stored in the order in
which they came.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from functools import partial
from typing import Any, NamedTuple

from horolog.clock import monotonic_ms
from horolog.errors import ErrorCode, HorologError, refused
from horolog.limits import QUEUES_DEFAULT
from horolog.protocol.commands import Recall, RecallStatus, Sent
from horolog.protocol.remoting.codes import Code, Status
from horolog.protocol.remoting.frame import Frame
from horolog.protocol.remoting.gathered import NOT_STORED, Gathered
from horolog.protocol.remoting.header_shapes import HeaderShape
from horolog.protocol.remoting.request import Answer, integer, text
from horolog.protocol.remoting.send import Cancel, gather
from horolog.protocol.remoting.send_reader import Alike
from horolog.protocol.remoting.send_runs import gather_alike
from horolog.protocol.remoting.sent import ready_answers
from horolog.protocol.remoting.shapes import Shapes
from horolog.protocol.rocketmq.names import check_topic
from horolog.protocol.rocketmq.recall_handle import decode_recall_handle
from horolog.protocol.rocketmq.retry import RETRY_PREFIX
from horolog.protocol.transaction_commands import SendHalf
from horolog.server import messages
from horolog.server.batching import batches
from horolog.server.remoting.family import Handler
from horolog.server.remoting.link import RemotingLink
from horolog.server.remoting.node import Node
from horolog.server.remoting.request import Request
from horolog.server.remoting.retries import retry_of
from horolog.server.remoting.transactions import TransactionCodes


class _Sender(NamedTuple):
    """A connection, and a run of sends of one shape from it."""

    link: RemotingLink
    run: Alike


class ProduceCodes:
    """Handlers of RECALL_MESSAGE and of sends, which links gather.

    SEND_MESSAGE, SEND_MESSAGE_V2, SEND_BATCH_MESSAGE.
    """

    def __init__(self, node: Node, transactions: TransactionCodes) -> None:
        self._node = node
        self._transactions = transactions
        self._tasks: set[asyncio.Task[None]] = set()
        self._shapes = Shapes()  # of messages from several connections
        # Topics that are being created, with the sends and cancels that wait for them.
        self._waiting: dict[str, list[tuple[RemotingLink, Gathered | Cancel]]] = {}

    def handlers(self) -> dict[Code, Handler]:
        """Map each request code to its handler."""
        return {
            Code.SEND_MESSAGE: self.send,
            Code.SEND_MESSAGE_V2: self.send,
            Code.SEND_BATCH_MESSAGE: self.send,
            Code.RECALL_MESSAGE: self.recall,
        }

    def send(self, request: Request) -> None:
        """Store a message, or the messages of a batch; a property may give a due time."""
        self.store(request.link, [request.frame])

    def store_all(self, sends: Sequence[tuple[RemotingLink, Sequence[Frame | Alike]]]) -> None:
        """Store the messages that several connections have sent at about the same time.

        The sends of each connection stay in their order.
        """
        alike: dict[HeaderShape, list[_Sender]] = {}
        for link, frames in _by_link(sends).items():
            only = frames[0] if len(frames) == 1 else None
            if isinstance(only, Alike):
                alike.setdefault(only.shape, []).append(_Sender(link, only))
            else:
                self.store(link, frames)
        for senders in alike.values():
            for batch in batches(senders, lambda each: (len(each.run), each.run.body_bytes)):
                self._store_alike(batch)

    def _store_alike(self, senders: list[_Sender]) -> None:
        gathered = None
        if len(senders) > 1:
            runs = [each.run for each in senders]
            hosts = [(each.link.peer.host, each.link.peer.port) for each in senders]
            try:
                gathered = gather_alike(
                    runs, hosts, self._node.site, self._node.new_ids, self._shapes
                )
            except Exception as error:  # noqa: BLE001 - as in `store`
                for link, run in senders:
                    _fail_all(link, [run], error)
                return
        if gathered is None or gathered.command.topic in self._waiting:
            for link, run in senders:
                self.store(link, [run])
            return
        self._node.engine.ask(gathered.command, partial(self._on_alike_sent, senders, gathered))

    def _on_alike_sent(self, senders: list[_Sender], gathered: Gathered, result: object) -> None:
        ready = None
        if isinstance(result, Sent):
            ready = ready_answers(gathered, result, self._node.site)
        if ready is None:
            for (link, _), alone, (_, rows) in zip(
                senders, gathered.split_by_run(), gathered.taken, strict=True
            ):
                part = result.part(rows.start, rows.stop) if isinstance(result, Sent) else result
                self._on_sent(link, alone, part)
            return
        at = 0
        for link, run in senders:
            end = at if run.sample.is_one_way else at + len(run)
            link.answer_all([run], ready[at:end])
            at = end

    def store(self, link: RemotingLink, frames: Sequence[Frame | Alike]) -> None:
        """Store the messages that one connection has sent, in their order."""
        peer = (link.peer.host, link.peer.port)
        cancels: list[Cancel] = []
        try:
            found, refused = gather(
                frames, peer, self._node.site, self._node.new_ids, link.shapes, cancels
            )
        except Exception as error:  # noqa: BLE001 - our mistake: nobody else would tell the callers
            _fail_all(link, frames, error)
            return
        for frame, refusal in refused:
            link.fail(frame, refusal)
        for gathered in found:
            if gathered.command.topic.startswith(RETRY_PREFIX):
                self._send_retries(link, gathered)
                continue
            if isinstance(gathered.command, SendHalf):
                self._transactions.record_sender(link, gathered.command)
            if not self._queue_for_new_topic(gathered.command.topic, link, gathered):
                self._node.engine.ask(gathered.command, partial(self._on_sent, link, gathered))
        for cancel in cancels:  # sends that came before a cancel are submitted before it
            if not self._queue_for_new_topic(cancel.topic, link, cancel):
                self._start_task(self._cancel(link, cancel))

    def _queue_for_new_topic(self, topic: str, link: RemotingLink, what: Gathered | Cancel) -> bool:
        """Queue a send or cancel if its topic is being created; return whether it was queued."""
        waiting = self._waiting.get(topic)
        if waiting is None:
            return False
        waiting.append((link, what))
        return True

    def _send_retries(self, link: RemotingLink, gathered: Gathered) -> None:
        """Store retries one by one: each has its count of attempts, and may be a dead letter."""
        group = gathered.command.topic.removeprefix(RETRY_PREFIX)
        in_order = self._node.locks.is_orderly(group, monotonic_ms())
        for alone in gathered.split_by_frame():
            try:
                command = retry_of(alone, group, in_order=in_order)
            except HorologError as error:
                link.fail(alone.requests[0].frame, error)
            else:
                self._node.engine.ask(command, partial(self._on_sent, link, alone))

    def _on_sent(self, link: RemotingLink, gathered: Gathered, result: object) -> None:
        topic = gathered.command.topic
        if not _is_unknown(result) or not self._node.may_create_topic(topic):
            self._answer(link, gathered, result)
        elif not self._queue_for_new_topic(topic, link, gathered):
            try:
                queues = self._queues_for(topic, gathered)
            except HorologError as refusal:
                self._answer(link, gathered, refusal)
                return
            self._waiting[topic] = [(link, gathered)]
            self._start_task(self._create_topic(topic, queues))

    def _answer(self, link: RemotingLink, gathered: Gathered, result: object) -> None:
        if isinstance(result, HorologError):
            for frame, _ in gathered.requests:
                link.fail(frame, result)
            return
        assert isinstance(result, Sent)
        ready = ready_answers(gathered, result, self._node.site)
        if ready is not None:
            link.answer_all([asked for asked, _ in gathered.taken], ready)
            return
        for frame, answer in gathered.answers(result, self._node.site):
            if isinstance(answer, HorologError):
                link.fail(frame, answer)
            else:
                link.answer(frame, answer)

    def _start_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- topics that are not there ----------------------------------------------------------------

    async def _create_topic(self, topic: str, queues: int) -> None:
        """Create the topic, then store the sends that wait for it, or fail them with the error."""
        refusal: Exception | None = None
        try:
            await self._node.create_topic(topic, queues)
        except Exception as error:  # noqa: BLE001 - as in `store`
            refusal = error
        for link, each in self._waiting.pop(topic):
            if isinstance(each, Cancel):
                self._start_task(self._cancel(link, each))
            elif refusal is None:
                self._node.engine.ask(each.command, partial(self._answer, link, each))
            else:
                _fail_all(link, [asked for asked, _ in each.taken], refusal)

    def _queues_for(self, topic: str, first: Gathered) -> int:
        """Return how many queues the first sender asks for; raise BAD_REQUEST if unreadable."""
        if self._node.is_internal(topic):
            return 1
        frame = first.requests[0].frame
        field = "defaultTopicQueueNums" if frame.code == Code.SEND_MESSAGE else "d"
        return min(QUEUES_DEFAULT, integer(frame, field, QUEUES_DEFAULT, low=1))

    # --- recall -----------------------------------------------------------------------------------

    async def _cancel(self, link: RemotingLink, cancel: Cancel) -> None:
        """Recall the message that a cancelling message names.

        As with RocketMQ, the answer is a success whatever was found, and names no place.
        """
        due_ms = cancel.due_ms
        if due_ms < 0:
            due_ms = self._node.engine.clock.wall_ms() - due_ms
        try:
            await messages.recall_within_second(
                self._node.engine, Recall(cancel.topic, cancel.message_id, due_ms)
            )
        except Exception as error:  # noqa: BLE001 - as in `store`
            if not _is_unknown(error) or not self._queue_for_new_topic(cancel.topic, link, cancel):
                link.fail(cancel.frame, error)
        else:
            link.answer(cancel.frame, Answer(fields=NOT_STORED))

    async def recall(self, request: Request) -> Answer:
        """Recall a scheduled message by the handle of its send."""
        topic = check_topic(text(request.frame, "topic"))
        handle = decode_recall_handle(text(request.frame, "recallHandle"))
        if handle.topic != topic:
            raise refused("recallHandle", f"of topic {handle.topic!r}, not {topic!r}")
        command = Recall(topic, handle.message_id, handle.due_ms, handle.origin)
        recalled = await messages.recall(self._node.engine, command)
        if recalled.status is RecallStatus.CANCELLED:
            return Answer(fields={"msgId": recalled.message_id})
        return Answer(Status.ILLEGAL_OPERATION, remark=recalled.detail)


def _by_link(
    sends: Sequence[tuple[RemotingLink, Sequence[Frame | Alike]]],
) -> dict[RemotingLink, list[Frame | Alike]]:
    """Group sends by connection, in order; join adjacent runs of one shape."""
    found: dict[RemotingLink, list[Frame | Alike]] = {}
    for link, frames in sends:
        before = found.get(link)
        if before is None:
            found[link] = list(frames)
        else:
            for each in frames:
                if not (isinstance(each, Alike) and each.try_append_to(before[-1])):
                    before.append(each)
    return found


def _is_unknown(result: object) -> bool:
    return isinstance(result, HorologError) and result.code is ErrorCode.TOPIC_NOT_FOUND


def _fail_all(link: RemotingLink, frames: Sequence[Frame | Alike], error: Exception) -> None:
    """Fail each of a connection's sends with an error."""
    for each in frames:
        for frame in each.frames() if isinstance(each, Alike) else (each,):
            link.fail(frame, error)
