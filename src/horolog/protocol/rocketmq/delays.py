"""When a message is due by its properties: the dialects of delay that 4.x clients use.

The first of these that a message has decides when it is due; others are stored and mean nothing:

===================  ===============================================================================
DELAY                a level from 1 on of the table `message_delay_level`; above the last one: the last
TIMER_DELAY_SEC      seconds after the message is stored
TIMER_DELAY_MS       milliseconds after the message is stored
TIMER_DELIVER_MS     UTC epoch milliseconds
__STARTDELIVERTIME   UTC epoch milliseconds
===================  ===============================================================================

A level of 0 or less counts as no level.  With a level the TIMER_ properties are not stored, and a
level above the last one is stored as the last one.  TIMER_OUT_MS says that a message has waited
already: then its timers mean nothing.  A delayed message keeps these properties when it is handed
over, and REAL_TOPIC and REAL_QID, as in RocketMQ.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from horolog.errors import ErrorCode, HorologError, refused

DEFAULT_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
LEVELS_MAX = 1_024  # queues of SCHEDULE_TOPIC_XXXX
LEVEL_DELAY_MAX_MS = 3_653 * 86_400_000
_UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_FAR_MS = 1 << 53  # later than any allowed due time; keeps sums within 64 bits
_DIGITS = 19

_LEVEL = b"\x02DELAY\x01"
_TIMERS = (
    # name, milliseconds of a unit, whether it counts from when the message is stored
    (b"\x02TIMER_DELAY_SEC\x01", 1_000, True),
    (b"\x02TIMER_DELAY_MS\x01", 1, True),
    (b"\x02TIMER_DELIVER_MS\x01", 1, False),
)
_START = b"\x02__STARTDELIVERTIME\x01"
_WAITED = b"\x02TIMER_OUT_MS\x01"
_REAL = (b"\x02REAL_TOPIC\x01", b"\x02REAL_QID\x01")

PLAIN_DELAYS = {
    b"DELAY": rb"[1-9][0-9]{0,3}",
    b"TIMER_DELAY_SEC": rb"[1-9][0-9]{0,11}",
    b"TIMER_DELAY_MS": rb"[1-9][0-9]{0,14}",
    b"TIMER_DELIVER_MS": rb"[1-9][0-9]{0,14}",
    b"__STARTDELIVERTIME": rb"[1-9][0-9]{0,14}",
}
"""Properties that delay, and the usual form of their values, which `plain_dues` reads."""
# Factors from the value to `Due.due_ms`
_FACTORS = {
    name.strip(b"\1\2"): -unit_ms if is_relative else unit_ms
    for name, unit_ms, is_relative in _TIMERS
}
assert _FAR_MS > 10**12 * 1_000


class Levels(NamedTuple):
    """The table of delay levels."""

    text: str
    delays_ms: tuple[int, ...]  # of level 1, 2 …


class Due(NamedTuple):
    """When a message is due, in the form of a head as sent, and its properties as stored."""

    due_ms: int  # 0: now; below 0: so many milliseconds after the message is stored
    lane: int  # delay level; 0: none
    text: bytes  # a separator, then the properties


def parse_levels(text: str) -> Levels:
    """Parse a table like `1s 5s 1m 2h 1d`.

    CONFIG names a word that is no delay, or too many levels.
    """
    delays = []
    for word in text.split(" "):
        number, unit = word[:-1], word[-1:]
        if unit not in _UNITS_MS or not number.isascii() or not number.isdigit():
            raise _no_levels(f"{word[:40]!r} is no delay; write it like 10s, 5m, 2h or 1d")
        delay_ms = int(number[:_DIGITS]) * _UNITS_MS[unit]
        if not 0 < delay_ms <= LEVEL_DELAY_MAX_MS:
            raise _no_levels(f"{word[:40]!r} is not between 1s and 3653d")
        delays.append(delay_ms)
    if len(delays) > LEVELS_MAX:
        raise _no_levels(f"{len(delays)} levels; at most {LEVELS_MAX} are allowed")
    return Levels(text, tuple(delays))


def _no_levels(why: str) -> HorologError:
    return refused("message_delay_level", why, code=ErrorCode.CONFIG)


def due_of(text: bytes, levels: Levels, delayed_properties: bytes) -> Due:
    """Return when a message is due.  ILLEGAL_DELIVERY_TIME names a property that is no number.

    text                stored properties of the message, after a separator
    delayed_properties  stored with a delayed message: REAL_TOPIC, and REAL_QID if the producer
                        chose a queue
    """
    level = _number(text, _LEVEL)
    if level is None or level <= 0:
        due_ms = _timer(text)
        return Due(due_ms, 0, _delayed(text, delayed_properties) if due_ms else text)
    lane = min(level, len(levels.delays_ms))
    if level != lane:
        text = with_separator(without(text, _LEVEL)) + b"DELAY\x01%d\x02" % lane
    if b"\x02TIMER_" in text:
        for name, _, _ in _TIMERS:
            text = without(text, name)
    return Due(-levels.delays_ms[lane - 1], lane, _delayed(text, delayed_properties))


def plain_dues(
    name: bytes, numbers: Sequence[int], levels: Levels
) -> tuple[Sequence[int], Sequence[int]] | None:
    """Return `Due.due_ms` and `Due.lane` of messages whose only property that delays is `name`.

    The property is stored as it came.  None if a value is above the last level: it would be stored
    as another level.

    numbers  the values of the property, plain as in `PLAIN_DELAYS`
    """
    if name != b"DELAY":
        factor = _FACTORS.get(name, 1)
        return (numbers if factor == 1 else [n * factor for n in numbers]), [0] * len(numbers)
    if max(numbers) > len(levels.delays_ms):
        return None
    return [-levels.delays_ms[level - 1] for level in numbers], numbers


def _timer(text: bytes) -> int:
    """Return what the timer properties say, as `Due.due_ms`."""
    if _WAITED not in text:
        for name, unit_ms, is_relative in _TIMERS:
            value = _number(text, name)
            if value is not None:
                wanted_ms = max(0, min(value * unit_ms, _FAR_MS))
                return -wanted_ms if is_relative else wanted_ms
    start_ms = _number(text, _START)
    return max(0, min(start_ms or 0, _FAR_MS))


def _delayed(text: bytes, delayed_properties: bytes) -> bytes:
    if b"\x02REAL_" in text:
        for name in _REAL:
            text = without(text, name)
    return with_separator(text) + delayed_properties


def with_separator(text: bytes) -> bytes:
    """Append a separator to stored properties that do not end with one."""
    return text if text.endswith(b"\x02") else text + b"\x02"


def without(text: bytes, name: bytes) -> bytes:
    """Remove a property from stored properties that begin with a separator.

    name  with its separators before and after
    """
    at = text.find(name)
    if at < 0:
        return text
    kept: list[bytes] = []
    start = 0
    while at >= 0:
        kept.append(text[start : at + 1])
        end = text.find(b"\x02", at + len(name))
        if end < 0:
            return b"".join(kept)
        start = end + 1
        at = text.find(name, end)
    return b"".join((*kept, text[start:]))


def _number(text: bytes, name: bytes) -> int | None:
    """Return the value of a property, the last one if there are several; None without it."""
    at = text.rfind(name)
    if at < 0:
        return None
    at += len(name)
    end = text.find(b"\x02", at)
    value = text[at:end] if end >= 0 else text[at:]
    digits = value[1:] if value[:1] in (b"-", b"+") else value
    if not digits.isdigit() or len(digits) > _DIGITS:
        field = name[1:-1].decode()
        shown = value[:40].decode("utf-8", "replace")
        raise refused(field, f"{shown!r} is no number", code=ErrorCode.ILLEGAL_DELIVERY_TIME)
    return int(value)
