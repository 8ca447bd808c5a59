"""Bodies about the broker itself for admin tools, with the field names of Java's classes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from horolog.protocol.remoting.topic_bodies import encode


class Unit(NamedTuple):
    """One message of a queue, as its consume queue entry says."""

    position: int
    size: int
    tags_code: int
    matches: bool  # whether the subscription of the request matches it


def properties(table: Mapping[str, object]) -> bytes:
    """Encode a table as text of Java's `Properties`, one line an entry."""
    return "".join(f"{key}={_escaped(str(value))}\n" for key, value in table.items()).encode()


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\r", "\\r").replace("\n", "\\n")


def kv_table(table: Mapping[str, object]) -> bytes:
    """Encode a KVTable: all values are text."""
    return encode({"table": {key: str(value) for key, value in table.items()}})


def stats_data(minute: Mapping[str, Any], hour: Mapping[str, Any], day: Mapping[str, Any]) -> bytes:
    """Encode a BrokerStatsData."""
    return encode({"statsDay": day, "statsHour": hour, "statsMinute": minute})


def stats_item(total: int, a_second: float) -> dict[str, Any]:
    """Build a BrokerStatsItem; `avgpt`, bytes per message in Java, is not kept and always 0."""
    return {"avgpt": 0.0, "sum": total, "tps": a_second}


def queue_units(
    units: Iterable[Unit], min_offset: int, max_offset: int, subscription: Mapping[str, Any] | None
) -> bytes:
    """Encode a QueryConsumeQueueResponseBody."""
    return encode(
        {
            "maxQueueIndex": max_offset,
            "minQueueIndex": min_offset,
            "queueData": [
                {
                    "eval": unit.matches,
                    "physicOffset": unit.position,
                    "physicSize": unit.size,
                    "tagsCode": unit.tags_code,
                }
                for unit in units
            ],
            "subscriptionData": subscription,
        }
    )
