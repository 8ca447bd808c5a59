"""Recall handles, by which a producer recalls a scheduled message.

The text is RocketMQ's, base64url with padding of `v1 topic broker due+1 id`, separated by blanks,
with a sixth field: the origin (log position) of the message.  Handles of five fields, made
elsewhere or by hand, are accepted too.
"""

from __future__ import annotations

from base64 import b64decode
from binascii import Error as Base64Error
from binascii import b2a_base64
from collections.abc import Iterable
from typing import NamedTuple

from horolog.errors import HorologError, refused

URL_SAFE = bytes.maketrans(b"+/", b"-_")  # from base64 to base64url
_MS_MAX = 1 << 53
_ORIGIN_MAX = 1 << 63
_DIGITS = 19  # of a number below `_ORIGIN_MAX`


class RecallHandle(NamedTuple):
    """A decoded handle; `origin` is −1 if the handle has none."""

    topic: str
    broker_name: str
    due_ms: int
    message_id: str
    origin: int = -1


def encode_recall_handle(handle: RecallHandle) -> str:
    """Encode a handle as text for the client."""
    topic, broker_name, due_ms, message_id, origin = handle
    return encode_recall_handles(topic, broker_name, [(due_ms, message_id, origin)])[0].decode()


def encode_recall_handles(
    topic: str, broker_name: str, messages: Iterable[tuple[int, str, int]]
) -> list[bytes]:
    """Encode handles of many messages, each given as (due ms, message id, origin)."""
    front = f"v1 {topic} {broker_name} "
    return [
        b2a_base64(f"{front}{due_ms + 1} {message_id} {origin}".encode(), newline=False).translate(
            URL_SAFE
        )
        for due_ms, message_id, origin in messages
    ]


def decode_recall_handle(text: str) -> RecallHandle:
    """Decode a handle of five or six fields; BAD_REQUEST says what is wrong with any other text."""
    if not text.strip():
        raise _rotten("blank; give the handle that the send returned")
    try:
        raw = text.encode("ascii")
        fields = b64decode(raw + b"=" * (-len(raw) % 4), b"-_", validate=True).decode().split(" ")
    except (Base64Error, ValueError):
        raise _rotten("not the handle that a send returned: not base64 of text") from None
    if fields[0] != "v1" or len(fields) not in (5, 6) or not all(fields):
        raise _rotten("not a handle of version 1 with five or six fields")
    due_ms = _number(fields[3], _MS_MAX, "time") - 1
    if due_ms < 0:
        raise _rotten("its time is 0, which is before all due times")
    origin = -1
    if len(fields) == 6 and fields[5] != "-1":
        origin = _number(fields[5], _ORIGIN_MAX, "origin")
    return RecallHandle(fields[1], fields[2], due_ms, fields[4], origin)


def _number(text: str, limit: int, what: str) -> int:
    if text.isascii() and text.isdigit() and len(text) <= _DIGITS and int(text) < limit:
        return int(text)
    raise _rotten(f"its {what} is not a number below {limit}")


def _rotten(why: str) -> HorologError:
    return refused("recall_handle", why)
