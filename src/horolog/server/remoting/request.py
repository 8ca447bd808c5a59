"""One request of a 4.x client, as its handler uses it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from horolog.protocol.grpc.translate import Peer
from horolog.protocol.remoting.frame import Frame
from horolog.protocol.remoting.request import Answer

if TYPE_CHECKING:
    from horolog.server.remoting.link import RemotingLink


class Request:
    """A request.  Answer it once; one-way requests and peers that have gone get no answer.

    parked  whether the request waits for an event, and not for the broker's work
    """

    __slots__ = ("frame", "link", "parked")

    def __init__(self, link: RemotingLink, frame: Frame) -> None:
        self.link = link
        self.frame = frame
        self.parked = False

    @property
    def peer(self) -> Peer:
        """The address and port that the request came from."""
        return self.link.peer

    def park(self) -> None:
        """Let the request wait for an event: a closing door does not wait for it; drop its fields.

        Raise TOO_MANY_REQUESTS if too many requests of the address wait.
        """
        assert not self.parked
        self.frame = self.link.park(self.frame)
        self.parked = True

    def answer(self, answer: Answer, pieces: Sequence[bytes | memoryview] = ()) -> bool:
        """Answer; `pieces` form the body.  Return False if the peer does not get it as it is."""
        return self.link.answer(self.frame, answer, pieces, parked=self.parked)

    def fail(self, error: BaseException) -> None:
        """Answer with an error; log the error if it is a bug of our own."""
        self.link.fail(self.frame, error, parked=self.parked)
