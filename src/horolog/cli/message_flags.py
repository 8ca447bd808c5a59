"""Flags that name scheduled messages: one by handle or by id, or all of a window."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MESSAGE_FLAGS = {
    "handle": "HANDLE",
    "topic": "--topic",
    "message_id": "--id",
    "deliver_at_ms": "--due",
}
WINDOW_FLAGS = {"from_ms": "--from", "to_ms": "--to", "to": "--to", "tag": "--tag"}


def message_fields(
    handle: str, topic: str, message_id: str, due: str, *, ways: str = "--id, or --from"
) -> dict[str, Any]:
    """Return the API fields that name one message, from HANDLE or --topic, --id and --due.

    ways  flags that may follow --topic, for the error if none does
    """
    from horolog.units import parse_time_ms

    if handle:
        check_flags_fit({"--topic": topic, "--id": message_id, "--due": due}, set(), handle)
        return {"handle": handle}
    return {
        "topic": required_text(topic, "HANDLE, or --topic"),
        "message_id": required_text(message_id, ways),
        "deliver_at_ms": parse_time_ms(required_text(due, "--due"), field="--due"),
    }


def window_fields(
    topic: str, from_: str, to: str, tag: str, *, to_flag: str = "--to"
) -> dict[str, Any]:
    """Return the API fields that name all messages of a window; `to_flag`: the flag of its end."""
    from horolog.units import parse_time_ms

    return {
        "topic": required_text(topic, "--topic"),
        "from_ms": parse_time_ms(required_text(from_, "--from"), field="--from"),
        "to_ms": parse_time_ms(required_text(to, to_flag), field=to_flag),
        **({"tag": tag} if tag else {}),
    }


def check_flags_fit(values: Mapping[str, object], allowed: set[str], handle: str) -> None:
    """Raise a usage error if a flag has a value, and does not go with the chosen way.

    values   by flag; empty: the flag is not given
    allowed  the flags of the chosen way; none: a HANDLE is the way
    """
    from horolog.errors import ErrorCode, HorologError

    other = sorted(flag for flag, value in values.items() if value and flag not in allowed)
    if other or (handle and allowed):
        flag = other[0] if other else "HANDLE"
        with_what = "a HANDLE" if not allowed else ", ".join(sorted(allowed))
        raise HorologError(
            ErrorCode.BAD_REQUEST, f"{flag}: does not go with {with_what}", field=flag
        )


def required_text(text: str, flag: str) -> str:
    """Return the text of a flag; a usage error if it is empty."""
    from horolog.errors import ErrorCode, HorologError

    if not text:
        raise HorologError(ErrorCode.BAD_REQUEST, f"{flag}: is needed", field=flag)
    return text
