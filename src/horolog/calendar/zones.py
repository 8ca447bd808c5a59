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
"""The last instant that is of the year 9999 in every zone: local times cannot be later."""
_EPOCH = datetime(1970, 1, 1)
_SECOND = timedelta(seconds=1)
# Files beside the zones, of this machine: its own zone, the rules of POSIX's `TZ`, and copies of all zones, those
# below `right/` with leap seconds, which no time of ours counts.
_NO_ZONES = re.compile(r"(?:posixrules|localtime)|(?:posix|right)/.*", re.DOTALL)


@lru_cache(maxsize=1_024)
def zone(name: str) -> ZoneInfo:
    """The zone of an IANA name; BAD_REQUEST if there is none."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise _unknown(name) from None


def asked_zone(name: str) -> ZoneInfo:
    """The same for a zone that somebody asks for: not what is one on this machine alone.

    A schedule that has been made with such a name goes on with `zone`.
    """
    if _NO_ZONES.fullmatch(name):
        raise _unknown(name)
    return zone(name)


def _unknown(name: str) -> HorologError:
    return refused("zone", f"{name!r} is not an IANA time zone such as Europe/Berlin or UTC")


def offset_ms(of: ZoneInfo, at_ms: int) -> int:
    """How far local time is ahead of UTC."""
    offset = datetime.fromtimestamp(at_ms // SECOND_MS, UTC).astimezone(of).utcoffset()
    assert offset is not None
    return offset // _SECOND * SECOND_MS


def local_of(local_ms: int) -> datetime:
    """A local time that is counted like UTC, in whole seconds."""
    return _EPOCH + timedelta(seconds=local_ms // SECOND_MS)


def count_of(local: datetime) -> int:
    """The other way round."""
    return (local - _EPOCH) // _SECOND * SECOND_MS


def change_after(of: ZoneInfo, from_ms: int, to_ms: int) -> int | None:
    """The first instant in (from, to] with another offset than the one before it; None if there is none.

    Looked for day by day: no zone has ever changed its offset and changed it back within a day.
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
    """Where a local time comes for the second time: the instant at which local times are new again; else `at_ms`."""
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
