"""A server's end of an HTTP/2 connection: bytes in, events and output bytes out (RFC 9113).

    events = connection.receive(chunk, now_ms)      any chunking; answers the peer's faults
    connection.out.respond(stream, …)               and so on: output gathers
    transport.write(connection.take_output())       once, when all replies of a turn are there

After a fault of the connection, and after `abort`, `closed` is true: write the output and close the
transport.  `receive` returns `Head` and `Body` for requests, or `WholeRequest` for one whose frames
came together, `StreamAborted` for a reset stream, `LateReset` for one that had ended, `AnswerSent`
for a delayed answer that has gone out, and `Pong` for the answer to `ping`.  Requests that the peer
may not make are answered here and never seen: malformed ones, those beyond `Limits.streams`, those
with too many fields.

Flow control.  Received bytes are credited at once: the reader of the socket limits memory by not
reading.  Sent bytes wait in their stream for room in the peer's windows (`outgoing`); `wants_room`
says that more than `Limits.queued_bytes` wait.  The peer should get no more large answers then, but
small ones, since it may be reading as fast as it can: their streams are limited.

This file takes HEADERS, CONTINUATION and DATA; `control_frames` takes all others.  `floods` limits
cheap frames, `header_block` its pieces; more of them end the connection with ENHANCE_YOUR_CALM.
"""

from __future__ import annotations

from horolog.protocol.http2 import frames
from horolog.protocol.http2.control_frames import ControlFrames
from horolog.protocol.http2.events import (
    AnswerSent,
    Body,
    Event,
    Head,
    Limits,
    StreamAborted,
    WholeRequest,
)
from horolog.protocol.http2.faults import Code, ConnectionFault, StreamFault
from horolog.protocol.http2.floods import Floods
from horolog.protocol.http2.frames import HEADER_BYTES, Setting, Type
from horolog.protocol.http2.header_block import HeaderBlock
from horolog.protocol.http2.heads import Heads
from horolog.protocol.http2.outgoing import Outgoing
from horolog.protocol.http2.request_head import Malformed, check_trailers
from horolog.protocol.http2.streams import State, Step, Stream, StreamIds, after

_ENDING_DATA = bytes((Type.DATA, frames.END_STREAM))
_ENDED = after(State.OPEN, Step.END)


class Connection:
    """One connection of a server; owns no socket and no clock."""

    def __init__(self, limits: Limits = Limits()) -> None:
        self._limits = limits
        self._frame_bytes = max(limits.frame_bytes, frames.FRAME_BYTES_INITIAL)
        self._buffer = b""
        self._greeted = False  # the preface has come
        self._heads = Heads(limits.header_bytes)
        self._block = HeaderBlock(limits.header_pieces, self._frame_bytes)
        self._streams: dict[int, Stream] = {}
        self._ids = StreamIds()
        self._events: list[Event] = []
        self._window = 4 * limits.window_bytes  # bytes that the peer may still send
        self._credit = 0  # bytes received, and not yet credited to the peer
        self._shut_after: int | None = None  # last stream taken before the announced shutdown
        self.out = Outgoing(self._streams, self._frame_bytes)
        self._floods = Floods(limits, self.out)
        self._control = ControlFrames(self._streams, self._ids, self._floods, self.out)
        self.closed = False
        self.fault: ConnectionFault | None = None
        self.out.ready += (
            frames.settings(
                {
                    Setting.MAX_CONCURRENT_STREAMS: limits.streams,
                    Setting.INITIAL_WINDOW_SIZE: limits.window_bytes,
                    Setting.MAX_FRAME_SIZE: self._frame_bytes,
                    Setting.MAX_HEADER_LIST_SIZE: limits.header_bytes,
                }
            ),
            frames.window_update(0, self._window - frames.WINDOW_INITIAL),
        )

    # --- input ----------------------------------------------------------------------------------

    def receive(self, chunk: bytes, now_ms: int) -> list[Event]:
        """Take bytes of the peer and return the events in them.  `now_ms` is monotonic."""
        if self.closed:
            return []
        self._floods.now_ms = now_ms
        buffer = self._buffer + chunk if self._buffer else chunk
        at = 0
        try:
            if not self._greeted:
                at = self._greet(buffer)
            if self._greeted:
                at = self._take_frames(buffer, at)
        except ConnectionFault as fault:
            self.fault = fault
            self.abort(fault.code, fault.why)
            at = len(buffer)
        self._buffer = buffer[at:] if at < len(buffer) else b""
        events, self._events = self._events, []
        if self.out.late:
            events += map(AnswerSent, self.out.late)
            self.out.late.clear()
        return events

    def _greet(self, buffer: bytes) -> int:
        preface = frames.PREFACE
        if buffer[: len(preface)] != preface[: len(buffer)]:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "the preface of HTTP/2 is missing")
        self._greeted = len(buffer) >= len(preface)
        return len(preface) if self._greeted else 0

    def _take_frames(self, buffer: bytes, at: int) -> int:
        end = len(buffer)
        while end - at >= HEADER_BYTES:
            length = buffer[at] << 16 | buffer[at + 1] << 8 | buffer[at + 2]
            if length > self._frame_bytes:
                raise ConnectionFault(
                    Code.FRAME_SIZE_ERROR,
                    f"a frame of {length} bytes; at most {self._frame_bytes} are allowed",
                )
            stop = at + HEADER_BYTES + length
            if stop > end:
                break
            if buffer[at + 3] == Type.HEADERS and (whole := self._take_whole(buffer, at, stop)):
                at = whole
                continue
            stream = int.from_bytes(buffer[at + 5 : at + 9], "big") & frames.STREAM_MASK
            try:
                self._take(buffer[at + 3], buffer[at + 4], stream, buffer[at + HEADER_BYTES : stop])
            except StreamFault as fault:
                self._floods.spend_reset()
                if self.out.reset(fault.stream, fault.code):
                    self._events.append(StreamAborted(fault.stream))
            at = stop
        return at

    def _take_whole(self, buffer: bytes, at: int, data: int) -> int:
        """Take a request of one HEADERS at `at` and one DATA; return its end, or 0 if unusual.

        Nearly all requests are like this, with a header block that came before.  Anything unusual
        is left to the frames' own methods, before any state has changed.
        """
        body = data + HEADER_BYTES
        id_bytes = buffer[at + 5 : at + 9]
        if (
            buffer[at + 4] != frames.END_HEADERS
            or buffer[data + 3 : body] != _ENDING_DATA + id_bytes
        ):
            return 0
        size = buffer[data] << 16 | buffer[data + 1] << 8 | buffer[data + 2]
        stream = int.from_bytes(id_bytes, "big")
        head = self._heads.cached(buffer[at + HEADER_BYTES : data])
        if (
            head is None
            or head.content_length not in (-1, size)
            or stream != self._ids.last + 2
            or not 0 < size <= min(self._frame_bytes, self._window, self._limits.window_bytes)
            or len(buffer) < body + size
            or self._block.stream
            or self._shut_after is not None
            or len(self._streams) >= self._limits.streams
        ):
            return 0
        self._ids.last = stream
        made = Stream(stream, self.out.new_window, self._limits.window_bytes, head.content_length)
        made.got = size
        made.state = _ENDED
        self._streams[stream] = made
        self._credit_connection(size)
        self._events.append(WholeRequest(stream, head, buffer[body : body + size]))
        return body + size

    def _take(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if self._block.stream and (kind != Type.CONTINUATION or stream != self._block.stream):
            raise ConnectionFault(Code.PROTOCOL_ERROR, "a header block is interrupted")
        if not self._control.settled and (kind != Type.SETTINGS or flags & frames.ACK):
            raise ConnectionFault(Code.PROTOCOL_ERROR, "the first frame is not SETTINGS")
        if kind == Type.DATA:
            self._take_data(flags, stream, payload)
        elif kind == Type.HEADERS:
            self._take_headers(flags, stream, payload)
        elif kind == Type.CONTINUATION:
            self._take_continuation(flags, payload)
        elif event := self._control.take(kind, flags, stream, payload):
            self._events.append(event)

    def _find_open_stream(self, stream: int) -> Stream | None:
        """Return an open stream; None if we ended it first; else raise the fault of the peer."""
        found = self._streams.get(stream)
        if found is not None:
            return found
        if not self._ids.was_opened(stream):
            raise ConnectionFault(Code.PROTOCOL_ERROR, f"stream {stream} was never opened")
        if self.out.was_ended_early(stream):
            return None
        raise ConnectionFault(Code.STREAM_CLOSED, f"stream {stream} is closed")

    # --- header blocks --------------------------------------------------------------------------

    def _take_headers(self, flags: int, stream: int, payload: bytes) -> None:
        if not stream & 1:
            raise ConnectionFault(Code.PROTOCOL_ERROR, f"HEADERS on stream {stream}")
        block = self._block.begin(flags, stream, payload)
        if block is not None:
            self._take_block(stream, block)

    def _take_continuation(self, flags: int, payload: bytes) -> None:
        stream = self._block.stream
        block = self._block.add_continuation(flags, payload)
        if block is not None:
            self._take_block(stream, block)

    def _take_block(self, stream: int, block: bytes) -> None:
        if stream <= self._ids.last:
            self._take_trailers(stream, block)
            return
        self._ids.open(stream)
        head = self._heads.read(stream, block)
        if self._block.fault is not None:
            raise self._block.fault
        if self._shut_after is not None:
            raise StreamFault(stream, Code.REFUSED_STREAM, "this end is shutting down")
        if len(self._streams) >= self._limits.streams:
            raise StreamFault(stream, Code.REFUSED_STREAM, f"{self._limits.streams} are open")
        made = Stream(stream, self.out.new_window, self._limits.window_bytes, head.content_length)
        if self._block.ends_stream:
            made.count(0, ended=True)
            made.move(Step.END)
        self._streams[stream] = made
        self._events.append(Head(stream, head, self._block.ends_stream))

    def _take_trailers(self, stream: int, block: bytes) -> None:
        fields = self._heads.decode(block)
        found = self._find_open_stream(stream)
        if found is None:
            return
        found.move(Step.END)
        if not self._block.ends_stream:
            raise StreamFault(stream, Code.PROTOCOL_ERROR, "trailers do not end the stream")
        try:
            check_trailers(fields or [])
        except Malformed as error:
            raise StreamFault(stream, Code.PROTOCOL_ERROR, str(error)) from None
        found.count(0, ended=True)
        self._events.append(Body(stream, b"", True))

    # --- bodies -----------------------------------------------------------------------------------

    def _take_data(self, flags: int, stream: int, payload: bytes) -> None:
        size = len(payload)
        if not stream:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "DATA on stream 0")
        if size > self._window:
            raise ConnectionFault(Code.FLOW_CONTROL_ERROR, "the connection's window is used up")
        self._credit_connection(size)
        ended = bool(flags & frames.END_STREAM)
        content = frames.unpadded(payload) if flags & frames.PADDED else payload
        if not content and not ended:
            self._floods.spend_frame()
        found = self._find_open_stream(stream)
        if found is None:
            return
        if size > found.receive_window:
            raise StreamFault(stream, Code.FLOW_CONTROL_ERROR, "the stream's window is used up")
        found.move(Step.END if ended else Step.BODY)
        found.count(len(content), ended=ended)
        if not ended:
            self._credit_stream(found, size)
        self._events.append(Body(stream, content, ended))

    def _credit_connection(self, size: int) -> None:
        self._window -= size
        self._credit += size
        if self._credit >= 2 * self._limits.window_bytes:
            self.out.ready.append(frames.window_update(0, self._credit))
            self._window += self._credit
            self._credit = 0

    def _credit_stream(self, stream: Stream, size: int) -> None:
        full = self._limits.window_bytes
        stream.receive_window -= size
        if stream.receive_window <= full // 2:
            credit = full - stream.receive_window
            self.out.ready.append(frames.window_update(stream.stream_id, credit))
            stream.receive_window = full

    # --- output ---------------------------------------------------------------------------------

    def take_output(self) -> bytes:
        """Return all bytes to write to the peer, and clear them."""
        ready, self.out.ready = self.out.ready, []
        return b"".join(ready)

    @property
    def wants_room(self) -> bool:
        """Whether so many bytes wait for the peer's windows that it should get no more of size."""
        return self.out.queued > self._limits.queued_bytes

    @property
    def held(self) -> int:
        """Bytes of an unfinished frame or header block."""
        return len(self._buffer) + self._block.held

    def is_open(self, stream: int) -> bool:
        """Return whether the peer still expects an answer on a stream."""
        return stream in self._streams

    def ping(self, opaque: bytes) -> None:
        """Ask whether the peer is alive; `Pong` brings the same 8 bytes back."""
        self._floods.expect_frame()
        self.out.ready.append(frames.frame(Type.PING, 0, 0, opaque))

    def announce_shutdown(self) -> None:
        """Announce that no more requests are taken; requests under way are answered."""
        if self._shut_after is None and not self.closed:
            self._shut_after = self._ids.last
            self.out.ready.append(frames.go_away(self._ids.last, Code.NO_ERROR, "the broker stops"))

    def abort(self, code: Code = Code.NO_ERROR, why: str = "") -> None:
        """End the connection with GOAWAY.

        A `receive` under way returns `StreamAborted` for every stream; later ones return nothing.
        """
        if self.closed:
            return
        self.closed = True
        # A second GOAWAY must not name a later stream than the first (RFC 9113 §6.8).
        last = self._ids.last if self._shut_after is None else self._shut_after
        self.out.ready.append(frames.go_away(last, code, why))
        self._events += [StreamAborted(stream) for stream in self._streams]
        self._streams.clear()
        self.out.queued = 0
        self._block.drop()
        self._buffer = b""

    def check_invariants(self) -> None:
        """Check what must hold between the fields."""
        limits = self._limits
        assert len(self._streams) <= limits.streams
        assert self._window + self._credit == 4 * limits.window_bytes
        assert self._window >= 0
        assert len(self._buffer) < HEADER_BYTES + self._frame_bytes
        self._ids.check_invariants()
        self._block.check_invariants()
        assert all(0 < stream_id <= self._ids.last for stream_id in self._streams)
        assert all(0 <= s.receive_window <= limits.window_bytes for s in self._streams.values())
        self._heads.check_invariants()
        self.out.check_invariants()
