"""Send requests of 4.x clients as frames."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

from horolog.protocol.remoting.codes import Code
from horolog.protocol.remoting.frame import Frame

_LONG = dict(
    zip(
        "abcdefghijklmn",
        (
            *(
                "producerGroup",
                "topic",
                "defaultTopic",
                "defaultTopicQueueNums",
                "queueId",
                "sysFlag",
            ),
            *("bornTimestamp", "flag", "properties", "reconsumeTimes", "unitMode"),
            *("maxReconsumeTimes", "batch", "brokerName"),
        ),
        strict=True,
    )
)


def stored(properties: Mapping[str, object], end: str = "\x02") -> str:
    """Encode properties as clients write them."""
    return "\x02".join(f"{name}\x01{value}" for name, value in properties.items()) + end


def send_frame(
    properties: Mapping[str, object] | str,
    *,
    topic: str = "t",
    body: bytes = b"x",
    code: int = Code.SEND_MESSAGE_V2,
    opaque: int = 1,
    queue: int = 0,
    **more: object,
) -> Frame:
    """Build a send as Java (310) or C++ (10) does; `more` are further fields by their short names."""
    fields = {
        "a": "producers",
        "b": topic,
        "c": "TBW102",
        "d": "4",
        "e": queue,
        "f": 0,
        "g": 1_700_000_000_000,
        "h": 0,
        "j": 0,
        "k": "false",
        "m": "false",
        **more,
        "i": properties if isinstance(properties, str) else stored(properties),
    }
    if code == Code.SEND_MESSAGE:
        fields = {_LONG[name]: value for name, value in fields.items()}
    return Frame(code, opaque, 0, {name: str(value) for name, value in fields.items()}, body)


def item(properties: Mapping[str, object] | bytes, body: bytes = b"x", flag: int = 0) -> bytes:
    """Encode a message of a batch."""
    text = properties if isinstance(properties, bytes) else stored(properties).encode()
    size = 20 + len(body) + 2 + len(text)
    return (
        struct.pack(">iiiii", size, 0, 0, flag, len(body))
        + body
        + struct.pack(">H", len(text))
        + text
    )


def batch_frame(items: Sequence[bytes], **more: object) -> Frame:
    """Build a batch as Java does."""
    frame = send_frame("", body=b"".join(items), **more)  # type: ignore[arg-type]
    return frame._replace(code=Code.SEND_BATCH_MESSAGE)
