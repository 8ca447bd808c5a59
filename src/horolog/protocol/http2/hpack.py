"""Header compression: RFC 7541.

A block is a sequence of fields: an index into the static table (1–61) and, after it, the dynamic
table (62 is the newest entry), or a literal that may be added to the dynamic table.  Both ends keep
the same table, so every block must be decoded, also that of a stream that is refused.

    first bits   what follows
    1            index (7 bits): a whole field
    01           literal, added to the table; index (6 bits) of its name, 0: the name follows
    001          new size of the dynamic table (5 bits); only at the start of a block
    000x         literal, not added; index (4 bits) of its name, 0: the name follows

This end encodes with the static table alone, so that answers can be encoded in advance.  The
encoder has no state but one: if the peer lowers the table's size, the next block must start by
acknowledging this.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from horolog.protocol.http2 import huffman
from horolog.protocol.http2.faults import HpackFault

Field = tuple[bytes, bytes]

_NAMES = (  # noqa: SIM905 - 61 names read better so
    ":authority :method :method :path :path :scheme :scheme :status :status :status :status "
    ":status :status :status accept-charset accept-encoding accept-language accept-ranges accept "
    "access-control-allow-origin age allow authorization cache-control content-disposition "
    "content-encoding content-language content-length content-location content-range content-type "
    "cookie date etag expect expires from host if-match if-modified-since if-none-match if-range "
    "if-unmodified-since last-modified link location max-forwards proxy-authenticate "
    "proxy-authorization range referer refresh retry-after server set-cookie "
    "strict-transport-security transfer-encoding user-agent vary via www-authenticate"
).split()
_VALUES = {
    2: b"GET", 3: b"POST", 4: b"/", 5: b"/index.html", 6: b"http", 7: b"https", 8: b"200", 9: b"204",
    10: b"206", 11: b"304", 12: b"400", 13: b"404", 14: b"500", 16: b"gzip, deflate",
}  # fmt: skip
STATIC: tuple[Field, ...] = tuple(
    (name.encode(), _VALUES.get(i, b"")) for i, name in enumerate(_NAMES, 1)
)
assert len(STATIC) == 61
ENTRY_OVERHEAD = 32  # octets that an entry counts beyond its text (§4.1)
TABLE_BYTES = 4_096  # of the dynamic table: the protocol's initial value, kept by this end
# "the dynamic table has 0 bytes now": all that an encoder without a table must say
LOWERED = b"\x20"
_INTEGER_MAX = 1 << 28  # no index, length or size of ours is larger


def decode_integer(block: bytes, at: int, prefix_bits: int) -> tuple[int, int]:
    """Return an integer whose first bits are in block[at], and the offset after it (§5.1)."""
    limit = (1 << prefix_bits) - 1
    found = block[at] & limit
    at += 1
    if found < limit:
        return found, at
    shift = 0
    while True:
        byte = block[at]
        at += 1
        found += (byte & 0x7F) << shift
        if found > _INTEGER_MAX or shift > 28:
            raise HpackFault("an integer of a header block is too large")
        if byte < 0x80:
            return found, at
        shift += 7


def _string(block: bytes, at: int) -> tuple[bytes, int]:
    """Return a string, Huffman-coded or plain, and the offset after it (§5.2)."""
    length, start = decode_integer(block, at, 7)
    end = start + length
    if end > len(block):
        raise HpackFault("a header string is cut short")
    text = block[start:end]
    return (huffman.decode(text) if block[at] & 0x80 else text), end


class Decoder:
    """Decoder for one direction of a connection, with its dynamic table.

    list_bytes_max  limit of a decoded list (names, values and 32 octets a field); of a longer list
                    only the changes of the table are kept, and `decode` returns None
    """

    def __init__(self, list_bytes_max: int, table_bytes: int = TABLE_BYTES) -> None:
        self._list_bytes_max = list_bytes_max
        self._allowed = table_bytes
        self._capacity = table_bytes
        self._size = 0
        self._entries: deque[Field] = deque()
        self.generation = 0
        """Rises with every change of the table: blocks of one generation that are equal mean the same."""

    def decode(self, block: bytes) -> list[Field] | None:
        """Return the fields of a block, None if they are too many; HpackFault if it is invalid."""
        try:
            return self._decode(block)
        except IndexError:
            raise HpackFault("a header block is cut short") from None

    def _decode(self, block: bytes) -> list[Field] | None:
        fields: list[Field] = []
        left = self._list_bytes_max
        at, end = 0, len(block)
        while at < end:
            first = block[at]
            if first >= 0x80:
                index, at = decode_integer(block, at, 7)
                field = self._entry(index)
            elif first >= 0x40:
                name, at = self._name(block, at, 6)
                value, at = _string(block, at)
                field = (name, value)
                self._add(field)
            elif first >= 0x20:
                if fields or left != self._list_bytes_max:
                    raise HpackFault("a change of the table's size stands after a field")
                size, at = decode_integer(block, at, 5)
                self._resize(size)
                continue
            else:
                name, at = self._name(block, at, 4)
                value, at = _string(block, at)
                field = (name, value)
            left -= len(field[0]) + len(field[1]) + ENTRY_OVERHEAD
            if left >= 0:
                fields.append(field)
        return fields if left >= 0 else None

    def _name(self, block: bytes, at: int, prefix_bits: int) -> tuple[bytes, int]:
        index, after = decode_integer(block, at, prefix_bits)
        return (self._entry(index)[0], after) if index else _string(block, after)

    def _entry(self, index: int) -> Field:
        if 0 < index <= len(STATIC):
            return STATIC[index - 1]
        if len(STATIC) < index <= len(STATIC) + len(self._entries):
            return self._entries[index - len(STATIC) - 1]
        raise HpackFault(f"index {index} of a header block is in no table")

    def _add(self, field: Field) -> None:
        self.generation += 1
        self._entries.appendleft(field)
        self._size += len(field[0]) + len(field[1]) + ENTRY_OVERHEAD
        self._evict()

    def _resize(self, size: int) -> None:
        if size > self._allowed:
            raise HpackFault(f"a table of {size} bytes; at most {self._allowed} are allowed")
        self.generation += 1
        self._capacity = size
        self._evict()

    def _evict(self) -> None:
        while self._size > self._capacity:
            name, value = self._entries.pop()
            self._size -= len(name) + len(value) + ENTRY_OVERHEAD

    def check_invariants(self) -> None:
        """Check that the size is that of the entries, and within what both ends agreed on."""
        assert self._size == sum(len(n) + len(v) + ENTRY_OVERHEAD for n, v in self._entries)
        assert 0 <= self._size <= self._capacity <= self._allowed


_INDEX_OF_FIELD = {field: index for index, field in reversed(list(enumerate(STATIC, 1)))}
_INDEX_OF_NAME = {field[0]: index for index, field in reversed(list(enumerate(STATIC, 1)))}


def encode_integer(value: int, prefix_bits: int, first: int) -> bytes:
    """Encode the inverse of `decode_integer`; `first` has the bits before the prefix."""
    limit = (1 << prefix_bits) - 1
    if value < limit:
        return bytes((first | value,))
    out = bytearray((first | limit,))
    value -= limit
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def encode(fields: Iterable[Field]) -> bytes:
    """Encode a block without the dynamic table: static entries, and literals that are not added."""
    out = []
    for field in fields:
        name, value = field
        if field in _INDEX_OF_FIELD:
            out.append(encode_integer(_INDEX_OF_FIELD[field], 7, 0x80))
            continue
        index = _INDEX_OF_NAME.get(name, 0)
        out.append(encode_integer(index, 4, 0x00))
        if not index:
            out += [encode_integer(len(name), 7, 0x00), name]
        out += [encode_integer(len(value), 7, 0x00), value]
    return b"".join(out)
