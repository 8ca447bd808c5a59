"""Bounds of a lease's duration, in RocketMQ's words, which clients and test suites compare."""

from __future__ import annotations

from horolog.errors import ErrorCode, refused
from horolog.limits import INVISIBLE_MAX_MS, REDELIVERY_MIN_MS


def check_invisible(invisible_ms: int, least_ms: int) -> int:
    """Return the duration if it is within bounds; raise ILLEGAL_INVISIBLE_TIME otherwise."""
    if least_ms <= invisible_ms <= INVISIBLE_MAX_MS:
        return invisible_ms
    why = (
        f"the invisibleTime is too small. min is {least_ms}"
        if invisible_ms < least_ms
        else f"the invisibleTime is too large. max is {INVISIBLE_MAX_MS}"
    )
    raise refused(
        "invisible_duration",
        f"{invisible_ms} ms: {why} ms",
        f"{least_ms} to {INVISIBLE_MAX_MS} ms",
        code=ErrorCode.ILLEGAL_INVISIBLE_TIME,
    )


def lease_duration(invisible_ms: int) -> int:
    """Raise a duration of (nearly) zero to a short pause, so that a broken client does not spin."""
    return max(invisible_ms, REDELIVERY_MIN_MS)
