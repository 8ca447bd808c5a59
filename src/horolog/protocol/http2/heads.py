"""Decoded request heads, cached by the bytes of their header blocks."""

from __future__ import annotations

from horolog.protocol.http2 import hpack
from horolog.protocol.http2.faults import Code, ConnectionFault, HpackFault, StreamFault
from horolog.protocol.http2.request_head import Malformed, RequestHead, read_head

_CACHED_MAX = 64  # header blocks of a connection whose heads are cached


class Heads:
    """The HPACK decoder of a connection, and a cache of heads that is valid for one table."""

    def __init__(self, list_bytes_max: int) -> None:
        self._decoder = hpack.Decoder(list_bytes_max)
        self._heads: dict[bytes, RequestHead] = {}
        self._generation = 0  # of the table with which the cached heads were decoded

    def decode(self, block: bytes) -> list[hpack.Field] | None:
        """Decode a block; None if it has too many fields; COMPRESSION_ERROR ends the connection."""
        try:
            return self._decoder.decode(block)
        except HpackFault as fault:
            raise ConnectionFault(Code.COMPRESSION_ERROR, str(fault)) from None

    def cached(self, block: bytes) -> RequestHead | None:
        """Return the cached head of a block; None if it is new, or the table has changed."""
        return self._heads.get(block) if self._generation == self._decoder.generation else None

    def read(self, stream: int, block: bytes) -> RequestHead:
        """Return the head of any block; a StreamFault if it is not that of a request."""
        if self._generation != self._decoder.generation:
            self._heads.clear()
            self._generation = self._decoder.generation
        head = self._heads.get(block)
        if head is not None:
            return head
        fields = self.decode(block)
        if fields is None:
            raise StreamFault(stream, Code.ENHANCE_YOUR_CALM, "the header fields are too many")
        try:
            head = read_head(fields)
        except Malformed as error:
            raise StreamFault(stream, Code.PROTOCOL_ERROR, str(error)) from None
        if self._decoder.generation == self._generation and len(self._heads) < _CACHED_MAX:
            self._heads[block] = head
        return head

    def check_invariants(self) -> None:
        """Check what must hold between the fields."""
        assert len(self._heads) <= _CACHED_MAX
        self._decoder.check_invariants()
