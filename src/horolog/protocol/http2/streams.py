"""The life of a stream, as the server sees it (RFC 9113 §5.1).

A stream is *open* from its HEADERS on; *half-closed* once the peer has said all.  A server that has said all on an
open stream is done with it: what the peer still says is passed over, so there is no half-closed (local) here.  It could
ask the peer to stop (RST_STREAM with NO_ERROR), but gRPC's own client may take that for an error of the call.  A
closed stream is forgotten; what still comes for it is judged by its id alone (`connection`).

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
    """Where a stream is."""

    OPEN = 0
    HALF_CLOSED = 1
    CLOSED = 2


class Step(IntEnum):
    """What happens to a stream."""

    BODY = 0  # DATA of the peer
    END = 1  # END_STREAM of the peer, with or without DATA
    RESET = 2  # RST_STREAM of the peer
    OUR_END = 3
    OUR_RESET = 4


REFUSED = None
TABLE: dict[State, tuple[State | None, ...]] = {
    State.OPEN: (State.OPEN, State.HALF_CLOSED, State.CLOSED, State.CLOSED, State.CLOSED),
    State.HALF_CLOSED: (REFUSED, REFUSED, State.CLOSED, State.CLOSED, State.CLOSED),
}


def after(state: State, step: Step) -> State:
    """The state after a step that may come."""
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
        self.expected = expected  # bytes of the body that content-length states; −1: it does not
        self.got = 0
        self.begun = False  # the head of its answer is out
        self.queue: deque[memoryview] | None = None  # answers that wait for the peer's window
        self.trailers: bytes | None = None  # block that ends the stream after the queue

    def move(self, step: Step) -> None:
        """Take a step of the table; a peer's illegal one is a StreamFault, ours an assertion."""
        to = TABLE[self.state][step]
        if to is REFUSED:
            assert step <= Step.END
            raise StreamFault(self.stream_id, Code.STREAM_CLOSED, "the request had ended")
        self.state = to

    def count(self, size: int, *, ended: bool) -> None:
        """Count `size` body bytes that have come; a StreamFault unless they add up to what content-length states."""
        self.got += size
        if self.expected >= 0 and (
            self.got > self.expected or (ended and self.got != self.expected)
        ):
            raise StreamFault(
                self.stream_id,
                Code.PROTOCOL_ERROR,
                f"content-length says {self.expected} bytes, the body has {self.got}",
            )
