"""Pauses of a consumer group before it retries a message: RocketMQ's GroupRetryPolicy, in JSON.

    {"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": [1000, 5000, 10000]}}
    {"type": "EXPONENTIAL", "exponentialRetryPolicy": {"initial": 5000, "max": 7200000, "multiplier": 2}}

All times are in ms.  A type without its table is the default: pauses of RocketMQ's delay levels.

Consumers over gRPC receive the list of pauses and start with the first one: after the n-th failure
they wait for the n-th pause.  Where the broker decides, a list starts with the third pause, as in
RocketMQ's broker, because delay levels did: after the n-th failure comes the pause n + 2, or the
last one.  An exponential policy is the same for both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from horolog.errors import HorologError, refused
from horolog.limits import INVISIBLE_MAX_MS, RETRY_MULTIPLIER_MAX, RETRY_PAUSES_MAX

FIELD = "groupRetryPolicy"
_S = 1_000
_SKIPPED = 2  # pauses that only clients use
_EXPONENT_MAX = 32


@dataclass(slots=True, frozen=True)
class Pauses:
    """A list of pauses; the last one is used for all further attempts."""

    next_ms: tuple[int, ...]

    def after(self, failures: int) -> int:
        """Return the pause that the broker makes after so many failures, at least 1."""
        assert failures >= 1, failures
        return self.next_ms[min(failures - 1 + _SKIPPED, len(self.next_ms) - 1)]

    def listed(self, attempts: int) -> list[int]:
        """Return the list that clients receive: all pauses, whatever the count of attempts."""
        del attempts
        return list(self.next_ms)


@dataclass(slots=True, frozen=True)
class Exponential:
    """An initial pause, multiplied for each further attempt, up to a maximum."""

    initial_ms: int = 5 * _S
    max_ms: int = 7_200 * _S
    multiplier: int = 2

    def after(self, failures: int) -> int:
        """Return the pause after so many failures, at least 1."""
        assert failures >= 1, failures
        grown = self.initial_ms * int(self.multiplier ** min(failures - 1, _EXPONENT_MAX))
        return min(self.max_ms, grown)

    def listed(self, attempts: int) -> list[int]:
        """Return the pauses as a list up to the first maximum, for clients that know lists only."""
        found: list[int] = []
        for failures in range(1, min(max(attempts, 1), RETRY_PAUSES_MAX) + 1):
            found.append(self.after(failures))
            if found[-1] == self.max_ms:
                break
        return found


Backoff = Pauses | Exponential
BY_LEVELS = Pauses(
    tuple(
        s * _S
        for s in (
            *(1, 5, 10, 30, 60, 120, 180, 240, 300),
            *(360, 420, 480, 540, 600, 1_200, 1_800, 3_600, 7_200),
        )
    )
)
"""The default: the pauses of RocketMQ's default delay levels."""


def backoff_of(policy: object) -> Backoff | None:
    """Parse a GroupRetryPolicy; None for the default.  BAD_REQUEST names what is wrong."""
    if policy is None:
        return None
    if not isinstance(policy, Mapping):
        raise refused(FIELD, "an object with a type is needed")
    match policy.get("type", "CUSTOMIZED"):
        case "CUSTOMIZED":
            table = _table(policy, "customizedRetryPolicy")
            return None if table is None else _pauses(table)
        case "EXPONENTIAL":
            table = _table(policy, "exponentialRetryPolicy")
            return None if table is None else _exponential(table)
        case other:
            raise refused(FIELD, f"type {other!r:.40}; CUSTOMIZED or EXPONENTIAL is needed")


def _table(policy: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    table = policy.get(name)
    if table is not None and not isinstance(table, Mapping):
        raise refused(f"{FIELD}.{name}", "an object is needed")
    return table


def _pauses(table: Mapping[str, Any]) -> Pauses:
    name = f"{FIELD}.customizedRetryPolicy.next"
    given = table.get("next", list(BY_LEVELS.next_ms))
    if not isinstance(given, list) or not 1 <= len(given) <= RETRY_PAUSES_MAX:
        raise refused(
            name,
            f"a list of 1 to {RETRY_PAUSES_MAX} pauses in milliseconds is needed",
            f"1 to {RETRY_PAUSES_MAX} pauses",
        )
    return Pauses(tuple(_number(each, name, 0, INVISIBLE_MAX_MS) for each in given))


def _exponential(table: Mapping[str, Any]) -> Exponential:
    name, plain = f"{FIELD}.exponentialRetryPolicy", Exponential()
    found = Exponential(
        _number(table.get("initial", plain.initial_ms), f"{name}.initial", 1, INVISIBLE_MAX_MS),
        _number(table.get("max", plain.max_ms), f"{name}.max", 1, INVISIBLE_MAX_MS),
        _number(
            table.get("multiplier", plain.multiplier), f"{name}.multiplier", 1, RETRY_MULTIPLIER_MAX
        ),
    )
    if found.initial_ms > found.max_ms:
        raise refused(
            f"{name}.initial", f"{found.initial_ms} ms is more than max, {found.max_ms} ms"
        )
    return found


def _number(given: object, name: str, lowest: int, highest: int) -> int:
    if isinstance(given, float) and given.is_integer():
        given = int(given)
    if not isinstance(given, int) or isinstance(given, bool) or not lowest <= given <= highest:
        limit = f"{lowest} to {highest}"
        raise refused(name, f"{given!r:.40}; {limit} are allowed", limit)
    return given


def policy_of(backoff: Backoff | None) -> dict[str, Any]:
    """Return a back-off as a GroupRetryPolicy, which `backoff_of` parses."""
    match backoff:
        case None:
            return {"type": "CUSTOMIZED"}
        case Pauses(next_ms):
            return {"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": list(next_ms)}}
        case Exponential(initial_ms, max_ms, multiplier):
            table = {"initial": initial_ms, "max": max_ms, "multiplier": multiplier}
            return {"type": "EXPONENTIAL", "exponentialRetryPolicy": table}


def stored_backoff(policy: object) -> Backoff | None:
    """Parse the policy in a record of a group; None if it is bad: older versions did not check."""
    try:
        return backoff_of(policy)
    except HorologError:
        return None
