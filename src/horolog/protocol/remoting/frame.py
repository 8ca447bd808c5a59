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

A header in ROCKETMQ is code i16, language u8, version i16, opaque i32, flag i32, remark (i32 length and UTF-8), and
the fields (i32 length of all, then for each i16 length and name, i32 length and value).

Any bytes, in any chunks, are frames or one `FrameFault`, after which the connection must end: where the next frame
begins is not known then.  `frame_reader` reads them, `frame_writer` writes them.
"""

from __future__ import annotations

import struct
from enum import IntEnum, IntFlag
from typing import NamedTuple

FRAME_BYTES_MAX = 16 << 20  # of what follows the length: the official limit
PREFIX_BYTES = 8
PREFIX = struct.Struct(">II")  # length; serializer and header length
BINARY = struct.Struct(">hBhiiI")  # a header in ROCKETMQ up to its remark, and the remark's length
LENGTH = struct.Struct(">I")  # of its fields, and of a value
NAME = struct.Struct(">H")  # of a name


class Serializer(IntEnum):
    """How a header is written; an answer is written as its request."""

    JSON = 0
    ROCKETMQ = 1


class Flag(IntFlag):
    """Bits of `Frame.flag`."""

    ANSWER = 1
    ONE_WAY = 2  # nobody waits for an answer


LANGUAGES = (
    "JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER", "HTTP", "GO", "PHP", "OMS",
    "RUST", "NODE_JS",
)  # fmt: skip
"""Names by their codes in a binary header."""
OTHER = "OTHER"

# An operation of an IntFlag takes a microsecond, and every frame is asked.
_ANSWER, _ONE_WAY = int(Flag.ANSWER), int(Flag.ONE_WAY)

VERSION = 479  # ordinal of RocketMQ 5.3.3, in answers: what clients of 4.x and 5.x do depends on it


class FrameFault(Exception):
    """Bytes that are no frame, or what no frame can hold; the text says why."""


class Frame(NamedTuple):
    """A request, or an answer.

    opaque    the caller's number of the request, repeated in its answer; any i32
    version   ordinal of the RocketMQ version that the peer says it is
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
        """Whether it answers a request of ours."""
        return self.flag & _ANSWER != 0

    @property
    def is_one_way(self) -> bool:
        """Whether nobody waits for an answer."""
        return self.flag & _ONE_WAY != 0


class LongFields(dict[str, str]):
    """Fields of a header so long that it counts among what a request keeps.

    header_bytes  of all of it
    """

    header_bytes = 0
