"""Recall handles: what a producer keeps to cancel a scheduled message (protocol notes §1.14).

RocketMQ's text, base64url with padding of `v1 topic broker due+1 id`, blank separated, with a sixth field: the
origin (log position) of the message.  Handles of five fields, made elsewhere or by hand, are accepted too.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from typing import NamedTuple

from horolog.errors import ErrorCode, HorologError

_MS_MAX = 1 << 53


class RecallHandle(NamedTuple):
    """A decoded handle; `origin` is −1 if it is not in it."""

    topic: str
    broker_name: str
    due_ms: int
    message_id: str
    origin: int = -1


def encode_recall_handle(handle: RecallHandle) -> str:
    """The text for the client."""
    text = (
        f"v1 {handle.topic} {handle.broker_name} {handle.due_ms + 1} "
        f"{handle.message_id} {handle.origin}"
    )
    return urlsafe_b64encode(text.encode()).decode()


def decode_recall_handle(text: str) -> RecallHandle:
    """Read a handle of five or six fields; anything else: BAD_REQUEST."""
    try:
        raw = text.encode("ascii")
        fields = urlsafe_b64decode(raw + b"=" * (-len(raw) % 4)).decode().split(" ")
        if fields[0] != "v1" or len(fields) not in (5, 6) or not all(fields):
            raise ValueError("not a version 1 handle of five or six fields")
        due_ms = int(fields[3]) - 1
        origin = int(fields[5]) if len(fields) == 6 else -1
        if not 0 <= due_ms < _MS_MAX:
            raise ValueError("its time is out of range")
    except (Base64Error, ValueError) as error:
        raise HorologError(
            ErrorCode.BAD_REQUEST, f"recall_handle: {error}"[:200], field="recall_handle"
        ) from error
    return RecallHandle(fields[1], fields[2], due_ms, fields[4], origin)
