"""Pass a consumer's reply to the producer that waits for it: request and reply between clients.

A request is an ordinary message that names its sender (REPLY_TO_CLIENT) and itself
(CORRELATION_ID).  The reply names the same two, goes to the cluster's reply topic, and is pushed to
the sender over its own connection, found by its client id.  Then the reply is stored too, as
official brokers do, so that it can be looked up; the answer waits only for the delivery.  A reply
without a body is passed on and not stored: Go clients make such replies whatever they are given.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from horolog.errors import ErrorCode, HorologError, refused
from horolog.limits import REPLIES_BYTES_MAX
from horolog.protocol.commands import Sent
from horolog.protocol.grpc.translate import Peer
from horolog.protocol.remoting.codes import Code, Status
from horolog.protocol.remoting.frame import FrameFault
from horolog.protocol.remoting.gathered import NOT_STORED, Gathered
from horolog.protocol.remoting.request import Answer, text
from horolog.protocol.remoting.send import gather
from horolog.protocol.rocketmq import properties
from horolog.protocol.transaction_commands import SendHalf
from horolog.server.remoting.family import Handler
from horolog.server.remoting.node import TEMPLATE_TOPIC, Node
from horolog.server.remoting.request import Request

# Official brokers wait this long for a client to take a reply; the replier has given up by then.
_TAKE_S = 10.0
_SHORT = "abcdefghijk"
_LONG = (
    "producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag",
    "bornTimestamp", "flag", "properties", "reconsumeTimes", "unitMode",
)  # fmt: skip
_LEAST = {  # clients cannot read a reply without these fields
    "producerGroup": "",
    "defaultTopic": TEMPLATE_TOPIC,
    "defaultTopicQueueNums": "0",
    "queueId": "0",
    "sysFlag": "0",
    "bornTimestamp": "0",
    "flag": "0",
}
_log = logging.getLogger("horolog.remoting")


class ReplyCodes:
    """Handlers of SEND_REPLY_MESSAGE and SEND_REPLY_MESSAGE_V2."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._waiting_bytes = 0  # of replies until their askers have taken them

    def handlers(self) -> dict[Code, Handler]:
        """Map each request code to its handler."""
        return {
            Code.SEND_REPLY_MESSAGE: self.reply,
            Code.SEND_REPLY_MESSAGE_V2: self.reply_short,
        }

    async def reply(self, request: Request) -> Answer:
        """Pass a reply on to the client that waits for it, and keep it in the reply topic."""
        return await self._reply(request, request.frame.fields, Code.SEND_MESSAGE)

    async def reply_short(self, request: Request) -> Answer:
        """Do as SEND_REPLY_MESSAGE does, for a reply with short field names."""
        given = request.frame.fields
        fields = {
            name: given[short] for short, name in zip(_SHORT, _LONG, strict=True) if short in given
        }
        return await self._reply(request, fields, Code.SEND_MESSAGE_V2)

    async def _reply(self, request: Request, fields: Mapping[str, str], send: Code) -> Answer:
        gathered = self._read(request, send)
        stored = fields.get("properties", "").encode()
        asker = properties.value_of(stored, properties.REPLY_TO_CLIENT)
        if asker is None:
            return _not_passed(f"properties: {properties.REPLY_TO_CLIENT} is missing")
        client = self._node.registry.producer(asker)
        if client is None:
            return _not_passed(f"{properties.REPLY_TO_CLIENT}: no producer {asker[:200]!r} is here")
        pushed, body = self._push_fields(request, fields, stored), request.frame.body
        if self._waiting_bytes and self._waiting_bytes + len(body) > REPLIES_BYTES_MAX:
            return _not_passed(
                f"{self._waiting_bytes} bytes of replies wait for their askers already"
            )
        # A parked request does not count as under way: with too many of those nothing would be
        # read, not even the asker's answer.
        request.park()
        self._waiting_bytes += len(body)
        try:
            taken = await client.link.ask(Code.PUSH_REPLY_MESSAGE_TO_CLIENT, pushed, body, _TAKE_S)
        except (TimeoutError, ConnectionError, FrameFault) as fault:
            return _not_passed(f"{properties.REPLY_TO_CLIENT}: {asker[:200]!r}: {fault}")
        finally:
            self._waiting_bytes -= len(body)
        if taken.code != Status.SUCCESS:
            said = f"answered {taken.code}: {taken.remark[:200]}"
            return _not_passed(f"{properties.REPLY_TO_CLIENT}: {asker[:200]!r} {said}")
        return await self._store(gathered) if body else _not_kept()

    def _read(self, request: Request, send: Code) -> Gathered:
        """Read the reply as a send, without the check for a body; raise if it cannot be stored."""
        frame = request.frame._replace(code=send, body=request.frame.body or b"-")
        topic = text(frame, "topic" if send == Code.SEND_MESSAGE else "b")
        if topic != self._node.reply_topic:
            raise refused("topic", f"{topic[:200]!r}; replies go to {self._node.reply_topic!r}")
        peer, node = request.peer, self._node
        found, wrong = gather(
            [frame], (peer.host, peer.port), node.site, node.new_ids, request.link.shapes
        )
        for _, refusal in wrong:
            raise refusal
        [gathered] = found
        if isinstance(gathered.command, SendHalf) or len(gathered.ids) != 1:
            raise refused("body", "one reply at a time, and none of a transaction")
        return gathered

    def _push_fields(
        self, request: Request, fields: Mapping[str, str], stored: bytes
    ) -> dict[str, str]:
        """Return the fields of the push of a reply."""
        host, peer = self._node.store_host, request.peer
        now_ms = str(self._node.engine.clock.wall_ms())
        return {
            **_LEAST,
            **{name: fields[name] for name in _LONG if name in fields},
            "properties": properties.replaced(stored, properties.PUSH_REPLY_TIME, now_ms).decode(),
            "bornHost": peer.text,
            "storeHost": Peer(host[:4], int.from_bytes(host[4:])).text,
            "storeTimestamp": now_ms,
        }

    async def _store(self, gathered: Gathered) -> Answer:
        """Store a reply that was passed on; if that fails, the answer is OK and names no place."""
        engine = self._node.engine
        try:
            try:
                sent: Sent = await engine.submit(gathered.command)
            except HorologError as error:
                if error.code is not ErrorCode.TOPIC_NOT_FOUND:
                    raise
                await self._node.create_topic(gathered.command.topic, 1)
                sent = await engine.submit(gathered.command)
        except HorologError as error:
            _log.debug("a reply is passed on and not kept: %s", error)
        else:
            [(_, answer)] = gathered.answers(sent, self._node.site)
            if isinstance(answer, Answer):
                return answer
        return _not_kept()


def _not_passed(why: str) -> Answer:
    return Answer(Status.SYSTEM_ERROR, remark=why)


def _not_kept() -> Answer:
    return Answer(fields=NOT_STORED)
