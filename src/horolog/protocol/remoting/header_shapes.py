r"""Headers of sends that are alike: read by their shape, many at once (`shapes` explains the idea).

    {"code":310,"opaque":7,"extFields":{"b":"orders","e":"0","g":"1700000000000","i":"KEYS\u0001k7\u0002","j":"0"}}
    {"code":310,"opaque":(…),"extFields":{"b":"orders","e":"(…)","g":"(…)","i":"(…)","j":"0"}}

The headers of one client's messages to a topic differ in the request's number, the queue, the time and the properties;
all else is the text that it was, byte for byte.  So what else a header says was read once, with the first of them, and
is the same for all that match.

Of signed sends the signature differs as well; what it was made of is joined from the same values.

Batches are read the full way: their header is shared by many messages anyway.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from horolog.limits import SHAPE_TEXT_MAX
from horolog.protocol.remoting.codes import Code
from horolog.protocol.remoting.frame import Frame

_MET_MAX = 512  # shapes that are remembered for connections to come
_TOKEN = re.compile(
    rb'[ \t\r\n]*("(?:[^"\\\x00-\x1f]|\\.)*"|-?[0-9]+|true|false|null|[{}:,])[ \t\r\n]*'
)
_OPAQUE = rb"(0|-?[1-9][0-9]{0,9})"
_OPAQUE_MAX = 0x7FFF_FFFF
_QUEUE = (rb'"(-?[0-9]{1,9})"', rb"(0|-?[1-9][0-9]{0,8})")  # as text, and as a number of C++
_BORN = (rb'"([0-9]{1,18})"', rb"(0|[1-9][0-9]{0,17})")
_TEXT = rb'"([^"\x00-\x1f]*)"'
_SIGNED = rb'"([0-9A-Za-z+/=]{1,64})"'
SIGNATURE = "Signature"

# Topic, queue, born time, properties, whether it is a batch
FIELDS: dict[int, tuple[str, ...]] = {
    Code.SEND_MESSAGE: ("topic", "queueId", "bornTimestamp", "properties", "batch"),
    Code.SEND_MESSAGE_V2: ("b", "e", "g", "i", "m"),
}
_NO_BATCH = frozenset({"false", "0", ""})

# Opaque, queue, born, and the properties as they are stored
Values = tuple[bytes, bytes, bytes, bytes]


class Columns(NamedTuple):
    """What sends of one shape say, each in its own way."""

    opaques: Sequence[bytes]
    queues: Sequence[bytes]
    borns: Sequence[bytes]
    texts: Sequence[bytes]  # their properties as they are stored
    signatures: Sequence[bytes]  # empty if the shape is not signed


class HeaderShape:
    """Headers that differ in opaque, queue, born time, properties and signature only.

    sample  one of them, as it was read
    names   the fields of queue, born time and properties
    """

    def __init__(
        self, pattern: bytes, order: Sequence[int], sample: Frame, names: tuple[str, str, str]
    ) -> None:
        self._expression = re.compile(pattern)
        # Of many, joined: what is of another shape is found as well, with nothing in its groups.
        self._many = re.compile(rb"\x00(?:%b|[^\x00]*)(?=\x00)" % pattern)
        self._order = order
        self.sample = sample._replace(body=b"")
        self._names = names
        self.is_signed = SIGNATURE in sample.fields
        # What is signed: the values by the order of their names, those that differ by their place in `Values`.
        self._pieces: list[bytes | int] = [
            names.index(name) + 1 if name in names else sample.fields[name].encode()
            for name in sorted(sample.fields)
            if name != SIGNATURE
        ]

    @classmethod
    def of(cls, header: bytes, sample: Frame) -> HeaderShape | None:
        """The shape of a header in JSON that was read; None if it is not of a single message, or has not all four."""
        named = FIELDS.get(sample.code)
        if named is None or sample.is_answer or len(header) > SHAPE_TEXT_MAX:
            return None
        topic, queue, born, properties, batch = named
        if sample.fields.get(batch, "") not in _NO_BATCH:
            return None
        if sample.fields.get(topic, "%").startswith("%"):  # of a retry topic: taken one by one
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
        """What the header there says, and its signature; None if it is of another shape."""
        found = self._expression.fullmatch(chunk, first, stop)
        if found is None:
            return None
        opaque, queue, born, text, *signature = found.group(*self._order)
        text = _stored(text)
        if b"\\" in text or not text.isascii():
            return None
        if len(opaque) > 9 and abs(int(opaque)) > _OPAQUE_MAX:
            return None
        return (opaque, queue, born, text), signature[0] if signature else b""

    def read_many(self, headers: Sequence[bytes]) -> tuple[Columns, list[bool]] | None:
        """The same of many: what they say as the columns of `Alike`, and which of them `read` would read.

        None if there are zero bytes in them, which stand between them here.
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
                is_read and abs(int(each)) <= _OPAQUE_MAX
                for is_read, each in zip(are_read, opaques, strict=True)
            ]
        signed = signatures[0] if signatures else (b"",) * len(headers)
        return Columns(opaques, queues, borns, texts, signed), are_read

    def signed(self, values: Values) -> bytes:
        """What the signature of such a header was made of, but for the body."""
        return b"".join([p if isinstance(p, bytes) else values[p] for p in self._pieces])

    def frame(self, values: Values, body: bytes, signature: bytes) -> Frame:
        """The frame as it would have been read."""
        opaque, *texts = values
        fields = self.sample.fields | {
            name: value.decode() for name, value in zip(self._names, texts, strict=True)
        }
        if signature:
            fields[SIGNATURE] = signature.decode()
        return self.sample._replace(opaque=int(opaque), fields=fields, body=body)


# By its pattern, so that what many clients send alike is of one shape.
_met: dict[bytes, HeaderShape] = {}


def _stored(text: bytes) -> bytes:
    """Properties as they are stored, or many of them, of the text of a JSON string without other escapes."""
    return text.replace(b"\\u0001", b"\x01").replace(b"\\u0002", b"\x02")


def _values(header: bytes) -> list[tuple[tuple[int, bytes], int, int]]:
    """((depth, key), first, stop) of all plain values in a JSON object and its extFields.

    None of them if it is more than that, or has a key twice.
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
