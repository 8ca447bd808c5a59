"""One request of a 4.x client, as its handler sees it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from horolog.protocol.grpc.translate import Peer
from horolog.protocol.remoting.frame import Frame
from horolog.protocol.remoting.request import Answer

if TYPE_CHECKING:
    from horolog.server.remoting.link import RemotingLink


class Request:
    """Answer it once; nothing is sent to a one-way request, or to a peer that has gone.

    parked  whether it waits for something to happen, and not for the broker's work
    """

    __slots__ = ("frame", "link", "parked")

    def __init__(self, link: RemotingLink, frame: Frame) -> None:
        self.link = link
        self.frame = frame
        self.parked = False

    @property
    def peer(self) -> Peer:
        """Where it came from."""
        return self.link.peer

    def park(self) -> None:
        """It waits for something to happen: a door that closes does not wait for it, and its fields are forgotten.

        TOO_MANY_REQUESTS if too many of its address wait.
        """
        assert not self.parked
        self.frame = self.link.park(self.frame)
        self.parked = True

    def answer(self, answer: Answer, pieces: Sequence[bytes | memoryview] = ()) -> bool:
        """How it went; `pieces` stand for the body of the answer.  False if the peer does not get it as it is."""
        return self.link.answer(self.frame, answer, pieces, parked=self.parked)

    def fail(self, error: BaseException) -> None:
        """It was refused, or met a mistake of ours, which is logged."""
        self.link.fail(self.frame, error, parked=self.parked)
