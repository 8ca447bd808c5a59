"""Assembly of a header block from HEADERS and CONTINUATION frames (RFC 9113 §4.3, §6.2, §6.10)."""

from __future__ import annotations

from horolog.protocol.http2 import frames
from horolog.protocol.http2.faults import Code, ConnectionFault, StreamFault


class HeaderBlock:
    """The unfinished header block of a connection.

    stream       stream of the block; 0: no block is unfinished
    ends_stream  whether the block ends its stream
    fault        a fault of the stream, raised later: the block must be decoded all the same
    """

    def __init__(self, pieces_max: int, bytes_max: int) -> None:
        self.stream = 0
        self.ends_stream = False
        self.fault: StreamFault | None = None
        self._pieces: list[bytes] = []
        self._pieces_max = pieces_max
        self._bytes_max = bytes_max

    def begin(self, flags: int, stream: int, payload: bytes) -> bytes | None:
        """Take the payload of HEADERS; return the block if it is complete."""
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

    def add_continuation(self, flags: int, payload: bytes) -> bytes | None:
        """Take the payload of CONTINUATION; return the block if it is complete."""
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
        """Drop the pieces."""
        self.stream = 0
        self._pieces = []

    def check_invariants(self) -> None:
        """Check that there are pieces while a block is unfinished, and not too many."""
        assert len(self._pieces) <= self._pieces_max
        assert bool(self._pieces) == bool(self.stream)
