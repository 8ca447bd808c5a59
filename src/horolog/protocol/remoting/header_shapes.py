r"""Headers of sends that differ in few values: read by their shape, many at once (see `shapes`).

    {"code":310,"opaque":7,"extFields":{"b":"orders","e":"0","g":"1700000000000","i":"KEYS\u0001k7\u0002","j":"0"}}
    {"code":310,"opaque":(…),"extFields":{"b":"orders","e":"(…)","g":"(…)","i":"(…)","j":"0"}}

The headers of one client's messages to a topic differ in the request's number, the queue, the time
and the properties; all other text is the same, byte for byte.  So the other fields are parsed once,
with the first header, and are the same for all headers that match.

Headers of signed sends differ in the signature too; the signed text is joined from the same values.

Batches are parsed in full: one header is shared by many messages anyway.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from horolog.limits import SHAPE_TEXT_MAX
from horolog.protocol.remoting.codes import Code
from horolog.protocol.remoting.frame import Frame
from horolog.protocol.remoting.request import I32_MAX

_MET_MAX = 512  # shapes that are cached for future connections
_TOKEN = re.compile(
    rb'[ \t\r\n]*("(?:[^"\\\x00-\x1f]|\\.)*"|-?[0-9]+|true|false|null|[{}:,])[ \t\r\n]*'
)
_OPAQUE = rb"(0|-?[1-9][0-9]{0,9})"
_QUEUE = (rb'"(-?[0-9]{1,9})"', rb"(0|-?[1-9][0-9]{0,8})")  # as text, and as a number (C++ clients)
_BORN = (rb'"([0-9]{1,18})"', rb"(0|[1-9][0-9]{0,17})")
_TEXT = rb'"([^"\x00-\x1f]*)"'
_SIGNED = rb'"([0-9A-Za-z+/=]{1,64})"'
SIGNATURE = "Signature"

# Fields of topic, queue, born time, properties, and of the batch flag
FIELDS: dict[int, tuple[str, ...]] = {
    Code.SEND_MESSAGE: ("topic", "queueId", "bornTimestamp", "properties", "batch"),
    Code.SEND_MESSAGE_V2: ("b", "e", "g", "i", "m"),
}
_NO_BATCH = frozenset({"false", "0", ""})

# Opaque, queue, born time, and the properties as they are stored
Values = tuple[bytes, bytes, bytes, bytes]


class Columns(NamedTuple):
    """Columns of the values in which sends of one shape differ."""

    opaques: Sequence[bytes]
    queues: Sequence[bytes]
    borns: Sequence[bytes]
    texts: Sequence[bytes]  # properties as they are stored
    signatures: Sequence[bytes]  # empty if the shape is not signed


class HeaderShape:
    """Headers that differ in opaque, queue, born time, properties and signature only.

    sample  a parsed header of the shape
    names   the field names of queue, born time and properties
    """

    def __init__(
        self, pattern: bytes, order: Sequence[int], sample: Frame, names: tuple[str, str, str]
    ) -> None:
        self._expression = re.compile(pattern)
        # For many joined headers: a header of another shape matches too, with empty groups.
        self._many = re.compile(rb"\x00(?:%b|[^\x00]*)(?=\x00)" % pattern)
        self._order = order
        self.sample = sample._replace(body=b"")
        self._names = names
        self.is_signed = SIGNATURE in sample.fields
        # The signed text: values by the order of their names, differing ones as index in `Values`.
        self._pieces: list[bytes | int] = [
            names.index(name) + 1 if name in names else sample.fields[name].encode()
            for name in sorted(sample.fields)
            if name != SIGNATURE
        ]

    @classmethod
    def of(cls, header: bytes, sample: Frame) -> HeaderShape | None:
        """Return the shape of a JSON header; None for a batch, or if a value is missing."""
        named = FIELDS.get(sample.code)
        if named is None or sample.is_answer or len(header) > SHAPE_TEXT_MAX:
            return None
        topic, queue, born, properties, batch = named
        if sample.fields.get(batch, "") not in _NO_BATCH:
            return None
        if sample.fields.get(topic, "%").startswith("%"):  # a retry topic: parsed one by one
            return None
        marks = {
            (1, b'"opaque"'): (0, (_OPAQUE, _OPAQUE)),
            (2, b'"%b"' % queue.encode()): (1, _QUEUE),
            (2, b'"%b"' % born.encode()): (2, _BORN),
            (2, b'"%b"' % properties.encode()): (3, (_TEXT, _TEXT)),
        }
        if SIGNATURE in sample.fields:
            marks[2, b'"%b"' % SIGNATURE.encode()] = (4, (_SIGNED, _SIGNED))
        count = len(marks)
        pieces: list[bytes] = []
        groups: list[int] = []
        last = 0
        for key, first, stop in _values(header):
            if key in marks:
                group, patterns = marks.pop(key)
                value = patterns[header[first : first + 1] != b'"']
                if not re.fullmatch(value, header[first:stop]):
                    return None
                pieces += (re.escape(header[last:first]), value)
                groups.append(group)
                last = stop
        if marks:
            return None
        pieces.append(re.escape(header[last:]))
        pattern = b"".join(pieces)
        shape = _met.get(pattern)
        if shape is None:
            order = [groups.index(group) + 1 for group in range(count)]
            shape = cls(pattern, order, sample, (queue, born, properties))
            if len(_met) >= _MET_MAX:
                _met.clear()
            _met[pattern] = shape
        return shape

    def read(self, chunk: bytes, first: int, stop: int) -> tuple[Values, bytes] | None:
        """Return values and signature of the header there; None if it has another shape."""
        found = self._expression.fullmatch(chunk, first, stop)
        if found is None:
            return None
        opaque, queue, born, text, *signature = found.group(*self._order)
        text = _stored(text)
        if b"\\" in text or not text.isascii():
            return None
        if len(opaque) > 9 and abs(int(opaque)) > I32_MAX:
            return None
        return (opaque, queue, born, text), signature[0] if signature else b""

    def read_many(self, headers: Sequence[bytes]) -> tuple[Columns, list[bool]] | None:
        """Read many headers: return columns of values, and for each header if `read` would read it.

        None if a header has a zero byte, since zero bytes separate the joined headers.
        """
        rows = self._many.findall(b"\0%b\0" % b"\0".join(headers))
        if len(rows) != len(headers):
            return None
        columns = list(zip(*rows, strict=True))
        opaques, queues, borns, coded, *signatures = [columns[group - 1] for group in self._order]
        are_read = list(map(bool, opaques))
        text = _stored(b"\0".join(coded))
        texts = text.split(b"\0")
        if b"\\" in text or not text.isascii():
            are_read = [
                is_read and b"\\" not in each and each.isascii()
                for is_read, each in zip(are_read, texts, strict=True)
            ]
        if max(map(len, opaques)) > 9:
            are_read = [
                is_read and abs(int(each)) <= I32_MAX
                for is_read, each in zip(are_read, opaques, strict=True)
            ]
        signed = signatures[0] if signatures else (b"",) * len(headers)
        return Columns(opaques, queues, borns, texts, signed), are_read

    def signed(self, values: Values) -> bytes:
        """Return the text that was signed, without the body."""
        return b"".join([p if isinstance(p, bytes) else values[p] for p in self._pieces])

    def frame(self, values: Values, body: bytes, signature: bytes) -> Frame:
        """Return the frame as the full parser would have built it."""
        opaque, *texts = values
        fields = self.sample.fields | {
            name: value.decode() for name, value in zip(self._names, texts, strict=True)
        }
        if signature:
            fields[SIGNATURE] = signature.decode()
        return self.sample._replace(opaque=int(opaque), fields=fields, body=body)


# By pattern, so that clients that send alike share a shape.
_met: dict[bytes, HeaderShape] = {}


def _stored(text: bytes) -> bytes:
    """Unescape properties (one or many) from JSON text, as they are stored; other escapes stay."""
    return text.replace(b"\\u0001", b"\x01").replace(b"\\u0002", b"\x02")


def _values(header: bytes) -> list[tuple[tuple[int, bytes], int, int]]:
    """Return ((depth, key), first, stop) of all plain values in a JSON object and its extFields.

    Return an empty list if the object has other nested values, or has a key twice.
    """
    found: list[tuple[tuple[int, bytes], int, int]] = []
    seen: set[tuple[int, bytes]] = set()
    depth = at = 0
    key = (0, b"")
    awaits_key = False
    while at < len(header):
        token = _TOKEN.match(header, at)
        if token is None:
            return []
        at = token.end()
        text = token[1]
        if text == b"{":
            if depth and key != (1, b'"extFields"'):
                return []
            depth, awaits_key = depth + 1, True
        elif text == b"}":
            depth -= 1
        elif text in (b",", b":"):
            awaits_key = text == b","
        elif awaits_key:
            key = (depth, text)
            if key in seen or b"\\" in text:
                return []
            seen.add(key)
        else:
            found.append((key, token.start(1), token.end(1)))
    return found
