"""Check attributes of topics and groups: JSON that clients store there, without an effect."""

from __future__ import annotations

import orjson

from horolog.errors import refused

_LEVELS = 8  # around attributes where they are written deepest, in the list of all groups


def check_attributes(attributes: object, most: int) -> None:
    """Raise BAD_REQUEST for attributes that are no JSON, or have more than `most` bytes as JSON."""
    nested = attributes
    for _ in range(_LEVELS):
        nested = [nested]
    try:
        size = len(orjson.dumps(attributes))
        orjson.dumps(nested)  # nested deeper than 254 levels, JSON cannot be written
    except TypeError as error:
        raise refused("attributes", f"{error}") from error
    if size > most:
        raise refused(
            "attributes", f"{size} bytes as JSON; at most {most} are allowed", f"{most} bytes"
        )
