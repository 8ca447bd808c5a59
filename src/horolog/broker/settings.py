"""The part of the configuration that the core needs."""

from __future__ import annotations

from typing import NamedTuple

from horolog.delay.far.compaction import FarSettings
from horolog.limits import (
    CONTROL_RESERVE_BYTES,
    COUNTED_TOPICS,
    DEDUP_MS,
    MAX_DELAY_MS,
    RETENTION_MS,
    TRANSACTION_CHECK_MAX,
    TRANSACTION_CHECK_MS,
    TRANSACTION_TIMEOUT_MS,
    TURN_HAND_OVER_BYTES,
)
from horolog.protocol.rocketmq.delays import DEFAULT_LEVELS, Levels, parse_levels
from horolog.protocol.schedules import Calendar, Fixed


class TransactionSettings(NamedTuple):
    """When producers are asked for the outcome of their transactions, and how often."""

    timeout_ms: int = TRANSACTION_TIMEOUT_MS  # until the first check
    check_ms: int = TRANSACTION_CHECK_MS  # between two checks
    check_max: int = TRANSACTION_CHECK_MAX  # checks, after which the transaction is given up


class ShardSettings(NamedTuple):
    """The part of the configuration that the core needs; a replay reads none of it."""

    broker_name: str = "broker-a"
    store_host: bytes = b"\x7f\x00\x00\x01\x00\x00\x00\x00"  # advertised IPv4 and port
    max_delay_ms: int = MAX_DELAY_MS
    turn_bytes: int = TURN_HAND_OVER_BYTES  # of one hand-over frame
    reserve_bytes: int = CONTROL_RESERVE_BYTES  # of free space, for all that is not a send
    far: FarSettings = FarSettings()
    retention_ms: int = RETENTION_MS  # of a log segment, after its newest frame
    retention_bytes: int = 0  # of the log; 0: no bound by size
    dedup_ms: int = DEDUP_MS  # a message id sent again within this time is one send; 0: never
    levels: Levels = parse_levels(DEFAULT_LEVELS)  # delay levels: pauses between attempts
    transactions: TransactionSettings = TransactionSettings()
    calendar: Calendar = Fixed()  # works out when recurring schedules fire
    counted_topics: int = COUNTED_TOPICS  # topics with counters of their own, for metrics
