"""The life of a stream, as the server sees it (RFC 9113 §5.1).

A stream is *open* from its HEADERS on, and *half-closed* once the peer has ended it.  A server that
has ended an open stream is done with it: further frames of the peer are ignored, so there is no
half-closed (local) here.  It could ask the peer to stop (RST_STREAM with NO_ERROR), but gRPC's own
client may take that for an error of the call.  A closed stream is dropped; later frames for it are
judged by its id alone (`StreamIds`).

=============  ===========  ============  ============  ==========  ============
state          body         end           reset         our end     our reset
=============  ===========  ============  ============  ==========  ============
OPEN           OPEN         HALF_CLOSED   CLOSED        CLOSED      CLOSED
HALF_CLOSED    refused      refused       CLOSED        CLOSED      CLOSED
=============  ===========  ============  ============  ==========  ============

"Refused" is a stream error STREAM_CLOSED.
"""

from __future__ import annotations

from collections import deque
from enum import IntEnum

from horolog.protocol.http2.faults import Code, StreamFault


class State(IntEnum):
    """State of a stream."""

    OPEN = 0
    HALF_CLOSED = 1
    CLOSED = 2


class Step(IntEnum):
    """Event of a stream."""

    BODY = 0  # DATA of the peer
    END = 1  # END_STREAM of the peer, with or without DATA
    RESET = 2  # RST_STREAM of the peer
    OUR_END = 3
    OUR_RESET = 4


_SKIPPED_MAX = 64  # gaps in the peer's stream ids that are remembered
REFUSED = None
TABLE: dict[State, tuple[State | None, ...]] = {
    State.OPEN: (State.OPEN, State.HALF_CLOSED, State.CLOSED, State.CLOSED, State.CLOSED),
    State.HALF_CLOSED: (REFUSED, REFUSED, State.CLOSED, State.CLOSED, State.CLOSED),
}


def after(state: State, step: Step) -> State:
    """Return the state after a legal step."""
    to = TABLE[state][step]
    assert to is not None, f"illegal step: {step} in state {state}"
    return to


class Stream:
    """One request and its answer."""

    __slots__ = (
        "begun",
        "expected",
        "got",
        "queue",
        "receive_window",
        "send_window",
        "state",
        "stream_id",
        "trailers",
    )

    def __init__(
        self, stream_id: int, send_window: int, receive_window: int, expected: int
    ) -> None:
        self.stream_id = stream_id
        self.state = State.OPEN
        self.send_window = send_window
        self.receive_window = receive_window
        self.expected = expected  # bytes of the body by content-length; −1: not stated
        self.got = 0
        self.begun = False  # the head of the answer is sent
        self.queue: deque[memoryview] | None = None  # body that waits for the peer's window
        self.trailers: bytes | None = None  # block that ends the stream after the queue

    def move(self, step: Step) -> None:
        """Apply a step; an illegal one of the peer is a StreamFault, of ours an assertion."""
        to = TABLE[self.state][step]
        if to is REFUSED:
            assert step <= Step.END
            raise StreamFault(self.stream_id, Code.STREAM_CLOSED, "the request had ended")
        self.state = to

    def count(self, size: int, *, ended: bool) -> None:
        """Count received body bytes; StreamFault if the body does not match its content-length."""
        self.got += size
        if self.expected >= 0 and (
            self.got > self.expected or (ended and self.got != self.expected)
        ):
            raise StreamFault(
                self.stream_id,
                Code.PROTOCOL_ERROR,
                f"content-length says {self.expected} bytes, the body has {self.got}",
            )


class StreamIds:
    """Which streams the peer has opened (RFC 9113 §5.1.1): odd ids, each higher than the last.

    last  the highest id; 0: none.  Who has seen that an id follows the last may set it.
    """

    __slots__ = ("_skipped", "last")

    def __init__(self) -> None:
        self.last = 0
        self._skipped: list[range] = []

    def open(self, stream: int) -> None:
        """Note a new stream, and the ids it skips: those streams are closed for ever."""
        following = self.last + 2 if self.last else 1
        if stream > following:
            self._skipped = [*self._skipped[1 - _SKIPPED_MAX :], range(following, stream, 2)]
        self.last = stream

    def was_opened(self, stream: int) -> bool:
        """Return whether the peer has opened a stream; true for gaps too old to be remembered."""
        return (
            stream <= self.last and stream & 1 == 1 and not any(stream in g for g in self._skipped)
        )

    def check_invariants(self) -> None:
        """Check that a peer cannot make the gaps grow."""
        assert len(self._skipped) <= _SKIPPED_MAX
        assert all(gap.stop <= self.last for gap in self._skipped)
