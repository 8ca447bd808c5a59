"""Handlers of transactions of 4.x clients: END_TRANSACTION, and checks by CHECK_TRANSACTION_STATE.

A client that names a producer group in its heartbeats, or that has sent the group's last half
message, may be asked how a transaction of the group ended.
"""

from __future__ import annotations

from collections.abc import Callable

from horolog.limits import CLIENTS_REMEMBERED_MAX, STORED_PROPERTIES_MAX
from horolog.protocol.remoting.codes import Code
from horolog.protocol.remoting.request import DONE, Answer, integer, text
from horolog.protocol.rocketmq import layout, properties
from horolog.protocol.rocketmq.message import RECORD_HEAD_BYTES
from horolog.protocol.transaction_commands import (
    CheckDue,
    EndTransaction,
    Resolution,
    SendHalf,
    TransactionCheck,
)
from horolog.server.remoting.family import Handler
from horolog.server.remoting.link import RemotingLink
from horolog.server.remoting.node import Node
from horolog.server.remoting.request import Request

_RESOLUTIONS = {
    layout.TRANSACTION_COMMITTED: Resolution.COMMIT,
    layout.TRANSACTION_BITS: Resolution.ROLLBACK,
}


class TransactionCodes:
    """Handler of END_TRANSACTION; chooses the producer to ask about a transaction."""

    def __init__(self, node: Node) -> None:
        self.on_producer_connected: Callable[[str], None] = lambda _: None
        self._node = node
        self._registry = node.registry
        self._registry.on_producer_connected = self._on_producer_connected
        self._senders: dict[str, RemotingLink] = {}  # by group: sent its last half message
        self._sent_by: dict[RemotingLink, set[str]] = {}  # groups by that connection
        self._turn = 0  # producers of a group are asked in turn

    def handlers(self) -> dict[Code, Handler]:
        """Map each request code to its handler."""
        return {Code.END_TRANSACTION: self.end}

    async def end(self, request: Request) -> Answer:
        """Commit or roll back; an end that says neither changes nothing."""
        frame = request.frame
        said = integer(frame, "commitOrRollback")
        await self._node.engine.submit(
            EndTransaction(
                integer(frame, "commitLogOffset"),
                _RESOLUTIONS.get(said & layout.TRANSACTION_BITS, Resolution.UNKNOWN),
                topic=text(frame, "topic", "") or None,
                group=text(frame, "producerGroup"),
                half_offset=integer(frame, "tranStateTableOffset"),
            )
        )
        return DONE

    # --- producers to ask -------------------------------------------------------------------------

    def record_sender(self, link: RemotingLink, command: SendHalf) -> None:
        """Record the sender of a half message: it may not have sent a heartbeat yet.

        A sender that has left since its message came is not recorded: nothing would remove it.
        """
        if link.is_lost:
            return
        records, _ = command.columns()
        stored = layout.topic_and_properties(records[RECORD_HEAD_BYTES:])[1]
        group = properties.value_of(stored, properties.PRODUCER_GROUP) or ""
        before = self._senders.get(group)
        if before is link or (before is None and len(self._senders) >= CLIENTS_REMEMBERED_MAX):
            return
        if before is not None:
            self._sent_by[before].discard(group)
        self._senders[group] = link
        self._sent_by.setdefault(link, set()).add(group)

    def _on_producer_connected(self, group: str) -> None:
        self.on_producer_connected(group)

    def connection_ended(self, link: RemotingLink) -> None:
        """Drop the groups of a connection that has ended."""
        for group in self._sent_by.pop(link, ()):
            del self._senders[group]

    def has(self, due: CheckDue) -> bool:
        """Return whether a producer of the group is connected that can be asked.

        It must read its connection and be allowed to send to the topic.  A client that only claims
        to be of the group does not count: checks that reach no producer would end the transaction.
        """
        return any(link.is_reading for link in self._links(due))

    def _links(self, due: CheckDue | TransactionCheck) -> list[RemotingLink]:
        links = [client.link for client in self._registry.producers(due.group)]
        if not links and due.group in self._senders:
            links = [self._senders[due.group]]
        return [link for link in links if link.may_publish(due.topic)]

    def ask(self, check: TransactionCheck) -> bool:
        """Ask a producer of the group how a transaction ended; return False if none can be."""
        links = self._links(check)
        self._turn += 1
        for i in range(len(links)):
            if self._push(links[(self._turn + i) % len(links)], check):
                return True
        return False

    @staticmethod
    def _push(link: RemotingLink, check: TransactionCheck) -> bool:
        stored = layout.topic_and_properties(check.layout)[1]
        message_id = properties.value_of(stored, properties.UNIQ_KEY) or ""
        marked = properties.replaced(stored, properties.CHECK_TIMES, str(check.checks))
        if len(marked) > STORED_PROPERTIES_MAX:  # the client would read a negative length
            marked = stored
        fields = {
            "topic": check.topic,
            "tranStateTableOffset": str(check.half_offset),
            "commitLogOffset": str(check.position),
            "msgId": message_id,
            "transactionId": message_id,
            "offsetMsgId": layout.offset_message_id(check.layout),
        }
        body = layout.with_properties(check.layout, marked)
        return link.push(Code.CHECK_TRANSACTION_STATE, fields, body)
