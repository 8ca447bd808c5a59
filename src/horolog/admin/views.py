"""Conversion of results of the core to JSON objects.

Plain names, units last, a readable time beside each instant.
"""

from __future__ import annotations

import base64
from dataclasses import asdict
from typing import Any

from horolog.admin.message_shapes import (
    KnownMessage,
    LeasedMessage,
    Payload,
    PendingRow,
    StoredMessage,
)
from horolog.admin.message_shapes import Recalled as RecalledShape
from horolog.admin.shapes import Clock as ClockShape
from horolog.admin.shapes import GroupProgress, Topic
from horolog.admin.status import error_body
from horolog.backup.status import BackupView
from horolog.clock import Clock
from horolog.protocol.commands import (
    BrokerView,
    Delivered,
    FoundMessage,
    GroupQueueView,
    PendingMessage,
    Recalled,
    TopicView,
)
from horolog.protocol.rocketmq import properties as names
from horolog.protocol.rocketmq.layout import COMPRESSED, decode
from horolog.units import TIME_MAX_MS, format_time_ms, parse_unsigned


def iso(epoch_ms: int) -> str | None:
    """Return an instant as text; None when there is none (0), or it is beyond what text can say."""
    return format_time_ms(epoch_ms) if 0 < epoch_ms <= TIME_MAX_MS else None


def payload_view(body: bytes, *, compressed: bool) -> Payload:
    """Return `body` when the payload is text, else `body_base64`: exactly one of them."""
    if not compressed:
        try:
            return {"body": body.decode()}
        except UnicodeDecodeError:
            pass
    return {"body_base64": base64.b64encode(body).decode()}


def message_view(layout: bytes, due_ms: int = 0) -> StoredMessage:
    """Return the fields of a stored message.

    due_ms  of its record, 0 if it was never scheduled: then its own due time, which had passed
    """
    stored = decode(layout)
    found = names.decode(stored.properties)
    due_ms = due_ms or parse_unsigned(found.get(names.TIMER_DELIVER_MS, "")) or 0
    return {
        "message_id": found.get(names.UNIQ_KEY, ""),
        "topic": stored.topic,
        "tag": found.get(names.TAGS, ""),
        "keys": found.get(names.KEYS, "").split(),
        "message_group": found.get(names.SHARDING_KEY, ""),
        "properties": {name: text for name, text in found.items() if name not in names.HIDDEN},
        "born_ms": stored.born_ms,
        "deliver_at_ms": due_ms,
        "deliver_at": iso(due_ms),
        "store_ms": stored.store_ms,
        **payload_view(stored.body, compressed=bool(stored.sys_flag & COMPRESSED)),
    }


def delivered_view(delivered: Delivered) -> LeasedMessage:
    """Return a leased message: its fields, its place, and the handle that acks it."""
    return {
        **message_view(delivered.layout, delivered.due_ms),
        "queue_id": delivered.queue_id,
        "queue_offset": delivered.queue_offset,
        "attempt": delivered.attempt,
        "receipt_handle": delivered.receipt_handle,
    }


def pending_message_view(pending: PendingMessage, recall_handle: str) -> PendingRow:
    """Return a scheduled message for a list: all but its payload, which may be large."""
    view = message_view(pending.layout)
    return {
        "deliver_at_ms": pending.due_ms,
        "deliver_at": iso(pending.due_ms),
        "topic": pending.topic,
        "message_id": pending.message_id,
        "tag": view["tag"],
        "keys": view["keys"],
        "size_bytes": pending.size,
        "origin": pending.origin,
        "recall_handle": recall_handle,
    }


def found_view(found: FoundMessage, recall_handle: str) -> KnownMessage:
    """Return a message that was looked up: its fields, its place, and its handle while it waits."""
    return {
        "state": found.state.value,
        **message_view(found.layout),
        "deliver_at_ms": found.due_ms,
        "deliver_at": iso(found.due_ms),
        "origin": found.origin,
        "queue_id": found.queue_id,
        "queue_offset": found.queue_offset,
        "store_ms": found.store_ms,
        "recall_handle": recall_handle,
    }


def count_view(row: tuple[int | str, int]) -> dict[str, Any]:
    """Return the count of a day, hour or second (by its start), or of a topic (by its name)."""
    of, count = row
    if isinstance(of, str):
        return {"topic": of, "count": count}
    return {"start_ms": of, "start": iso(of), "count": count}


def recalled_view(recalled: Recalled) -> RecalledShape:
    """Return the result of one recall."""
    return {
        "status": recalled.status.value,
        "detail": recalled.detail,
        "message_id": recalled.message_id,
        "deliver_at_ms": recalled.due_ms,
        "deliver_at": iso(recalled.due_ms),
    }


def topic_view(topic: TopicView) -> Topic:
    """Return the fields of a topic."""
    return {
        "name": topic.name,
        "type": topic.type.value,
        "queues": topic.queues,
        "queue_offsets": topic.queue_offsets,
        "pending": topic.pending,
        "min_offsets": topic.min_offsets,
        "perm": topic.settings.perm,
        "late": topic.settings.late,
        "late_after_ms": topic.settings.late_after_ms,
        "multi_tag": topic.settings.multi_tag,
        "order": topic.settings.order,
        "read_queues": topic.read_queues,
        "write_queues": topic.write_queues,
        "open_transactions": topic.open_transactions,
    }


def group_view(group: str, topic: str, queues: list[GroupQueueView]) -> GroupProgress:
    """Return the progress of a group in a topic."""
    return {
        "group": group,
        "topic": topic,
        "waiting": sum(queue.waiting for queue in queues),
        "leased": sum(queue.leased for queue in queues),
        "queues": queues,
    }


def broker_view(view: BrokerView, version: str, broker_name: str) -> dict[str, Any]:
    """Return the state of the whole broker."""
    return {"version": version, "broker_name": broker_name, **asdict(view)}


def backup_view(view: BackupView) -> dict[str, Any]:
    """Return a backup: its progress, or how it ended."""
    error = None if view.error is None else error_body(view.error)["error"]
    return {
        **view._asdict(),
        "state": view.state.value,
        "made": iso(view.made_ms),
        "error": error,
    }


def clock_view(clock: Clock) -> ClockShape:
    """Return the broker's clock."""
    wall_ms = clock.wall_ms()
    return {
        "kind": "simulated" if clock.simulated else "system",
        "wall_ms": wall_ms,
        "wall": iso(wall_ms),
    }
