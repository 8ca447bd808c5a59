"""One gRPC call, as its handler uses it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Protocol

from horolog.errors import ErrorCode, HorologError
from horolog.limits import UNREAD_SMALL
from horolog.protocol.grpc.translate import Peer
from horolog.protocol.http2.calls import Calls
from horolog.protocol.http2.grpc_wire import OK, framed, timeout_ms
from horolog.protocol.http2.request_head import RequestHead
from horolog.server.connected import Origin
from horolog.server.shares import Share

_log = logging.getLogger("horolog.grpc")


class CallLink(Protocol):
    """The connection that a call came by."""

    calls: Calls
    peer: Peer
    address: str
    share: Share | None

    @property
    def origin(self) -> Origin:
        """The address and kind of the connection."""
        ...

    def schedule_flush(self) -> None:
        """Have the connection's output written soon."""
        ...

    def answered(self, stream: int) -> None:
        """Note that a call has its whole answer: the call is over once the peer has room for it."""
        ...

    def count_poll(self, size: int) -> None:
        """Count a call that begins to wait for messages.

        size  bytes of its request, which is no longer kept

        Raise TOO_MANY_REQUESTS if too many calls of the address wait.
        """
        ...

    def admit_answer(self, size: int) -> bool:
        """Return whether an answer of `size` bytes may be given."""
        ...

    def answer_all(self, calls: Sequence[Call], answers: Sequence[bytes]) -> None:
        """Write the whole answers of several calls of this connection."""
        ...

    def give_up(self, stream: int) -> None:
        """End a call without its answer, since the peer does not read its answers."""
        ...


class Call:
    """A call under way.  Answer it once, whole or in pieces.

    After the caller has gone an answer has no effect.

    link        the connection that the call came by
    size        bytes of the request, as long as it is kept
    began_ns    monotonic, when the request was complete
    counts      1 while the call counts as a request that the broker works on
    polls       the call waits for messages, and counts among the polls of its address
    on_dropped  called when the caller goes before it has taken the whole answer
    until_read  the answer counts as taken once the peer has read it, not once it is written
    """

    __slots__ = (
        "began_ns",
        "counts",
        "head",
        "link",
        "on_dropped",
        "polls",
        "size",
        "stream",
        "until_read",
    )

    def __init__(self, link: CallLink, stream: int, head: RequestHead, size: int) -> None:
        self.link = link
        self.stream = stream
        self.head = head
        self.size = size
        self.began_ns = time.monotonic_ns()
        self.polls = False
        self.counts = 1
        self.on_dropped: Callable[[], None] | None = None
        self.until_read = False

    @property
    def peer(self) -> Peer:
        """The address and port that the request came from."""
        return self.link.peer

    @property
    def address(self) -> str:
        """The peer's address as text, without the port."""
        return self.link.address

    @property
    def origin(self) -> Origin:
        """The call's connection, for operators."""
        return self.link.origin

    @property
    def is_open(self) -> bool:
        """Whether the caller still waits for the answer."""
        return self.link.calls.http.is_open(self.stream)

    @property
    def is_reading(self) -> bool:
        """Whether the caller is there, and has taken the answers so far."""
        return self.is_open and not self.link.calls.http.wants_room

    def begin_poll(self) -> None:
        """Note that the call waits for messages, and that its request is no longer kept.

        Raise TOO_MANY_REQUESTS if too many calls of the address wait.
        """
        self.link.count_poll(self.size)
        self.polls, self.counts, self.size = True, 0, 0

    def header(self, name: bytes) -> str:
        """Return a request header, "" if it is not there."""
        value = self.head.fields.get(name)
        return value.decode("utf-8", "replace") if value else ""

    def remaining_ms(self) -> int | None:
        """Return the milliseconds left of the caller's timeout; None if the caller set none."""
        whole = timeout_ms(self.head)
        if whole is None:
            return None
        return whole - (time.monotonic_ns() - self.began_ns) // 1_000_000

    def answer(self, messages: bytes) -> None:
        """Write the whole answer: framed messages, and status OK."""
        if self._has_room(len(messages)):
            self.link.calls.answer(self.stream, messages)
            self.link.answered(self.stream)

    def begin(self) -> None:
        """Begin an answer of many messages."""
        self.link.calls.begin(self.stream)
        self.link.schedule_flush()

    def send_message(self, message: bytes) -> None:
        """Write one message of an answer; end the call if the peer does not read its answers."""
        content = framed(message)
        if self._has_room(len(content)):
            self.link.calls.send(self.stream, content)
            self.link.schedule_flush()

    def _has_room(self, size: int) -> bool:
        """Return whether the peer may be given `size` bytes more; end the call if not.

        A large answer may fill the peer's windows for seconds, in which its other calls must not
        fail.  So small answers have room, at most one in each of the peer's streams.
        """
        link, http = self.link, self.link.calls.http
        is_small = size <= UNREAD_SMALL and not http.out.is_waiting(self.stream)
        if (http.wants_room and not is_small) or not link.admit_answer(size):
            link.give_up(self.stream)
            return False
        return True

    def finish(self, status: int = OK, why: str = "") -> None:
        """End an answer that was begun."""
        self.link.calls.finish(self.stream, status, why)
        self.link.answered(self.stream)

    def fail(self, status: int, why: str) -> None:
        """Answer with a gRPC error only."""
        self.link.calls.fail(self.stream, status, why)
        self.link.answered(self.stream)


def answer_all(calls: Sequence[Call], answers: Sequence[bytes]) -> None:
    """Answer calls that came together, maybe by several connections; none of them holds a poll."""
    start = 0
    for link, group in groupby(calls, key=attrgetter("link")):
        own = list(group)
        end = start + len(own)
        link.answer_all(own, answers[start:end])
        start = end


def as_horolog_error(error: object) -> HorologError:
    """Return a HorologError unchanged; log any other error as a bug and return INTERNAL."""
    if isinstance(error, HorologError):
        return error
    _log.error("unexpected %r", error, exc_info=error if isinstance(error, Exception) else None)
    return HorologError(ErrorCode.INTERNAL, f"unexpected {type(error).__name__}")


def answer_with(
    call: Call, make: Callable[[], bytes], refuse: Callable[[HorologError], bytes]
) -> None:
    """Answer a call with the result of `make`; if that fails, with `refuse` of the error."""
    try:
        messages = make()
    except Exception as error:  # noqa: BLE001 - in a callback nobody else would tell the caller
        messages = refuse(as_horolog_error(error))
    call.answer(messages)
