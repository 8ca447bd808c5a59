r"""Message properties as RocketMQ stores them: ``key \x01 value \x02`` repeated, in UTF-8.

The properties may be in any order.
"""

from __future__ import annotations

from collections.abc import Mapping

UNIQ_KEY = "UNIQ_KEY"
TAGS = "TAGS"
KEYS = "KEYS"
TIMER_DELIVER_MS = "TIMER_DELIVER_MS"
SHARDING_KEY = "__SHARDINGKEY"
TRACE_CONTEXT = "TRACE_CONTEXT"
BORN_HOST = "__BORNHOST"
BORN_TIMESTAMP = "BORN_TIMESTAMP"
PRODUCER_GROUP = "PGROUP"
DELAY = "DELAY"
CANCELS = "TIMER_DEL_UNIQKEY"
RETRY_TOPIC = "RETRY_TOPIC"
ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
RECONSUME_TIME = "RECONSUME_TIME"
MAX_RECONSUME_TIMES = "MAX_RECONSUME_TIMES"
TRANSACTION = "TRAN_MSG"
TRANSACTION_ID = "__transactionId__"
CHECK_IMMUNITY = "CHECK_IMMUNITY_TIME_IN_SECONDS"
CHECK_TIMES = "TRANSACTION_CHECK_TIMES"
REPLY_TO_CLIENT = "REPLY_TO_CLIENT"
PUSH_REPLY_TIME = "PUSH_REPLY_TIME"
DLQ_ORIGIN_TOPIC = "DLQ_ORIGIN_TOPIC"
DLQ_ORIGIN_MESSAGE_ID = "DLQ_ORIGIN_MESSAGE_ID"
REGION = "MSG_REGION"
IN_REGION = f"{REGION}\x01DefaultRegion\x02".encode()
"""Stored with every message, as by RocketMQ: Java's 4.x consumers record no trace of a message
without a region.
"""

DELAYS = frozenset(
    ["DELAY", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", TIMER_DELIVER_MS, "__STARTDELIVERTIME"]
)
"""Names by which a message can be delayed (`delays`)."""

RESERVED = frozenset(
    [
        "TRACE_ON",
        "MSG_REGION",
        "KEYS",
        "TAGS",
        "WAIT",
        "DELAY",
        "RETRY_TOPIC",
        "REAL_TOPIC",
        "REAL_QID",
        "TRAN_MSG",
        "PGROUP",
        "MIN_OFFSET",
        "MAX_OFFSET",
        "BUYER_ID",
        "ORIGIN_MESSAGE_ID",
        "TRANSFER_FLAG",
        "CORRECTION_FLAG",
        "MQ2_FLAG",
        "RECONSUME_TIME",
        "UNIQ_KEY",
        "MAX_RECONSUME_TIMES",
        "CONSUME_START_TIME",
        "POP_CK",
        "POP_CK_OFFSET",
        "1ST_POP_TIME",
        "TRAN_PREPARED_QUEUE_OFFSET",
        "DUP_INFO",
        "EXTEND_UNIQ_INFO",
        "INSTANCE_ID",
        "CORRELATION_ID",
        "REPLY_TO_CLIENT",
        "TTL",
        "ARRIVE_TIME",
        "PUSH_REPLY_TIME",
        "CLUSTER",
        "MSG_TYPE",
        "INNER_MULTI_QUEUE_OFFSET",
        "TIMER_DELAY_MS",
        "TIMER_DELAY_SEC",
        "TIMER_DELIVER_MS",
        "TIMER_ENQUEUE_MS",
        "TIMER_DEQUEUE_MS",
        "TIMER_ROLL_TIMES",
        "TIMER_OUT_MS",
        CANCELS,
        "TIMER_DELAY_LEVEL",
        "__BORNHOST",
        "BORN_TIMESTAMP",
        "DLQ_ORIGIN_TOPIC",
        "DLQ_ORIGIN_MESSAGE_ID",
        "__CRC32#",
    ]
)
"""Names that official brokers do not let a user set."""

HIDDEN = RESERVED | frozenset(
    [
        "__SHARDINGKEY",
        "__STARTDELIVERTIME",
        "TRACE_CONTEXT",
        "__transactionId__",
        "TRANSACTION_CHECK_TIMES",
        "CHECK_IMMUNITY_TIME_IN_SECONDS",
        "INNER_NUM",
        "INNER_BASE",
        "INNER_MULTI_DISPATCH",
        "PROPERTY_FORWARD_QUEUE_ID",
        "REDIRECT",
        "__HOROLOG_MOVES",
    ]
)
"""Names that are left out where user properties are shown, and that users therefore may not set."""

ECHOED = frozenset([SHARDING_KEY, TRACE_CONTEXT, TRANSACTION_ID])
"""Hidden names that 5.x consumers still get among the user properties, as from RocketMQ.

So a client that sends on a received message sends them too.  They are dropped from the sent
message; a message group that differs from the message's own is refused.
"""

HIDDEN_PREFIX = "__RMQ.TRANSIENT."


def is_hidden(name: str) -> bool:
    """Return whether a property is not shown among the user's."""
    return name in HIDDEN or name.startswith(HIDDEN_PREFIX)


def encode(properties: Mapping[str, str]) -> bytes:
    """Encode properties; keys and values must have no separator (`message.encode` checks)."""
    return "".join([f"{key}\x01{value}\x02" for key, value in properties.items()]).encode()


def holds(stored: bytes, key: str, value: str) -> bool:
    """Return whether stored properties have this key and value; faster than `decode`."""
    piece = f"{key}\x01{value}\x02".encode()
    return stored.startswith(piece) or b"\x02" + piece in stored


def value_of(stored: bytes, key: str) -> str | None:
    """Return the value of a key in stored properties, faster than `decode`; None without it."""
    text = b"\x02" + stored
    mark = f"\x02{key}\x01".encode()
    at = text.rfind(mark)
    if at < 0:
        return None
    at += len(mark)
    end = text.find(b"\x02", at)
    return text[at : end if end >= 0 else len(text)].decode("utf-8", "replace")


def replaced(stored: bytes, key: str, value: str) -> bytes:
    """Return stored properties with another value of one key, and everything else unchanged."""
    mark = f"{key}\x01".encode()
    kept = [piece for piece in stored.split(b"\x02") if piece and not piece.startswith(mark)]
    return b"".join([piece + b"\x02" for piece in [*kept, mark + value.encode()]])


def without(stored: bytes, key: str) -> bytes:
    """Return stored properties without one key, and everything else unchanged."""
    mark = f"{key}\x01".encode()
    if not stored.startswith(mark) and b"\x02" + mark not in stored:
        return stored
    kept = [piece for piece in stored.split(b"\x02") if piece and not piece.startswith(mark)]
    return b"".join([piece + b"\x02" for piece in kept])


def decode(stored: bytes) -> dict[str, str]:
    """Decode stored properties; like RocketMQ, skip pieces that are empty or lack a separator."""
    found = {}
    for piece in stored.decode("utf-8", "replace").split("\x02"):
        key, separator, value = piece.partition("\x01")
        if separator:
            found[key] = value
    return found
