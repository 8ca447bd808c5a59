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
begins is not known then.  A reader holds less than one frame of `FRAME_BYTES_MAX`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from enum import IntEnum, IntFlag
from typing import Any, NamedTuple

import orjson

FRAME_BYTES_MAX = 16 << 20  # of what follows the length: the official limit
_PREFIX_BYTES = 8
_LONG_HEADER = 4_096  # bytes; most are some hundreds
_LENGTH = struct.Struct(">I")
_PREFIX = struct.Struct(">II")
_BINARY = struct.Struct(">hBhiiI")
_NAME = struct.Struct(">H")
_CODE_MAX = 0x7FFF_FFFF
_ONLY_TEXT = frozenset({str})


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
_KNOWN = frozenset(LANGUAGES)


# An operation of an IntFlag takes a microsecond, and every frame is asked.
_ANSWER, _ONE_WAY = int(Flag.ANSWER), int(Flag.ONE_WAY)


VERSION = 479  # ordinal of RocketMQ 5.3.3, in answers: what clients of 4.x and 5.x do depends on it
_ANSWER_HEADER = (
    b'{"code":%d,"flag":1,"language":"%b","opaque":%d,"serializeTypeCurrentRPC":"JSON","version":'
    + b"%d" % VERSION
)


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


class Reader:
    """Cuts the bytes of a connection into frames.

    The bytes of an unfinished frame gather until it is whole, so each is looked at once, however small the chunks.
    """

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._buffer = bytearray()
        self._wanted = _PREFIX_BYTES  # bytes without which the buffer gives nothing

    @property
    def held(self) -> int:
        """Bytes of a frame that has not come to its end."""
        return len(self._buffer)

    def receive(self, chunk: bytes) -> list[Frame]:
        """Take bytes of the peer; gives the frames that they complete.  FrameFault: end the connection."""
        whole = self.join(chunk)
        return [
            read_frame(mark >> 24, whole[header_at:body_at], whole[body_at:stop])
            for mark, header_at, body_at, stop in self.cut(whole)
        ]

    def join(self, chunk: bytes) -> bytes:
        """What has come with what was held; to be cut."""
        if not self._buffer:
            return chunk
        self._buffer += chunk
        if len(self._buffer) < self._wanted:
            return b""
        whole = bytes(self._buffer)
        self._buffer.clear()
        return whole

    def cut(self, chunk: bytes) -> Iterator[tuple[int, int, int, int]]:
        """Of each frame serializer and header length, where header and body begin and end; holds the rest.

        Every one must be taken, or the connection ended.
        """
        at, end = 0, len(chunk)
        if not end:
            return
        wanted = _PREFIX_BYTES
        while end - at >= _PREFIX_BYTES:
            length, mark = _PREFIX.unpack_from(chunk, at)
            if not _PREFIX_BYTES - 4 <= length <= self._frame_bytes_max:
                raise FrameFault(
                    f"a frame of {length} bytes; 4 to {self._frame_bytes_max} are allowed"
                )
            stop = at + 4 + length
            header_at = at + _PREFIX_BYTES
            body_at = header_at + (mark & 0xFF_FFFF)
            if body_at > stop:
                raise FrameFault("the header is longer than its frame")
            if stop > end:
                wanted = 4 + length
                break
            yield mark, header_at, body_at, stop
            at = stop
        self._wanted = wanted
        if at < end:
            self._buffer += chunk[at:]

    def check_invariants(self) -> None:
        """Less than one frame is held."""
        assert len(self._buffer) < self._wanted <= 4 + self._frame_bytes_max


def read_frame(serializer: int, header: bytes, body: bytes) -> Frame:
    """A frame of its header and its body.  FrameFault: it is none."""
    if serializer == Serializer.JSON:
        frame = _read_json(header, body)
    elif serializer == Serializer.ROCKETMQ:
        frame = _read_binary(header, body)
    else:
        raise FrameFault(f"unknown serializer {serializer}; there are 0 (JSON) and 1 (ROCKETMQ)")
    if len(header) > _LONG_HEADER:
        fields = LongFields(frame.fields)
        fields.header_bytes = len(header)
        frame = frame._replace(fields=fields)
    return frame


# --- JSON -----------------------------------------------------------------------------------------


def _read_json(header: bytes, body: bytes) -> Frame:
    try:
        found = orjson.loads(header)
    except orjson.JSONDecodeError as error:
        raise FrameFault(f"the header is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise FrameFault("the header is no JSON object")
    fields = found.get("extFields")
    if fields is None:
        fields = {}
    elif not isinstance(fields, dict):
        raise FrameFault("extFields: no JSON object")
    elif not _ONLY_TEXT.issuperset(map(type, fields.values())):
        fields = {name: _text(name, value) for name, value in fields.items() if value is not None}
    get = found.get
    remark, language = get("remark"), get("language")
    code: Any
    opaque: Any
    flag: Any
    version: Any
    code, opaque, flag, version = get("code"), get("opaque"), get("flag"), get("version")
    for value in (code, opaque, flag, version):
        if type(value) is not int or not -_CODE_MAX <= value <= _CODE_MAX:
            code, opaque = _integer(found, "code"), _integer(found, "opaque", 0)
            flag, version = _integer(found, "flag", 0), _integer(found, "version", 0)
            break
    return Frame(
        code,
        opaque,
        flag,
        fields,
        body,
        remark if type(remark) is str else "",
        language if type(language) is str and language in _KNOWN else _language(language),
        version,
    )


def _integer(header: dict[str, Any], name: str, default: int | None = None) -> int:
    value = header.get(name, default)
    if type(value) is int and -_CODE_MAX <= value + 1 <= _CODE_MAX + 1:
        return value
    if isinstance(value, str) and len(value) <= 11 and value.removeprefix("-").isdecimal():
        value = int(value)
    if (
        not isinstance(value, int)
        or isinstance(value, bool)
        or not -_CODE_MAX <= value + 1 <= _CODE_MAX + 1
    ):
        raise FrameFault(f"{name}: {str(value)[:40]!r} is no 32-bit integer")
    return value


def _text(name: str, value: object) -> str:
    """Java sends strings; the C++ client bare numbers, and others booleans."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    raise FrameFault(f"extFields: {name[:40]!r} is neither text nor number")


def _language(value: object) -> str:
    if isinstance(value, str):
        return value if value in LANGUAGES else OTHER
    if isinstance(value, int) and 0 <= value < len(LANGUAGES):
        return LANGUAGES[value]
    return OTHER


# --- ROCKETMQ -------------------------------------------------------------------------------------


def _read_binary(header: bytes, body: bytes) -> Frame:
    try:
        code, language, version, opaque, flag, length = _BINARY.unpack_from(header)
        remark, at = _piece(header, _BINARY.size, length)
        (length,) = _LENGTH.unpack_from(header, at)
        if at + 4 + length != len(header):
            raise FrameFault("the fields of a binary header do not end with it")
        fields = {}
        at += 4
        while at < len(header):
            name, at = _piece(header, at + 2, *_NAME.unpack_from(header, at))
            value, at = _piece(header, at + 4, *_LENGTH.unpack_from(header, at))
            fields[name] = value
    except struct.error:
        raise FrameFault("a binary header is cut short") from None
    return Frame(
        code,
        opaque,
        flag,
        fields,
        body,
        remark,
        LANGUAGES[language] if language < len(LANGUAGES) else OTHER,
        version,
        Serializer.ROCKETMQ,
    )


def _piece(header: bytes, at: int, length: int) -> tuple[str, int]:
    if at + length > len(header):
        raise FrameFault("a binary header is cut short")
    try:
        return header[at : at + length].decode(), at + length
    except UnicodeDecodeError:
        raise FrameFault("a binary header has text that is no UTF-8") from None


# --- writing --------------------------------------------------------------------------------------


def encode(frame: Frame) -> bytes:
    """A frame as it travels.  JSON is compact and has all values as text: some clients read it so only.

    FrameFault: it would be too long, or its header has what the serializer cannot express.
    """
    return encode_head(frame, len(frame.body)) + frame.body


def encode_head(frame: Frame, body_bytes: int) -> bytes:
    """A frame but for its body, which has so many bytes and follows."""
    if frame.serializer is Serializer.ROCKETMQ:
        header = _binary_header(frame)
    else:
        fields: dict[str, object] = {
            "code": frame.code,
            "language": frame.language,
            "version": frame.version,
            "opaque": frame.opaque,
            "flag": frame.flag,
            "serializeTypeCurrentRPC": "JSON",
        }
        if frame.remark:
            fields["remark"] = frame.remark
        if frame.fields:
            fields["extFields"] = frame.fields
        header = orjson.dumps(fields)
    return _prefix(frame.serializer, header, body_bytes) + header


def encode_answer(
    request: Frame, code: int, fields: Mapping[str, str], remark: str, body_bytes: int
) -> bytes:
    """The answer to a request, but for its body, which has so many bytes and follows.  FrameFault as of `encode`."""
    if request.serializer is Serializer.ROCKETMQ:
        header = _binary_header(
            Frame(
                code,
                request.opaque,
                _ANSWER,
                dict(fields),
                remark=remark,
                language=request.language,
                version=VERSION,
            )
        )
    else:
        header = _ANSWER_HEADER % (code, request.language.encode(), request.opaque)
        if remark:
            header += b',"remark":' + orjson.dumps(remark)
        if fields:
            header += b',"extFields":' + orjson.dumps(fields)
        header += b"}"
    return _prefix(request.serializer, header, body_bytes) + header


def _prefix(serializer: int, header: bytes, body_bytes: int) -> bytes:
    length = 4 + len(header) + body_bytes
    if length > FRAME_BYTES_MAX or len(header) > 0xFF_FFFF:
        raise FrameFault(f"a frame of {length} bytes; at most {FRAME_BYTES_MAX} are allowed")
    return _PREFIX.pack(length, serializer << 24 | len(header))


def _binary_header(frame: Frame) -> bytes:
    try:
        return _pack_header(frame)
    except struct.error:
        raise FrameFault("a code or a name that a binary header cannot have") from None


def _pack_header(frame: Frame) -> bytes:
    remark = frame.remark.encode()
    pieces: list[bytes] = []
    for name, value in frame.fields.items():
        name_text, value_text = name.encode(), value.encode()
        pieces += (
            _NAME.pack(len(name_text)),
            name_text,
            _LENGTH.pack(len(value_text)),
            value_text,
        )
    fields = b"".join(pieces)
    language = LANGUAGES.index(frame.language)
    head = _BINARY.pack(frame.code, language, frame.version, frame.opaque, frame.flag, len(remark))
    return b"".join((head, remark, _LENGTH.pack(len(fields)), fields))
