"""Time zones: the offset at an instant, and the next instant where it changes."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from horolog.errors import HorologError, refused
from horolog.limits import DAY_MS, SECOND_MS
from horolog.units import TIME_MAX_MS

LAST_MS = TIME_MAX_MS - DAY_MS
"""The last instant that is in the year 9999 in every zone; a `datetime` holds no later year."""
_EPOCH = datetime(1970, 1, 1)
_SECOND = timedelta(seconds=1)
# Files beside the zones that belong to this machine: its own zone, the rules of POSIX's `TZ`, and
# copies of all zones; those below `right/` count leap seconds, which no time of horolog does.
_NO_ZONES = re.compile(r"(?:posixrules|localtime)|(?:posix|right)/.*", re.DOTALL)


@lru_cache(maxsize=1_024)
def zone(name: str) -> ZoneInfo:
    """Return the zone of an IANA name; BAD_REQUEST if there is none."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise _unknown(name) from None


def requested_zone(name: str) -> ZoneInfo:
    """Return a zone that a user asks for; BAD_REQUEST for names that exist on this machine alone.

    A schedule that was made with such a name goes on with `zone`.
    """
    if _NO_ZONES.fullmatch(name):
        raise _unknown(name)
    return zone(name)


def _unknown(name: str) -> HorologError:
    return refused("zone", f"{name!r} is not an IANA time zone such as Europe/Berlin or UTC")


def offset_ms(of: ZoneInfo, at_ms: int) -> int:
    """Return how far local time is ahead of UTC, in ms."""
    offset = datetime.fromtimestamp(at_ms // SECOND_MS, UTC).astimezone(of).utcoffset()
    assert offset is not None
    return offset // _SECOND * SECOND_MS


def local_of(local_ms: int) -> datetime:
    """Convert a local time counted like UTC into a datetime, in whole seconds."""
    return _EPOCH + timedelta(seconds=local_ms // SECOND_MS)


def count_of(local: datetime) -> int:
    """Convert a local datetime into a count like UTC, in ms."""
    return (local - _EPOCH) // _SECOND * SECOND_MS


def change_after(of: ZoneInfo, from_ms: int, to_ms: int) -> int | None:
    """Return the first instant in (from, to] with another offset than before; else None.

    Searched day by day: no zone has ever changed its offset and changed it back within a day.
    """
    offset, low = offset_ms(of, from_ms), from_ms
    while low < to_ms:
        high = min(low + DAY_MS, to_ms)
        if offset_ms(of, high) != offset:
            break
        low = high
    else:
        return None
    low, high = low // SECOND_MS, -(-high // SECOND_MS)
    while high - low > 1:
        middle = (low + high) // 2
        if offset_ms(of, middle * SECOND_MS) == offset:
            low = middle
        else:
            high = middle
    return high * SECOND_MS


def repeated_until(of: ZoneInfo, at_ms: int) -> int:
    """Return the end of a repeated local time: when local times are new again; else `at_ms`."""
    if not _is_repeat(of, at_ms):
        return at_ms
    low, high = at_ms // SECOND_MS, at_ms // SECOND_MS + DAY_MS // SECOND_MS
    while high - low > 1:
        middle = (low + high) // 2
        if _is_repeat(of, middle * SECOND_MS):
            low = middle
        else:
            high = middle
    return high * SECOND_MS


def _is_repeat(of: ZoneInfo, at_ms: int) -> bool:
    return bool(datetime.fromtimestamp(at_ms // SECOND_MS, UTC).astimezone(of).fold)
