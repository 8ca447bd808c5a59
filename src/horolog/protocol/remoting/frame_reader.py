"""Parser from bytes of a connection to frames (layout: `frame`), with JSON or binary headers.

A reader holds less than one frame of `FRAME_BYTES_MAX`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from horolog.limits import REMOTING_FIELDS_MAX
from horolog.protocol.remoting.codes import SHORTENED_CODES
from horolog.protocol.remoting.frame import (
    BINARY,
    FRAME_BYTES_MAX,
    LANGUAGES,
    LENGTH,
    NAME,
    OTHER,
    PREFIX,
    PREFIX_BYTES,
    Flag,
    Frame,
    FrameFault,
    LongFields,
    Serializer,
)
from horolog.protocol.remoting.lenient_json import loads
from horolog.units import parse_signed

_LONG_HEADER = 4_096  # bytes; most are some hundreds
_CODE_MAX = 0x7FFF_FFFF
_ONLY_TEXT = frozenset({str})
_KNOWN = frozenset(LANGUAGES)


class Reader:
    """Splits the bytes of a connection into frames.

    The bytes of an unfinished frame are buffered until it is complete, so each byte is parsed once,
    however small the chunks are.
    """

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._buffer = bytearray()
        self._wanted = PREFIX_BYTES  # the buffer has no complete frame until it has so many bytes

    @property
    def held(self) -> int:
        """Buffered bytes of an unfinished frame."""
        return len(self._buffer)

    def receive(self, chunk: bytes) -> list[Frame]:
        """Take bytes of the peer and return the frames that they complete.

        FrameFault: the caller must end the connection.
        """
        whole = self.join(chunk)
        return [
            read_frame(mark >> 24, whole[header_at:body_at], whole[body_at:stop])
            for mark, header_at, body_at, stop in self.cut(whole)
        ]

    def join(self, chunk: bytes) -> bytes:
        """Return the buffered bytes and a chunk, for `cut`; b"" while the frame is unfinished."""
        if not self._buffer:
            return chunk
        self._buffer += chunk
        if len(self._buffer) < self._wanted:
            return b""
        whole = bytes(self._buffer)
        self._buffer.clear()
        return whole

    def cut(self, chunk: bytes) -> Iterator[tuple[int, int, int, int]]:
        """Yield the bounds of each frame, and buffer the rest.

        The bounds are serializer and header length as one integer, then the start of the header,
        the start of the body and the end of the body.  The caller must consume the iterator to its
        end, or end the connection.  FrameFault for a length that no frame has, after the frames
        before it.
        """
        at, end = 0, len(chunk)
        if not end:
            return
        wanted = PREFIX_BYTES
        while end - at >= PREFIX_BYTES:
            length, mark = PREFIX.unpack_from(chunk, at)
            if not PREFIX_BYTES - 4 <= length <= self._frame_bytes_max:
                raise FrameFault(
                    f"a frame of {length} bytes; 4 to {self._frame_bytes_max} are allowed"
                )
            stop = at + 4 + length
            header_at = at + PREFIX_BYTES
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
        """Check that less than one frame is buffered."""
        assert len(self._buffer) < self._wanted <= 4 + self._frame_bytes_max


def read_frame(serializer: int, header: bytes, body: bytes) -> Frame:
    """Build a frame from its header and body.  FrameFault if the header is not valid."""
    is_long = len(header) > _LONG_HEADER
    if serializer == Serializer.JSON:
        if is_long and header.count(b",") > REMOTING_FIELDS_MAX:  # between two fields there is one
            raise _too_many_fields()
        frame = _read_json(header, body)
    elif serializer == Serializer.ROCKETMQ:
        frame = _read_binary(header, body)
    else:
        raise FrameFault(f"unknown serializer {serializer}; there are 0 (JSON) and 1 (ROCKETMQ)")
    if is_long:
        fields = LongFields(frame.fields)
        fields.header_bytes = len(header)
        frame = frame._replace(fields=fields)
    return frame


# --- JSON -----------------------------------------------------------------------------------------


def _read_json(header: bytes, body: bytes) -> Frame:
    try:
        found = loads(header)
    except ValueError as error:
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
    number = parse_signed(value) if isinstance(value, str) else value
    if (
        not isinstance(number, int)
        or isinstance(number, bool)
        or not -_CODE_MAX <= number + 1 <= _CODE_MAX + 1
    ):
        raise FrameFault(f"{name}: {str(value)[:40]!r} is no 32-bit integer")
    return number


def _text(name: str, value: object) -> str:
    """Return a field as text: Java sends strings, C++ bare numbers, other clients booleans."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    raise FrameFault(f"extFields: {name[:40]!r} is neither text nor number")


def _too_many_fields() -> FrameFault:
    return FrameFault(f"a header of too many fields; at most {REMOTING_FIELDS_MAX} are allowed")


def _language(value: object) -> str:
    if isinstance(value, str):
        return value if value in LANGUAGES else OTHER
    if isinstance(value, int) and 0 <= value < len(LANGUAGES):
        return LANGUAGES[value]
    return OTHER


# --- ROCKETMQ -------------------------------------------------------------------------------------


def _read_binary(header: bytes, body: bytes) -> Frame:
    try:
        code, language, version, opaque, flag, length = BINARY.unpack_from(header)
        remark, at = _piece(header, BINARY.size, length)
        (length,) = LENGTH.unpack_from(header, at)
        if at + 4 + length != len(header):
            raise FrameFault("the fields of a binary header do not end with it")
        fields = {}
        at += 4
        for _ in range(REMOTING_FIELDS_MAX):
            if at == len(header):
                break
            name, at = _piece(header, at + 2, *NAME.unpack_from(header, at))
            value, at = _piece(header, at + 4, *LENGTH.unpack_from(header, at))
            fields[name] = value
        if at != len(header):
            raise _too_many_fields()
    except struct.error:
        raise FrameFault("a binary header is cut short") from None
    if code in SHORTENED_CODES and not flag & Flag.ANSWER:
        code = SHORTENED_CODES[code]
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
    return header[at : at + length].decode("utf-8", "replace"), at + length
