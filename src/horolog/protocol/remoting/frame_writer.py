"""Encoder of frames (layout: `frame`), with a fast path for answers."""

from __future__ import annotations

import struct
from collections.abc import Mapping

import orjson

from horolog.protocol.remoting.frame import (
    BINARY,
    FRAME_BYTES_MAX,
    LANGUAGES,
    LENGTH,
    NAME,
    PREFIX,
    VERSION,
    Flag,
    Frame,
    FrameFault,
    Serializer,
)

_ANSWER = int(Flag.ANSWER)
_ANSWER_HEADER = (
    b'{"code":%d,"flag":1,"language":"%b","opaque":%d,"serializeTypeCurrentRPC":"JSON","version":'
    + b"%d" % VERSION
)


def encode(frame: Frame) -> bytes:
    """Encode a frame.  JSON is compact with all values as text: some clients read no other form.

    FrameFault if the frame would be too long, or its header has what the serializer cannot express.
    """
    return encode_head(frame, len(frame.body)) + frame.body


def encode_head(frame: Frame, body_bytes: int) -> bytes:
    """Encode a frame without its body of `body_bytes`, which the caller appends."""
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
    """Encode the answer to a request without its body, which the caller appends.

    FrameFault as in `encode`.
    """
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
    return PREFIX.pack(length, serializer << 24 | len(header))


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
            NAME.pack(len(name_text)),
            name_text,
            LENGTH.pack(len(value_text)),
            value_text,
        )
    fields = b"".join(pieces)
    language = LANGUAGES.index(frame.language)
    head = BINARY.pack(frame.code, language, frame.version, frame.opaque, frame.flag, len(remark))
    return b"".join((head, remark, LENGTH.pack(len(fields)), fields))
