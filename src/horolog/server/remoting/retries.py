"""Handler of messages that consumers failed on: sent back, or sent to the group's retry topic."""

from __future__ import annotations

from horolog.errors import refused
from horolog.protocol.commands import Sent
from horolog.protocol.remoting.codes import Code
from horolog.protocol.remoting.frame import Frame
from horolog.protocol.remoting.gathered import Gathered
from horolog.protocol.remoting.request import DONE, I32_MAX, I32_MIN, Answer, integer, text
from horolog.protocol.retry_commands import SendBack, SendRetry
from horolog.protocol.transaction_commands import SendHalf
from horolog.server.remoting.family import Handler
from horolog.server.remoting.node import Node
from horolog.server.remoting.request import Request

# Ordinal of RocketMQ 3.4.9: the count of attempts that an older client sends means nothing.
_SAYS_HOW_OFTEN = 121


class RetryCodes:
    """Handler of CONSUMER_SEND_MSG_BACK."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def handlers(self) -> dict[Code, Handler]:
        """Map each request code to its handler."""
        return {Code.CONSUMER_SEND_MSG_BACK: self.send_back}

    async def send_back(self, request: Request) -> Answer:
        """Deliver a message again that a consumer failed on, or make it a dead letter."""
        frame = request.frame
        command = SendBack(
            text(frame, "group"),
            integer(frame, "offset"),
            integer(frame, "delayLevel", 0, low=I32_MIN, high=I32_MAX),
            _retry_max(frame, "maxReconsumeTimes"),
        )
        sent: Sent = await self._node.engine.submit(command)
        for refusal in sent.refused.values():
            raise refusal  # otherwise the consumer would go on, and the message would be lost
        return DONE


def retry_of(alone: Gathered, group: str, *, in_order: bool) -> SendRetry:
    """Return the command for one frame that was sent to the retry topic of a group.

    in_order  a client of the group holds a queue: orderly consumers have tried often enough
    """
    frame = alone.requests[0].frame
    if isinstance(alone.command, SendHalf):
        raise refused("TRAN_MSG", "a retry topic takes no messages of transactions")
    records, sizes = alone.command.columns()
    if len(sizes) != 1:
        raise refused(
            "batch", f"{len(sizes)} messages; a retry topic takes one at a time", "1 message"
        )
    name = "maxReconsumeTimes" if frame.code == Code.SEND_MESSAGE else "l"
    return SendRetry(group, records, _retry_max(frame, name), in_order)


def _retry_max(frame: Frame, name: str) -> int:
    """Return how many further attempts a client allows; −1: it does not say."""
    if frame.version < _SAYS_HOW_OFTEN:
        return -1
    return max(-1, integer(frame, name, -1, low=I32_MIN, high=I32_MAX))
