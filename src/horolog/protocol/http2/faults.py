"""What a peer can do wrong, and how the protocol answers: RFC 9113 §5.4 and §7."""

from __future__ import annotations

from enum import IntEnum


class Code(IntEnum):
    """Error codes of RST_STREAM and GOAWAY."""

    NO_ERROR = 0x0
    PROTOCOL_ERROR = 0x1
    INTERNAL_ERROR = 0x2
    FLOW_CONTROL_ERROR = 0x3
    SETTINGS_TIMEOUT = 0x4
    STREAM_CLOSED = 0x5
    FRAME_SIZE_ERROR = 0x6
    REFUSED_STREAM = 0x7
    CANCEL = 0x8
    COMPRESSION_ERROR = 0x9
    CONNECT_ERROR = 0xA
    ENHANCE_YOUR_CALM = 0xB
    INADEQUATE_SECURITY = 0xC
    HTTP_1_1_REQUIRED = 0xD


class ConnectionFault(Exception):
    """The whole connection ends: GOAWAY with this code and sentence, then close."""

    def __init__(self, code: Code, why: str) -> None:
        super().__init__(why)
        self.code = code
        self.why = why


class StreamFault(Exception):
    """One stream ends: RST_STREAM with this code; the connection goes on."""

    def __init__(self, stream: int, code: Code, why: str) -> None:
        super().__init__(why)
        self.stream = stream
        self.code = code


class HpackFault(Exception):
    """A header block that cannot be decoded: the table of both ends would differ from here on."""


def expect(holds: bool, why: str, code: Code = Code.PROTOCOL_ERROR) -> None:
    """What a peer must keep to; else a ConnectionFault, which ends the connection."""
    if not holds:
        raise ConnectionFault(code, why)
