"""What header blocks mean: decoded once, and looked up when the same bytes come again."""

from __future__ import annotations

from horolog.protocol.http2 import hpack
from horolog.protocol.http2.faults import Code, ConnectionFault, HpackFault, StreamFault
from horolog.protocol.http2.request_head import Malformed, RequestHead, read_head

_CACHED_MAX = 64  # header blocks of a connection whose meaning is remembered


class Heads:
    """The receiving side's table, and the heads of blocks that were decoded while it was as it is."""

    def __init__(self, list_bytes_max: int) -> None:
        self._decoder = hpack.Decoder(list_bytes_max)
        self._heads: dict[bytes, RequestHead] = {}
        self._of = 0  # generation of the table that they were decoded with

    def decode(self, block: bytes) -> list[hpack.Field] | None:
        """The fields, None if they are too many; COMPRESSION_ERROR ends the connection."""
        try:
            return self._decoder.decode(block)
        except HpackFault as fault:
            raise ConnectionFault(Code.COMPRESSION_ERROR, str(fault)) from None

    def known(self, block: bytes) -> RequestHead | None:
        """What a block means that came before: equal blocks mean the same while the table does not change."""
        return self._heads.get(block) if self._of == self._decoder.generation else None

    def read(self, stream: int, block: bytes) -> RequestHead:
        """What any block means; a StreamFault if it is no request's."""
        if self._of != self._decoder.generation:
            self._heads.clear()
            self._of = self._decoder.generation
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
        if self._decoder.generation == self._of and len(self._heads) < _CACHED_MAX:
            self._heads[block] = head
        return head

    def check_invariants(self) -> None:
        """What must hold between the fields."""
        assert len(self._heads) <= _CACHED_MAX
        self._decoder.check_invariants()
