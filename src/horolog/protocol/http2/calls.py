"""gRPC over HTTP/2, server side: requests in, framed messages out (grpc/doc/PROTOCOL-HTTP2.md).

A message (`grpc_wire`) arrives in any number of DATA frames.  Answers end with trailers that carry
`grpc-status`.  Nearly all answers of this broker use one of two header blocks, encoded in advance.

    UnaryCall      a call with its only message, complete
    Opened         a call of `streaming` paths has begun
    Message        a message of such a call
    MessagesEnded  the caller of such a call sends no more messages
    Dropped        the caller has gone and expects no answer
    AnswerSent     an answer that waited for the caller's windows is sent completely
    LateReset      the caller of an answered call did not wait for the answer to arrive, perhaps

Requests that are not gRPC get an HTTP status, broken ones a gRPC status; the caller of `receive`
sees neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from horolog.limits import REQUEST_BYTES_MAX, UNPACKED_BYTES_MAX
from horolog.protocol.http2 import hpack
from horolog.protocol.http2.connection import Connection
from horolog.protocol.http2.events import (
    AnswerSent,
    Body,
    Event,
    Head,
    LateReset,
    Limits,
    Pong,
    StreamAborted,
    WholeRequest,
)
from horolog.protocol.http2.faults import Code
from horolog.protocol.http2.grpc_wire import (
    INTERNAL,
    OK,
    PREFIX_BYTES,
    RESOURCE_EXHAUSTED,
    BrokenRequest,
    size_of,
    status_fields,
    uncompressed,
)
from horolog.protocol.http2.request_head import RequestHead
from horolog.protocol.http2.token_bucket import TokenBucket

_TYPE = (b"content-type", b"application/grpc")
_BEGIN = hpack.encode([(b":status", b"200"), _TYPE])
_END = hpack.encode([(b"grpc-status", b"0")])
# Bytes of a connection's unfinished requests
_UNFINISHED_MAX = REQUEST_BYTES_MAX + (16 << 20)


class UnaryCall(NamedTuple):
    """A call with its only message."""

    stream: int
    head: RequestHead
    message: bytes


class Opened(NamedTuple):
    """A streaming call has begun."""

    stream: int
    head: RequestHead


class Message(NamedTuple):
    """A message of a streaming call."""

    stream: int
    message: bytes


class MessagesEnded(NamedTuple):
    """The caller of a streaming call will send no more messages."""

    stream: int


class Dropped(NamedTuple):
    """The caller has gone."""

    stream: int


CallEvent = UnaryCall | Opened | Message | MessagesEnded | Dropped | AnswerSent | LateReset | Pong


class _Request:
    """A request that has not ended.

    head_bytes  size of its header fields
    since_ms    when its unfinished message began; 0: no message is unfinished, which only a
                streaming call may have
    """

    __slots__ = ("content", "head", "head_bytes", "since_ms", "streaming")

    def __init__(self, head: RequestHead, now_ms: int, *, streaming: bool) -> None:
        self.head = head
        self.head_bytes = sum([len(name) + len(value) for name, value in head.fields.items()])
        self.since_ms = 0 if streaming else now_ms
        self.streaming = streaming
        self.content = bytearray()


class Calls:
    """The gRPC calls of one connection.

    streaming  paths of calls with many messages from the caller
    """

    def __init__(self, streaming: frozenset[bytes], limits: Limits = Limits()) -> None:
        self.http = Connection(limits)
        self._streaming = streaming
        self._messages = TokenBucket(limits.messages_burst, limits.messages_per_second)
        self._requests: dict[int, _Request] = {}
        self._unfinished = 0  # bytes of messages in `_requests`
        self._head_bytes = 0  # bytes of header fields in `_requests`
        self._now_ms = 1
        self._unpacked = 0  # bytes of compressed requests in this chunk, unpacked
        self._broken: set[int] = set()  # refused during this `receive`: they need no `Dropped`

    def receive(self, chunk: bytes, now_ms: int) -> list[CallEvent]:
        """Take bytes of the peer and return the call events in them.  `now_ms` is monotonic."""
        found: list[CallEvent] = []
        self._now_ms = max(1, now_ms)
        self._unpacked = 0
        for event in self.http.receive(chunk, now_ms):
            if type(event) is WholeRequest:
                self._take_whole(event, found)
            elif type(event) is Body:
                self._take_body(event, found)
            elif type(event) is Head:
                self._take_head(event, found)
            else:
                self._take_other(event, found)
        self._broken.clear()
        return found

    def _take_whole(self, event: WholeRequest, found: list[CallEvent]) -> None:
        stream, head, content = event
        if (
            head.path not in self._streaming
            and head.method == b"POST"
            and head.fields.get(b"content-type", b"").startswith(b"application/grpc")
            and not content[0]
            and len(content) >= PREFIX_BYTES
            and size_of(content) == len(content) - PREFIX_BYTES
        ):
            found.append(UnaryCall(stream, head, content[PREFIX_BYTES:]))
            return
        self._take_head(Head(stream, head, False), found)
        self._take_body(Body(stream, content, True), found)

    def _take_head(self, event: Head, found: list[CallEvent]) -> None:
        stream, head, ended = event
        if head.method != b"POST":
            self._refuse(stream, b"405", (b"allow", b"POST"))
            return
        if not head.fields.get(b"content-type", b"").startswith(b"application/grpc"):
            self._refuse(stream, b"415")
            return
        streaming = head.path in self._streaming
        if ended and not streaming:
            self.fail(stream, INTERNAL, "the request has no message")
            return
        if streaming:
            found.append(Opened(stream, head))
        if ended:
            found.append(MessagesEnded(stream))
            return
        request = self._requests[stream] = _Request(head, self._now_ms, streaming=streaming)
        self._head_bytes += request.head_bytes

    def _refuse(self, stream: int, status: bytes, *more: hpack.Field) -> None:
        self.http.out.end(stream, hpack.encode([(b":status", status), *more]))

    def _take_body(self, event: Body, found: list[CallEvent]) -> None:
        stream, content, ended = event
        request = self._requests.get(stream)
        if request is None:
            return  # the request was refused
        try:
            if request.streaming:
                self._take_streamed(stream, request, content, found, ended=ended)
            else:
                self._take_single(stream, request, content, found, ended=ended)
        except BrokenRequest as broken:
            self._broken.add(stream)
            self.fail(stream, broken.status, broken.why)
            self.cancel(stream)  # in case earlier answers wait for the peer's windows
            if request.streaming:
                found.append(Dropped(stream))

    def _take_single(
        self, stream: int, request: _Request, content: bytes, found: list[CallEvent], *, ended: bool
    ) -> None:
        if not ended:
            self._gather(request, content)
            return
        if request.content:
            content = bytes(request.content) + content
        self._forget(stream)
        if len(content) < PREFIX_BYTES or size_of(content) != len(content) - PREFIX_BYTES:
            raise BrokenRequest(INTERNAL, "the request is not exactly one whole message")
        message = content[PREFIX_BYTES:]
        if content[0]:
            message = self._uncompressed(request.head, message)
        found.append(UnaryCall(stream, request.head, message))

    def _take_streamed(
        self, stream: int, request: _Request, content: bytes, found: list[CallEvent], *, ended: bool
    ) -> None:
        self._gather(request, content)
        held = request.content
        request.since_ms = request.since_ms or self._now_ms
        while len(held) >= PREFIX_BYTES and len(held) - PREFIX_BYTES >= (size := size_of(held)):
            if not self._messages.spend(self._now_ms):
                # One read may have 50,000 of them, and would hold up every other connection.
                raise BrokenRequest(RESOURCE_EXHAUSTED, "too many messages; send fewer a second")
            message = bytes(held[PREFIX_BYTES : PREFIX_BYTES + size])
            compressed = held[0]
            del held[: PREFIX_BYTES + size]
            self._unfinished -= PREFIX_BYTES + size
            found.append(
                Message(
                    stream, self._uncompressed(request.head, message) if compressed else message
                )
            )
            request.since_ms = self._now_ms
        if not held:
            request.since_ms = 0
        if ended:
            if held:
                raise BrokenRequest(INTERNAL, "the request ends within a message")
            self._forget(stream)
            found.append(MessagesEnded(stream))

    def _uncompressed(self, head: RequestHead, message: bytes) -> bytes:
        found = uncompressed(head, message, UNPACKED_BYTES_MAX - self._unpacked)
        self._unpacked += len(found)
        return found

    def _gather(self, request: _Request, content: bytes) -> None:
        request.content += content
        self._unfinished += len(content)
        if len(request.content) >= PREFIX_BYTES and size_of(request.content) > REQUEST_BYTES_MAX:
            raise BrokenRequest(
                RESOURCE_EXHAUSTED,
                f"a message of {size_of(request.content)} bytes; at most {REQUEST_BYTES_MAX} are "
                "allowed",
            )
        if self._unfinished > _UNFINISHED_MAX:
            raise BrokenRequest(
                RESOURCE_EXHAUSTED,
                f"more than {_UNFINISHED_MAX} bytes of requests that have not ended",
            )

    def _forget(self, stream: int) -> None:
        request = self._requests.pop(stream, None)
        if request is not None:
            self._unfinished -= len(request.content)
            self._head_bytes -= request.head_bytes

    def _take_other(self, event: Event, found: list[CallEvent]) -> None:
        if isinstance(event, StreamAborted):
            self._forget(event.stream)
            if event.stream not in self._broken:
                found.append(Dropped(event.stream))
        elif isinstance(event, AnswerSent | LateReset | Pong):
            found.append(event)

    @property
    def held(self) -> int:
        """Bytes of everything unfinished: messages, header fields of their requests, and frames."""
        return self._unfinished + self._head_bytes + self.http.held

    def overdue(self, before_ms: int) -> list[int]:
        """Return streams with an unfinished message that began before a time."""
        return [stream for stream, each in self._requests.items() if 0 < each.since_ms < before_ms]

    # --- answers --------------------------------------------------------------------------------

    def answer(self, stream: int, messages: bytes) -> None:
        """Send a whole answer: one or more framed messages, and success."""
        self.http.out.respond(stream, _BEGIN, messages, _END)

    def answer_all(self, streams: Sequence[int], answers: Sequence[bytes]) -> int:
        """Send whole answers while the peer has room; return how many, from the first, are done."""
        return self.http.out.respond_all(streams, _BEGIN, answers, _END)

    def begin(self, stream: int) -> None:
        """Begin an answer of many messages."""
        self.http.out.send_head(stream, _BEGIN)

    def send(self, stream: int, messages: bytes) -> None:
        """Send messages of an answer that was begun."""
        self.http.out.send_body(stream, messages)

    def finish(self, stream: int, status: int = OK, why: str = "") -> None:
        """End an answer that was begun."""
        self.http.out.end(stream, hpack.encode(status_fields(status, why)) if status else _END)
        self._forget(stream)

    def fail(self, stream: int, status: int, why: str) -> None:
        """Answer with a gRPC error; if the answer has begun, end it with the error."""
        if self.http.out.has_begun(stream):
            self.finish(stream, status, why)
            return
        self.http.out.end(
            stream, hpack.encode([(b":status", b"200"), _TYPE, *status_fields(status, why)])
        )
        self._forget(stream)

    def cancel(self, stream: int) -> None:
        """End a call without an answer."""
        self._forget(stream)
        if self.http.is_open(stream):
            self.http.out.reset(stream, Code.CANCEL)

    def abort(self, code: Code = Code.NO_ERROR, why: str = "") -> None:
        """End the connection, and drop its requests."""
        self.http.abort(code, why)
        self._requests.clear()
        self._unfinished = self._head_bytes = 0

    def check_invariants(self) -> None:
        """Check what must hold between the fields."""
        self.http.check_invariants()
        assert self._unfinished == sum(len(each.content) for each in self._requests.values())
        assert 0 <= self._unfinished <= _UNFINISHED_MAX
        assert self._head_bytes == sum(each.head_bytes for each in self._requests.values())
        assert all(self.http.is_open(stream) for stream in self._requests)
        for each in self._requests.values():
            assert bool(each.since_ms) is (bool(each.content) or not each.streaming)
