"""What handlers of the remoting doors see of a request, and what they give back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from horolog.errors import refused
from horolog.protocol.remoting.codes import Status
from horolog.protocol.remoting.frame import Frame

_NO_FIELDS: dict[str, str] = {}


class Answer(NamedTuple):
    """How a request went; its frame gets opaque, serializer and language from the request."""

    status: int = Status.SUCCESS
    fields: Mapping[str, str] = _NO_FIELDS
    body: bytes = b""
    remark: str = ""


DONE = Answer()
_MISSING = "missing"


def text(frame: Frame, name: str, default: str | None = None) -> str:
    """A field; BAD_REQUEST if it is not there and has no default."""
    value = frame.fields.get(name, default)
    if value is None:
        raise refused(name, _MISSING)
    return value


def integer(
    frame: Frame,
    name: str,
    default: int | None = None,
    *,
    low: int = -(1 << 63),
    high: int = (1 << 63) - 1,
) -> int:
    """A field that is a decimal number from `low` to `high`; BAD_REQUEST, naming field and limit."""
    value = frame.fields.get(name)
    if value is None or value == "":
        if default is None:
            raise refused(name, _MISSING)
        return default
    try:
        number = int(value) if len(value) <= 20 else None
    except ValueError:
        number = None
    if number is None:
        raise refused(name, f"{value[:40]!r} is no number")
    if not low <= number <= high:
        raise refused(name, f"{number}; {low} to {high} are allowed", f"{low} to {high}")
    return number


def flag(frame: Frame, name: str, *, default: bool = False) -> bool:
    """A field that says yes or no: `true`/`false`, and of C++ clients `1`/`0`; BAD_REQUEST for anything else."""
    value = frame.fields.get(name)
    if value is None or value == "":
        return default
    if value.lower() not in ("true", "false", "1", "0"):
        raise refused(name, f"{value[:40]!r} is neither true nor false")
    return value.lower() in ("true", "1")


def content(frame: Frame) -> dict[str, Any]:
    """The JSON object that is the body; BAD_REQUEST if it is none."""
    try:
        found = orjson.loads(frame.body)
    except orjson.JSONDecodeError:
        found = None
    if not isinstance(found, dict):
        raise refused("body", "no JSON object")
    return found


def entries(body: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """Objects of a list in a body; BAD_REQUEST if it is anything else."""
    found = body.get(name)
    if not isinstance(found, list) or not all(isinstance(entry, dict) for entry in found):
        raise refused(name, "a list of JSON objects is needed")
    return found
