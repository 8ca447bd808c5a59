"""JSON of 4.x clients, in headers and bodies, read like Java does where it is not valid.

C++ clients send names, tags and properties in the encoding of their system.  Bad UTF-8 becomes
U+FFFD, half a surrogate pair a question mark, and control characters are allowed.
"""

from __future__ import annotations

import json
from math import isinf
from typing import Any

import orjson

_LENIENT_MAX = 256 << 10  # bytes to parse leniently: all storable properties, escaped
_I64_DIGITS = 18  # so many always fit into 64 bits


def loads(text: bytes) -> Any:
    """Parse JSON.  ValueError if it cannot be read, or is not valid and longer than 256 KiB."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        if len(text) > _LENIENT_MAX:
            raise
        why = error
    try:
        return json.loads(
            text.decode("utf-8", "replace"),
            strict=False,
            object_pairs_hook=_text_of_pairs,
            parse_int=_integer,
            parse_float=_finite,
            parse_constant=_no_constant,
        )
    except (ValueError, RecursionError):
        raise why from None


def _text_of_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return {_whole(name): _whole(value) for name, value in pairs}


def _whole(value: Any) -> Any:
    """Replace halves of surrogate pairs in texts, so that they can be stored."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    return list(map(_whole, value)) if isinstance(value, list) else value


# --- numbers, as `orjson` reads them --------------------------------------------------------------


def _integer(digits: str) -> int | float:
    if len(digits) <= _I64_DIGITS:
        return int(digits)
    number = int(digits)
    return number if -(1 << 63) <= number < 1 << 64 else _finite(digits)


def _finite(digits: str) -> float:
    number = float(digits)
    if isinf(number):
        raise ValueError(f"{digits[:40]} is too large")
    return number


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no number of JSON")
