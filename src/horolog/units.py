"""Parses and formats durations, points in time and hours, for people.

Inside horolog a duration is an int of milliseconds and a point in time is an int of UTC epoch
milliseconds; text is converted at the edge (CLI, admin API, configuration), by this module alone,
which also formats counts with a noun.  A bare number is never guessed to be seconds, and a time
without a zone is never guessed to be local: both are refused with the words to type instead.
Fractions of a millisecond are rounded up, so that no message becomes due early.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from decimal import ROUND_CEILING, Decimal

from horolog.errors import refused
from horolog.limits import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS

UNIT_MS = {
    "ms": 1,
    "s": SECOND_MS,
    "m": MINUTE_MS,
    "min": MINUTE_MS,
    "h": HOUR_MS,
    "d": DAY_MS,
    "w": 7 * DAY_MS,
}
# A century: more is a typing error; far from the end of int64
DURATION_MAX_MS = 36_525 * DAY_MS
# The last millisecond of the year 9999, the end of ISO 8601's range
TIME_MAX_MS = 253_402_300_799_999
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|min|s|m|h|d|w)")
_DURATION = re.compile(rf"(?:{_PART.pattern})+\Z")
_ISO = re.compile(
    r"P(?:(\d+)W)?(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?\Z", re.IGNORECASE
)
_EPOCH_MS = re.compile(r"(?:0|[0-9]{12,15})\Z")
_HOUR_NUMBER = re.compile(r"[0-9]{1,8}\Z")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def parse_unsigned(text: str, *, digits_max: int = 19) -> int | None:
    """Parse ASCII digits into an int; None for any other text, and for more than `digits_max`.

    `str.isdigit` accepts "²", which `int` refuses; `isdecimal` and `int` accept the digits of every
    alphabet, which none of our writers uses.  `int` itself raises for more than 4300 digits.
    """
    is_one = text.isascii() and text.isdigit() and len(text) <= digits_max
    return int(text) if is_one else None


def parse_signed(text: str) -> int | None:
    """Parse ASCII digits, perhaps after a minus, into an int; None for any other text."""
    number = parse_unsigned(text.removeprefix("-"))
    return -number if number is not None and text.startswith("-") else number


def counted(count: int, noun: str, plural: str = "") -> str:
    """Format a count with its noun: "1 file", "1,234 files"; `plural` if adding an s is wrong."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def parse_duration_ms(text: str, *, field: str = "duration") -> int:
    """Parse a duration such as "90s", "24h", "1500ms", "1h30m" or "0.5s" into milliseconds.

    Units are ms, s, m (min), h, d, w.  BAD_REQUEST, naming `field`, for anything else, also a count
    without a unit, and for more than a century.
    """
    compact = text.strip().lower().replace(" ", "").replace("_", "")
    if not _DURATION.match(compact):
        hint = f"; did you mean {compact}s?" if compact.isdigit() else ""
        raise refused(field, f"{text!r} is not a duration such as 90s, 24h, 1500ms or 1h30m{hint}")
    total = sum(Decimal(number) * UNIT_MS[unit] for number, unit in _PART.findall(compact))
    if total > DURATION_MAX_MS:
        raise refused(field, f"{text!r} is more than a hundred years", "100 years")
    return int(Decimal(total).to_integral_value(ROUND_CEILING))


def parse_interval_ms(text: str, *, field: str = "every") -> int:
    """Parse an interval into milliseconds: a duration, or ISO 8601 such as PT15M or P1DT12H.

    BAD_REQUEST, naming `field`, for anything else, also for months and years, which have no fixed
    length.
    """
    stripped = text.strip()
    if stripped[:1] not in ("P", "p"):
        return parse_duration_ms(text, field=field)
    match = _ISO.match(stripped)
    if match is None or not any(match.groups()):
        raise refused(
            field,
            f"{text!r} is not an interval such as 15m, PT15M or P1D; months and years are for cron",
        )
    parts = zip(match.groups(), ("w", "d", "h", "m", "s"), strict=True)
    return parse_duration_ms("".join(n + unit for n, unit in parts if n), field=field)


def parse_time_ms(text: str, *, field: str = "time") -> int:
    """Parse an ISO 8601 time with a zone into UTC epoch milliseconds.

    For example "2026-03-08T10:00:00Z" or "2026-03-08 12:00+02:00".  Epoch milliseconds of 12 to 15
    digits are accepted too, and so is "0", which is 1970 in any unit.  BAD_REQUEST, naming `field`,
    for a time without a zone, before 1970 or after 9999.
    """
    stripped = text.strip()
    if _EPOCH_MS.match(stripped):
        epoch_ms = int(stripped)
    else:
        epoch_ms = _parse_iso_ms(stripped, field)
    if not 0 <= epoch_ms <= TIME_MAX_MS:
        raise refused(field, f"{text!r} is not between 1970 and 9999", "1970 to 9999")
    return epoch_ms


def _parse_iso_ms(text: str, field: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise refused(
            field,
            f"{text!r} is not a time such as 2026-03-08T10:00:00Z (or epoch milliseconds)",
        ) from None
    if moment.tzinfo is None:
        raise refused(
            field, f"{text!r} has no time zone; add Z for UTC, or an offset such as +02:00"
        )
    # the floor of the negated distance is the ceiling of the distance: microseconds are rounded up
    return -((_EPOCH - moment) // timedelta(milliseconds=1))


def parse_hour(text: str) -> int:
    """Parse an hour (epoch ms // 3 600 000), typed as that integer or as any time in the hour."""
    stripped = text.strip()
    if _HOUR_NUMBER.match(stripped):
        return int(stripped)
    return parse_time_ms(stripped, field="hour") // HOUR_MS


def format_time_ms(epoch_ms: int) -> str:
    """Format 0 … `TIME_MAX_MS` as ISO 8601 in UTC with milliseconds: 2026-03-08T10:00:00.000Z."""
    moment = _EPOCH + timedelta(milliseconds=epoch_ms)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{epoch_ms % SECOND_MS:03d}Z"


def instant(epoch_ms: int) -> str:
    """Format a due time for a sentence; out of the range of `format_time_ms`, as plain ms."""
    return format_time_ms(epoch_ms) if 0 <= epoch_ms <= TIME_MAX_MS else f"{epoch_ms} ms"


def format_duration_ms(duration_ms: int) -> str:
    """Format a duration as the text that `parse_duration_ms` reads back: 1h30m, 1s500ms, 0ms."""
    rest = duration_ms
    parts = []
    for unit in ("d", "h", "m", "s", "ms"):
        count, rest = divmod(rest, UNIT_MS[unit])
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0ms"
