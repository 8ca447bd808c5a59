"""Decoded request heads, cached by the bytes of their header blocks."""

from __future__ import annotations

from horolog.protocol.http2 import hpack
from horolog.protocol.http2.faults import Code, ConnectionFault, HpackFault, StreamFault
from horolog.protocol.http2.request_head import Malformed, RequestHead, read_head

_CACHED_MAX = 64  # header blocks of a connection whose heads are cached
CACHED_BYTES_MAX = 16_384  # of these blocks and the fields in them; clients' have some 500 bytes


class Heads:
    """The HPACK decoder of a connection, and a cache of heads that is valid for one table."""

    def __init__(self, list_bytes_max: int) -> None:
        self._decoder = hpack.Decoder(list_bytes_max)
        self._heads: dict[bytes, RequestHead] = {}
        self._bytes = 0  # of these blocks and their fields
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
            self._bytes = 0
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
        size = len(block) + sum([len(name) + len(value) for name, value in fields])
        if (
            self._decoder.generation == self._generation
            and len(self._heads) < _CACHED_MAX
            and self._bytes + size <= CACHED_BYTES_MAX
        ):
            self._heads[block] = head
            self._bytes += size
        return head

    def check_invariants(self) -> None:
        """Check what must hold between the fields."""
        assert len(self._heads) <= _CACHED_MAX
        assert sum(map(len, self._heads)) <= self._bytes <= CACHED_BYTES_MAX
        self._decoder.check_invariants()
