"""Frames of the remoting protocol.  Big-endian.

======  =====  ==============  ====================================================================
offset  bytes  field           meaning
======  =====  ==============  ====================================================================
0       4      length          bytes that follow: 4, the header and the body
4       1      serializer      of the header: 0 JSON, 1 ROCKETMQ (binary)
5       3      header length
8       n      header          `Frame` without its body
8 + n   m      body
======  =====  ==============  ====================================================================

A header in ROCKETMQ is code i16, language u8, version i16, opaque i32, flag i32, remark (i32 length
and UTF-8), and the fields (i32 length of all, then for each i16 length and name, i32 length and
value).  Of the code of a request that is greater, as those of pops are, Java sends the low 16 bits.

Any bytes, in any chunks, are parsed into frames or one `FrameFault`.  After a fault the connection
must end: the start of the next frame is not known.  `frame_reader` reads frames, `frame_writer`
writes them.
"""

from __future__ import annotations

import struct
from enum import IntEnum, IntFlag
from typing import NamedTuple

FRAME_BYTES_MAX = 16 << 20  # bytes after the length field: the official limit
PREFIX_BYTES = 8
PREFIX = struct.Struct(">II")  # length; serializer and header length
BINARY = struct.Struct(">hBhiiI")  # a header in ROCKETMQ up to its remark, and the remark's length
LENGTH = struct.Struct(">I")  # length of all fields, and of a value
NAME = struct.Struct(">H")  # length of a name


class Serializer(IntEnum):
    """Encoding of a header; an answer uses that of its request."""

    JSON = 0
    ROCKETMQ = 1


class Flag(IntFlag):
    """Bits of `Frame.flag`."""

    ANSWER = 1
    ONE_WAY = 2  # the sender expects no answer


LANGUAGES = (
    "JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER", "HTTP", "GO", "PHP", "OMS",
    "RUST", "NODE_JS",
)  # fmt: skip
"""Names of languages, at the index of their code in a binary header."""
CPP, OTHER = "CPP", "OTHER"

# An operation of an IntFlag takes a microsecond, and these bits are tested for every frame.
_ANSWER, _ONE_WAY = int(Flag.ANSWER), int(Flag.ONE_WAY)

VERSION = 479  # ordinal of RocketMQ 5.3.3, sent in answers: 4.x and 5.x clients depend on it


class FrameFault(Exception):
    """Bytes that are no frame, or content that no frame can hold; the text says why."""


class Frame(NamedTuple):
    """A request or an answer.

    opaque    id of the request, chosen by its sender and repeated in the answer; any i32
    version   ordinal of the RocketMQ version that the peer reports
    fields    names and values of the header's extFields, values as text whatever JSON type they had
    """

    code: int
    opaque: int = 0
    flag: int = 0
    fields: dict[str, str] = {}  # noqa: RUF012 - never changed; a tuple's default
    body: bytes = b""
    remark: str = ""
    language: str = OTHER
    version: int = 0
    serializer: Serializer = Serializer.JSON

    @property
    def is_answer(self) -> bool:
        """Whether the frame answers a request of ours."""
        return self.flag & _ANSWER != 0

    @property
    def is_one_way(self) -> bool:
        """Whether the sender expects no answer."""
        return self.flag & _ONE_WAY != 0


class LongFields(dict[str, str]):
    """Fields of a header so long that its size counts in what a request keeps in memory.

    header_bytes  size of the whole header
    """

    header_bytes = 0
