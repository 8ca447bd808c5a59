"""One gRPC call, as its handler sees it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Protocol

from horolog.errors import ErrorCode, HorologError
from horolog.protocol.grpc.translate import Peer
from horolog.protocol.http2.calls import Calls
from horolog.protocol.http2.grpc_wire import OK, framed, timeout_ms
from horolog.protocol.http2.request_head import RequestHead
from horolog.server.connected import Origin

_log = logging.getLogger("horolog.grpc")


class Line(Protocol):
    """The connection that a call came by."""

    calls: Calls
    peer: Peer
    address: str

    @property
    def origin(self) -> Origin:
        """Where it comes from."""
        ...

    def owes(self) -> None:
        """Something was said: write it soon."""
        ...

    def answered(self, stream: int) -> None:
        """A call has its answer: it is over once the peer has room for it."""
        ...

    def holds_poll(self, size: int) -> None:
        """A call is going to wait for messages; TOO_MANY_REQUESTS if too many of its address do.

        size  bytes of its request, of which nothing is kept
        """
        ...

    def gives(self, size: int) -> bool:
        """Whether an answer of so many bytes may be given."""
        ...

    def answer_all(self, calls: Sequence[Call], answers: Sequence[bytes]) -> None:
        """The whole answers of calls that came by it."""
        ...

    def give_up(self, stream: int) -> None:
        """The peer does not take its answers: it gets none to this call."""
        ...


class Call:
    """Answer it once, in whole or in pieces; after its caller has gone nothing happens.

    line        the connection that it came by
    size        bytes of the request, as long as it is kept
    began_ns    monotonic, when the request was complete
    counts      1 while it counts as a request that the broker works on
    polls       whether it waits for messages, and counts among what its address may have of that
    on_dropped  called when the caller goes before it has taken the whole answer
    """

    __slots__ = ("began_ns", "counts", "head", "line", "on_dropped", "polls", "size", "stream")

    def __init__(self, line: Line, stream: int, head: RequestHead, size: int) -> None:
        self.line = line
        self.stream = stream
        self.head = head
        self.size = size
        self.began_ns = time.monotonic_ns()
        self.polls = False
        self.counts = 1
        self.on_dropped: Callable[[], None] | None = None

    @property
    def peer(self) -> Peer:
        """Where the request came from."""
        return self.line.peer

    @property
    def address(self) -> str:
        """The same as text, without the port."""
        return self.line.address

    @property
    def origin(self) -> Origin:
        """Its connection, for operators."""
        return self.line.origin

    @property
    def is_open(self) -> bool:
        """Whether somebody waits for the answer."""
        return self.line.calls.http.is_open(self.stream)

    @property
    def takes_more(self) -> bool:
        """Whether its caller is there, and takes what it was told before."""
        return self.is_open and not self.line.calls.http.wants_room

    def hold_poll(self) -> None:
        """It is going to wait for messages, and what its request said is forgotten.

        TOO_MANY_REQUESTS if too many of its address do.
        """
        self.line.holds_poll(self.size)
        self.polls, self.counts, self.size = True, 0, 0

    def header(self, name: bytes) -> str:
        """A request header, "" if it is not there."""
        value = self.head.fields.get(name)
        return value.decode("utf-8", "replace") if value else ""

    def remaining_ms(self) -> int | None:
        """What is left of the caller's patience; None if it did not say."""
        whole = timeout_ms(self.head)
        if whole is None:
            return None
        return whole - (time.monotonic_ns() - self.began_ns) // 1_000_000

    def answer(self, messages: bytes) -> None:
        """The whole answer: framed messages, and success."""
        if self._has_room(len(messages)):
            self.line.calls.answer(self.stream, messages)
            self.line.answered(self.stream)

    def begin(self) -> None:
        """Begin an answer of many messages."""
        self.line.calls.begin(self.stream)
        self.line.owes()

    def say(self, message: bytes) -> None:
        """Go on with an answer that was begun; it ends if the peer takes too little of it."""
        content = framed(message)
        if self._has_room(len(content)):
            self.line.calls.say(self.stream, content)
            self.line.owes()

    def _has_room(self, size: int) -> bool:
        """Whether the peer may have so many bytes more; its stream ends if it takes too little."""
        line = self.line
        if line.calls.http.wants_room or not line.gives(size):
            line.give_up(self.stream)
            return False
        return True

    def finish(self, status: int = OK, why: str = "") -> None:
        """End an answer that was begun."""
        self.line.calls.finish(self.stream, status, why)
        self.line.answered(self.stream)

    def fail(self, status: int, why: str) -> None:
        """An answer that is a gRPC error only."""
        self.line.calls.fail(self.stream, status, why)
        self.line.answered(self.stream)


def answer_all(calls: Sequence[Call], answers: Sequence[bytes]) -> None:
    """Answer calls that came together, maybe by several connections; none of them holds a poll."""
    start = 0
    for line, group in groupby(calls, key=attrgetter("line")):
        own = list(group)
        end = start + len(own)
        line.answer_all(own, answers[start:end])
        start = end


def expected(error: object) -> HorologError:
    """A refusal as it is; anything else is our own mistake, and logged."""
    if isinstance(error, HorologError):
        return error
    _log.error("unexpected %r", error, exc_info=error if isinstance(error, Exception) else None)
    return HorologError(ErrorCode.INTERNAL, f"unexpected {type(error).__name__}")


def answer_with(
    call: Call, make: Callable[[], bytes], refuse: Callable[[HorologError], bytes]
) -> None:
    """Answer with what `make` gives; with what `refuse` says of its error if it fails."""
    try:
        messages = make()
    except Exception as error:  # noqa: BLE001 - in a callback nobody else would tell the caller
        messages = refuse(expected(error))
    call.answer(messages)
