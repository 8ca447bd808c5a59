"""Fields of the requests of 4.x clients, and the messages in their answers."""

from __future__ import annotations

import struct
from typing import Any

from remoting_sends import item

from horolog.protocol.remoting.frame import Frame
from horolog.protocol.rocketmq import layout


def stored(properties: dict[str, str]) -> str:
    """Encode properties as clients write them."""
    return "".join(f"{name}\x01{value}\x02" for name, value in properties.items())


def sending(topic: str = "orders", **fields: Any) -> dict[str, Any]:
    """Return the fields of a send, in the short header."""
    properties = stored(fields.pop("properties", {}))
    return {
        "a": "producers", "b": topic, "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1_700_000_000_000,
        "h": 0, "i": properties, "j": 0, "k": False, "m": False, "n": "broker-a", **fields,
    }  # fmt: skip


def pulling(topic: str = "orders", **fields: Any) -> dict[str, Any]:
    """Return the fields of a pull that does not wait."""
    return {
        "consumerGroup": "g", "topic": topic, "queueId": 0, "queueOffset": 0, "maxMsgNums": 32,
        "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 15_000, "subscription": "*",
        "subVersion": 0, **fields,
    }  # fmt: skip


def popping(**fields: Any) -> dict[str, Any]:
    """Return the fields of a pop that does not wait."""
    return {
        "consumerGroup": "g", "topic": "orders", "queueId": -1, "maxMsgNums": 32,
        "invisibleTime": 60_000, "pollTime": 0, "bornTime": 1, "initMode": 0, "expType": "TAG",
        "exp": "*", "order": "false", **fields,
    }  # fmt: skip


def layouts(body: bytes) -> list[layout.Stored]:
    """Decode the messages in the body of an answer."""
    found: list[layout.Stored] = []
    at = 0
    while at < len(body):
        (size,) = struct.unpack_from(">I", body, at)
        found.append(layout.decode(body[at : at + size]))
        at += size
    return found


def bodies(answer: Frame) -> list[bytes]:
    """Return the bodies of the messages in an answer."""
    return [message.body for message in layouts(answer.body)]


def batch(*items: tuple[bytes, str]) -> bytes:
    """Encode items (body, properties) as clients encode a batch."""
    return b"".join(item(properties.encode(), body) for body, properties in items)
