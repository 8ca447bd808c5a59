"""A header block in the making: what HEADERS and CONTINUATION frames bring, put together (RFC 9113 §4.3, §6.2, §6.10)."""

from __future__ import annotations

from horolog.protocol.http2 import frames
from horolog.protocol.http2.faults import Code, ConnectionFault, StreamFault


class HeaderBlock:
    """The one that is under way on a connection.

    stream       whose it is; 0: none is under way
    ends_stream  whether its stream ends with it
    fault        what is wrong with the stream: the block must be decoded all the same
    """

    def __init__(self, pieces_max: int, bytes_max: int) -> None:
        self.stream = 0
        self.ends_stream = False
        self.fault: StreamFault | None = None
        self._pieces: list[bytes] = []
        self._pieces_max = pieces_max
        self._bytes_max = bytes_max

    def begin(self, flags: int, stream: int, payload: bytes) -> bytes | None:
        """Take the payload of HEADERS; gives the block if that is all of it."""
        self.fault = None
        if flags & frames.PADDED:
            payload = frames.unpadded(payload)
        if flags & frames.PRIORITY:
            payload = self._without_priority(stream, payload)
        self.ends_stream = bool(flags & frames.END_STREAM)
        if flags & frames.END_HEADERS:
            return payload
        self.stream, self._pieces = stream, [payload]
        return None

    def _without_priority(self, stream: int, payload: bytes) -> bytes:
        if len(payload) < frames.PRIORITY_BYTES:
            raise ConnectionFault(Code.FRAME_SIZE_ERROR, "HEADERS is too short for a priority")
        try:
            frames.check_priority(stream, payload)
        except StreamFault as fault:
            self.fault = fault
        return payload[frames.PRIORITY_BYTES :]

    def go_on(self, flags: int, payload: bytes) -> bytes | None:
        """Take the payload of CONTINUATION; gives the block if that was the last of it."""
        if not self.stream:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "CONTINUATION without HEADERS")
        self._pieces.append(payload)
        if len(self._pieces) > self._pieces_max or sum(map(len, self._pieces)) > self._bytes_max:
            raise ConnectionFault(Code.ENHANCE_YOUR_CALM, "a header block without an end")
        if not flags & frames.END_HEADERS:
            return None
        block = b"".join(self._pieces)
        self.drop()
        return block

    @property
    def held(self) -> int:
        """Bytes of the pieces."""
        return sum(map(len, self._pieces)) if self.stream else 0

    def drop(self) -> None:
        """Forget the pieces."""
        self.stream = 0
        self._pieces = []

    def check_invariants(self) -> None:
        """There are pieces while a block is under way, and not too many."""
        assert len(self._pieces) <= self._pieces_max
        assert bool(self._pieces) == bool(self.stream)
