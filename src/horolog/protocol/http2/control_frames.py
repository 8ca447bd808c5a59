"""Frames of a peer that carry no request: about streams, the connection, or its windows."""

from __future__ import annotations

from collections.abc import Callable

from horolog.protocol.http2 import frames
from horolog.protocol.http2.events import LateReset, Pong, StreamAborted
from horolog.protocol.http2.faults import Code, ConnectionFault, StreamFault, expect
from horolog.protocol.http2.floods import Floods
from horolog.protocol.http2.frames import Type
from horolog.protocol.http2.outgoing import Outgoing
from horolog.protocol.http2.streams import Step, Stream, StreamIds

ControlEvent = StreamAborted | LateReset | Pong


class ControlFrames:
    """Takes them for a connection, and shares its streams, their ids, and its output.

    settled  whether the first SETTINGS has come
    """

    def __init__(
        self, streams: dict[int, Stream], ids: StreamIds, floods: Floods, out: Outgoing
    ) -> None:
        self.settled = False
        self._streams = streams
        self._ids = ids
        self._floods = floods
        self._out = out

    def take(self, kind: int, flags: int, stream: int, payload: bytes) -> ControlEvent | None:
        """Take a frame; return its event, if the caller has to know of it.

        Raises:
            ConnectionFault, StreamFault: The peer may not send it.
        """
        taker = _TAKERS.get(kind)
        if taker is None:
            self._floods.spend_frame()  # of an unknown type
            return None
        return taker(self, flags, stream, payload)

    def _take_priority(self, _flags: int, stream: int, payload: bytes) -> None:
        self._floods.spend_frame()
        expect(stream > 0, "PRIORITY on stream 0")
        if len(payload) != frames.PRIORITY_BYTES:
            raise StreamFault(stream, Code.FRAME_SIZE_ERROR, "PRIORITY has 5 bytes")
        frames.check_priority(stream, payload)

    def _take_reset(self, _flags: int, stream: int, payload: bytes) -> ControlEvent:
        expect(len(payload) == 4, "RST_STREAM has 4 bytes", Code.FRAME_SIZE_ERROR)
        expect(0 < stream <= self._ids.last, f"RST_STREAM on idle stream {stream}")
        found = self._streams.get(stream)
        if found is None:
            self._floods.spend_frame()
            return LateReset(stream)
        self._floods.spend_reset()
        found.move(Step.RESET)
        self._out.forget(found)
        return StreamAborted(stream)

    def _take_settings(self, flags: int, stream: int, payload: bytes) -> None:
        self._floods.spend_frame()
        expect(not stream, f"SETTINGS on stream {stream}")
        if flags & frames.ACK:
            expect(not payload, "SETTINGS with ACK has no payload", Code.FRAME_SIZE_ERROR)
            return
        expect(len(payload) % 6 == 0, "SETTINGS has 6 bytes each", Code.FRAME_SIZE_ERROR)
        self._out.apply_settings(payload)
        self.settled = True

    def _refuse_push(self, _flags: int, _stream: int, _payload: bytes) -> None:
        raise ConnectionFault(Code.PROTOCOL_ERROR, "PUSH_PROMISE of a client")

    def _take_ping(self, flags: int, stream: int, payload: bytes) -> Pong | None:
        expect(not stream, f"PING on stream {stream}")
        expect(len(payload) == 8, "PING has 8 bytes", Code.FRAME_SIZE_ERROR)
        self._floods.spend_frame()
        if flags & frames.ACK:
            return Pong(payload)
        self._out.ready.append(frames.frame(Type.PING, frames.ACK, 0, payload))
        return None

    def _take_go_away(self, _flags: int, stream: int, payload: bytes) -> None:
        expect(not stream, f"GOAWAY on stream {stream}")
        expect(len(payload) >= 8, "GOAWAY has 8 bytes or more", Code.FRAME_SIZE_ERROR)
        self._floods.spend_frame()

    def _take_window_update(self, _flags: int, stream: int, payload: bytes) -> None:
        expect(len(payload) == 4, "WINDOW_UPDATE has 4 bytes", Code.FRAME_SIZE_ERROR)
        expect(stream <= self._ids.last, f"WINDOW_UPDATE on idle stream {stream}")
        increment = int.from_bytes(payload, "big") & frames.STREAM_MASK
        self._floods.spend_frame()
        if not stream:
            self._out.grow_connection(increment)
            return
        found = self._streams.get(stream)
        if found is not None:
            self._out.grow(found, increment)


_Taker = Callable[[ControlFrames, int, int, bytes], ControlEvent | None]
_TAKERS: dict[int, _Taker] = {
    Type.PRIORITY: ControlFrames._take_priority,
    Type.RST_STREAM: ControlFrames._take_reset,
    Type.SETTINGS: ControlFrames._take_settings,
    Type.PUSH_PROMISE: ControlFrames._refuse_push,
    Type.PING: ControlFrames._take_ping,
    Type.GOAWAY: ControlFrames._take_go_away,
    Type.WINDOW_UPDATE: ControlFrames._take_window_update,
}
"""The method for each frame type."""
