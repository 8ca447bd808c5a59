"""What handlers of the remoting front end use: fields of a request, and its answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from horolog.errors import HorologError, refused
from horolog.limits import REMOTING_CONTENT_MAX
from horolog.protocol.remoting.codes import Status
from horolog.protocol.remoting.frame import Frame
from horolog.protocol.remoting.lenient_json import loads
from horolog.units import parse_signed

_NO_FIELDS: dict[str, str] = {}


class Answer(NamedTuple):
    """Answer to a request; its frame takes opaque, serializer and language from the request."""

    status: int = Status.SUCCESS
    fields: Mapping[str, str] = _NO_FIELDS
    body: bytes = b""
    remark: str = ""


I32_MIN, I32_MAX = -(1 << 31), (1 << 31) - 1  # of an int in Java
DONE = Answer()
_MISSING = "missing"


def text(frame: Frame, name: str, default: str | None = None) -> str:
    """Return a field; BAD_REQUEST if it is missing and has no default."""
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
    """Return a field as an integer from `low` to `high`; BAD_REQUEST names field and limit."""
    value = frame.fields.get(name)
    if value is None or value == "":
        if default is None:
            raise refused(name, _MISSING)
        return default
    number = parse_signed(value)
    if number is None:
        raise refused(name, f"{value[:40]!r} is no number")
    if not low <= number <= high:
        raise refused(name, f"{number}; {low} to {high} are allowed", f"{low} to {high}")
    return number


def flag(frame: Frame, name: str, *, default: bool = False) -> bool:
    """Return a boolean field: `true`/`false`, or `1`/`0` (C++ clients); BAD_REQUEST otherwise."""
    value = frame.fields.get(name)
    if value is None or value == "":
        return default
    if value.lower() not in ("true", "false", "1", "0"):
        raise refused(name, f"{value[:40]!r} is neither true nor false")
    return value.lower() in ("true", "1")


def too_large(field: str, what: str, bytes_max: int, instead: str) -> HorologError:
    """Return the refusal of a request whose answer would be too large; `what` ends in its verb."""
    return refused(field, f"{what} more than {bytes_max} bytes; {instead}", f"{bytes_max} bytes")


def content(frame: Frame, bytes_max: int = REMOTING_CONTENT_MAX) -> dict[str, Any]:
    """Return the JSON object in the body; BAD_REQUEST if the body is none, or too long."""
    if (size := len(frame.body)) > bytes_max:
        raise refused(
            "body", f"{size} bytes; at most {bytes_max} are allowed", f"{bytes_max} bytes"
        )
    try:
        found = loads(frame.body)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise refused("body", "no JSON object")
    return found


def entries(body: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """Return the objects of a list in a body; BAD_REQUEST if the field is anything else."""
    found = body.get(name)
    if not isinstance(found, list) or not all(isinstance(entry, dict) for entry in found):
        raise refused(name, "a list of JSON objects is needed")
    return found
