"""Output of a server's connection: frames to write, answers that wait for the peer's windows."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence

from horolog.protocol.http2 import frames, hpack
from horolog.protocol.http2.faults import Code, ConnectionFault, StreamFault, expect
from horolog.protocol.http2.frames import Setting, Type
from horolog.protocol.http2.streams import State, Step, Stream, after

# Streams that we ended before the peer did: the peer may still have sent frames of them
_ENDED_EARLY_MAX = 1_024
_ANSWERED = after(State.HALF_CLOSED, Step.OUR_END)
_DATA = Type.DATA << 8
_HEAD = Type.HEADERS << 8 | frames.END_HEADERS
_TRAILERS = _HEAD | frames.END_STREAM


class Outgoing:
    """The sending half of a connection.

    streams    open streams by id, shared with the receiving half
    ready      frames to be written, in order
    queued     bytes of answers that wait for room
    answered   total of streams that were answered completely
    sent_bytes total of the bodies of answers that did not go out whole, in one frame
    late       answered streams that had to wait for room; the reader clears the list
    """

    def __init__(self, streams: dict[int, Stream], frame_bytes: int) -> None:
        self.streams = streams
        self.ready: list[bytes] = []
        self.queued = 0
        self.answered = self.sent_bytes = 0
        self.late: list[int] = []
        self.new_window = frames.WINDOW_INITIAL  # of a new stream
        self._window = frames.WINDOW_INITIAL
        self._frame_bytes_max = frame_bytes
        self._frame_bytes = frames.FRAME_BYTES_INITIAL
        self._owes_table_change = False
        self._ended_early: OrderedDict[int, None] = OrderedDict()

    @property
    def has_only_pongs(self) -> bool:
        """Whether all frames to be written are PING frames; true if there are none."""
        return all(frame[frames.TYPE_AT] == Type.PING for frame in self.ready)

    # --- answers --------------------------------------------------------------------------------

    def respond(self, stream: int, head: bytes, content: bytes, trailers: bytes) -> None:
        """Send a whole answer: header block, body, trailer block.

        Do nothing if the stream is not open.
        """
        if not self.respond_all((stream,), head, (content,), trailers):
            self.send_head(stream, head)
            self.send_body(stream, content)
            self.end(stream, trailers)

    def respond_all(
        self, streams: Sequence[int], head: bytes, contents: Sequence[bytes], trailers: bytes
    ) -> int:
        """Send whole answers while they fit at once; return how many, from the first, are done."""
        if self._owes_table_change:
            return 0
        window, most, answered = self._window, self._frame_bytes, 0
        begin = (len(head) << 16 | _HEAD).to_bytes(5, "big")
        end = (len(trailers) << 16 | _TRAILERS).to_bytes(5, "big")
        place = 0
        for stream, content in zip(streams, contents, strict=True):
            found = self.streams.get(stream)
            if found is not None:
                size = len(content)
                if (
                    size > found.send_window
                    or size > window
                    or size > most
                    or found.state is not State.HALF_CLOSED
                    or found.queue
                    or found.begun
                ):
                    break
                window -= size
                found.state = _ANSWERED
                del self.streams[stream]
                answered += 1
                id_bytes = stream.to_bytes(4, "big")
                data = (size << 16 | _DATA).to_bytes(5, "big")
                self.ready += (
                    begin, id_bytes, head, data, id_bytes, content, end, id_bytes, trailers,
                )  # fmt: skip
            place += 1
        self._window = window
        self.answered += answered
        return place

    def send_head(self, stream: int, block: bytes) -> None:
        """Begin an answer."""
        found = self.streams.get(stream)
        if found is not None:
            assert not found.begun, "an answer begins twice"
            found.begun = True
            self.ready.append(self._head_frame(stream, block, 0))

    def has_begun(self, stream: int) -> bool:
        """Return whether the head of an answer is sent, and its end is not."""
        found = self.streams.get(stream)
        return found is not None and found.begun

    def is_waiting(self, stream: int) -> bool:
        """Return whether body bytes of an answer wait for room."""
        found = self.streams.get(stream)
        return found is not None and bool(found.queue)

    def send_body(self, stream: int, content: bytes) -> None:
        """Send body bytes of an answer; those for which the windows have no room wait."""
        found = self.streams.get(stream)
        if found is None or not content:
            return
        assert found.trailers is None, "an answer goes on after its end"
        if found.queue is None:
            found.queue = deque()
        found.queue.append(memoryview(content))
        self.queued += len(content)
        self._pump(found)

    def end(self, stream: int, trailers: bytes) -> None:
        """End an answer with a trailer block, after any body; a bare answer has no other block."""
        found = self.streams.get(stream)
        if found is not None:
            assert found.trailers is None, "an answer ends twice"
            found.trailers = trailers
            self._pump(found)

    def _head_frame(self, stream: int, block: bytes, flags: int) -> bytes:
        if self._owes_table_change:
            self._owes_table_change = False
            block = hpack.LOWERED + block
        assert len(block) <= frames.FRAME_BYTES_INITIAL
        return frames.frame(Type.HEADERS, flags | frames.END_HEADERS, stream, block)

    def _pump(self, stream: Stream) -> None:
        """Send as much of a stream's answer as the windows have room for."""
        queue = stream.queue
        while queue:
            room = min(stream.send_window, self._window, self._frame_bytes)
            if room <= 0:
                return
            piece = queue[0][:room]
            size = len(piece)
            if size == len(queue[0]):
                queue.popleft()
            else:
                queue[0] = queue[0][size:]
            stream.send_window -= size
            self._window -= size
            self.queued -= size
            self.sent_bytes += size
            self.ready += (frames.header(size, Type.DATA, 0, stream.stream_id), bytes(piece))
        if stream.trailers is not None:
            self.ready.append(
                self._head_frame(stream.stream_id, stream.trailers, frames.END_STREAM)
            )
            if stream.state is State.OPEN:
                self._note_ended_early(stream.stream_id)
            stream.move(Step.OUR_END)
            self.answered += 1
            self.forget(stream)

    def forget(self, stream: Stream) -> None:
        """Drop a closed stream, and the bytes that waited for room."""
        assert stream.state is State.CLOSED
        del self.streams[stream.stream_id]
        self.queued -= sum(map(len, stream.queue or ()))
        stream.queue = None

    # --- resets ---------------------------------------------------------------------------------

    def reset(self, stream: int, code: Code) -> bool:
        """End a stream at once; return whether it was open."""
        self._note_ended_early(stream)
        self.ready.append(frames.reset(stream, code))
        found = self.streams.get(stream)
        if found is None:
            return False
        found.move(Step.OUR_RESET)
        self.forget(found)
        return True

    def _note_ended_early(self, stream: int) -> None:
        self._ended_early[stream] = None
        if len(self._ended_early) > _ENDED_EARLY_MAX:
            self._ended_early.popitem(last=False)

    def was_ended_early(self, stream: int) -> bool:
        """Return whether we ended a stream before the peer did: late frames of it are no fault."""
        return stream in self._ended_early

    # --- the peer's windows and settings ----------------------------------------------------------

    def grow_connection(self, increment: int) -> None:
        """Apply WINDOW_UPDATE on the connection."""
        if not increment or self._window + increment > frames.WINDOW_MAX:
            raise ConnectionFault(*_cannot_grow(increment, "connection"))
        was_empty = not self._window
        self._window += increment
        if self.queued and was_empty:  # else what waits has no room in the window of its stream
            self._pump_all()

    def grow(self, stream: Stream, increment: int) -> None:
        """Apply WINDOW_UPDATE on a stream."""
        if not increment or stream.send_window + increment > frames.WINDOW_MAX:
            raise StreamFault(stream.stream_id, *_cannot_grow(increment, "stream"))
        stream.send_window += increment
        self._pump_late(stream)

    def apply_settings(self, payload: bytes) -> None:
        """Apply the peer's SETTINGS, and acknowledge them: all are about what we send.

        Of several new windows only the last counts, since each takes a pass over all streams.  The
        acknowledgement comes before all that has room now: until then the peer may hold us to the
        windows before, as gRPC's C core does.
        """
        new_window = self.new_window
        for at in range(0, len(payload), 6):
            name = int.from_bytes(payload[at : at + 2], "big")
            value = int.from_bytes(payload[at + 2 : at + 6], "big")
            if name == Setting.HEADER_TABLE_SIZE:
                # We use no table, but a block must acknowledge a lower size.
                self._owes_table_change |= value < hpack.TABLE_BYTES
            elif name == Setting.ENABLE_PUSH:
                expect(value <= 1, "ENABLE_PUSH is 0 or 1")
            elif name == Setting.INITIAL_WINDOW_SIZE:
                expect(
                    value <= frames.WINDOW_MAX,
                    "INITIAL_WINDOW_SIZE is too large",
                    Code.FLOW_CONTROL_ERROR,
                )
                new_window = value
            elif name == Setting.MAX_FRAME_SIZE:
                self._set_frame_bytes(value)
        self.ready.append(frames.SETTINGS_ACK)
        if new_window != self.new_window:
            self._set_new_window(new_window)

    def _set_new_window(self, size: int) -> None:
        """Change the windows of open streams as well, perhaps to below zero."""
        change, self.new_window = size - self.new_window, size
        for stream in self.streams.values():
            stream.send_window += change
            if stream.send_window > frames.WINDOW_MAX:
                raise ConnectionFault(Code.FLOW_CONTROL_ERROR, "a stream's window overflows")
        if self.queued:
            self._pump_all()

    def _pump_all(self) -> None:
        for stream in [each for each in self.streams.values() if each.queue]:
            if not self._window:
                return
            self._pump_late(stream)

    def _pump_late(self, stream: Stream) -> None:
        self._pump(stream)
        if stream.state is State.CLOSED:
            self.late.append(stream.stream_id)

    def _set_frame_bytes(self, size: int) -> None:
        if not frames.FRAME_BYTES_INITIAL <= size <= frames.FRAME_BYTES_MAX:
            raise ConnectionFault(Code.PROTOCOL_ERROR, f"MAX_FRAME_SIZE is {size}")
        self._frame_bytes = min(size, self._frame_bytes_max)

    def check_invariants(self) -> None:
        """Check what must hold between the fields."""
        assert self.queued == sum(len(p) for s in self.streams.values() for p in s.queue or ())
        assert 0 <= self._window <= frames.WINDOW_MAX
        assert all(s.send_window <= 0 for s in self.streams.values() if s.queue and self._window), (
            "bytes wait although there is room"
        )
        assert len(self._ended_early) <= _ENDED_EARLY_MAX
        assert all(s.send_window <= frames.WINDOW_MAX for s in self.streams.values())


def _cannot_grow(increment: int, whose: str) -> tuple[Code, str]:
    code = Code.FLOW_CONTROL_ERROR if increment else Code.PROTOCOL_ERROR
    return code, f"the window of the {whose} cannot grow by {increment}"
