"""Faults of a peer, and how the protocol answers them: RFC 9113 §5.4 and §7."""

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
    """A fault that ends the connection: GOAWAY with this code and sentence, then close."""

    def __init__(self, code: Code, why: str) -> None:
        super().__init__(why)
        self.code = code
        self.why = why


class StreamFault(Exception):
    """A fault that ends one stream: RST_STREAM with this code; the connection goes on."""

    def __init__(self, stream: int, code: Code, why: str) -> None:
        super().__init__(why)
        self.stream = stream
        self.code = code


class HpackFault(Exception):
    """A header block that cannot be decoded: from here on the tables of both ends would differ."""


def expect(holds: bool, why: str, code: Code = Code.PROTOCOL_ERROR) -> None:
    """Raise a ConnectionFault, which ends the connection, unless a rule for the peer holds."""
    if not holds:
        raise ConnectionFault(code, why)
