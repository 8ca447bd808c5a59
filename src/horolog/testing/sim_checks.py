"""Checkers of the promises, independent of the core: they read only what clients saw, and bytes of the log.

`HandOverWatch` reads every frame that a step appends; `History` knows what the clients did and saw.  A broken
promise raises `PromiseBroken`, which names it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from horolog.log.frame import HEADER_BYTES, parse
from horolog.log.segment import Write
from horolog.protocol.commands import Recalled, RecallStatus, Sent

_SIZE_KIND = struct.Struct("<IB")
_DUE = struct.Struct("<q")
_HANDED = 4


class PromiseBroken(AssertionError):
    """A promise P1 … P11 does not hold; the text says which and how."""


def _broken(promise: str, why: str) -> PromiseBroken:
    return PromiseBroken(f"{promise}: {why}")


class HandOverWatch:
    """P1 at the source: no message is appended as handed over before its due time by the clock of that step."""

    def new_life(self, end: int) -> None:
        """A process has begun at this log end."""
        self.end = end

    def see(self, writes: Sequence[Write], wall_ms: int) -> None:
        """The writes of one step."""
        for write in writes:
            header = parse(bytes(write.content))
            if header is not None or len(write.content) == HEADER_BYTES:
                continue
            content = bytes(write.content)
            at = 0
            while at + 16 <= len(content):
                size, kind = _SIZE_KIND.unpack_from(content, at)
                due_ms = _DUE.unpack_from(content, at + 8)[0]
                if kind == _HANDED and due_ms > wall_ms:
                    raise _broken("P1", f"due {due_ms} handed over at {wall_ms}")
                at += size


class History:
    """What clients did and saw, by message id (every send attempt has its own)."""

    def __init__(self) -> None:
        self.sends: dict[str, dict[str, Any]] = {}
        self.seen: dict[tuple[str, int, int], str] = {}
        self.places: dict[str, tuple[str, int, int]] = {}
        self.acked: set[tuple[str, str, int, int]] = set()

    def sent(self, message_id: str, topic: str, due_ms: int, wall_ms: int) -> None:
        """A send is under way; nobody knows yet what becomes of it."""
        self.sends[message_id] = {
            "topic": topic,
            "due_ms": due_ms,
            "wall_ms": wall_ms,
            "origin": None,
            "stored": None,
            "recall": [],
        }

    def send_answered(self, message_ids: list[str], result: Sent | Exception) -> None:
        """The answer to a send has been released."""
        for i, message_id in enumerate(message_ids):
            row = self.sends[message_id]
            if isinstance(result, Exception) or i in result.refused:
                row["stored"] = False
            else:
                row["stored"], row["origin"] = True, result.origins[i]

    def recall_answered(self, message_id: str, result: Recalled, asked_seen: bool) -> None:
        """The answer to a recall; `asked_seen`: the message had been seen before the recall was sent."""
        row = self.sends.get(message_id)
        if row is None:
            if result.status is not RecallStatus.NOT_FOUND:
                raise _broken("P8", f"{result.status} for {message_id}, which nobody sent")
            return
        row["recall"].append((result.status, asked_seen))
        if result.status is RecallStatus.CANCELLED and message_id in self.places:
            raise _broken("P8", f"{message_id} was seen, then CANCELLED")

    def received(
        self, group: str, place: tuple[str, int, int], message_id: str, store_ms: int, wall_ms: int
    ) -> None:
        """A consumer was given a message at (topic, queue, offset)."""
        row = self.sends.get(message_id)
        if row is None:
            raise _broken("P2", f"{message_id} at {place} was never sent")
        before = self.seen.setdefault(place, message_id)
        if before != message_id:
            raise _broken("P3", f"{place} held {before}, now {message_id}")
        first = self.places.setdefault(message_id, place)
        if first != place:
            raise _broken("P3", f"{message_id} was handed over at {first} and at {place}")
        if row["stored"] is False:
            raise _broken("P11", f"{message_id} was refused and then delivered")
        if row["due_ms"] > max(store_ms, 0):
            raise _broken("P1", f"{message_id} due {row['due_ms']} stored as visible at {store_ms}")
        if (group, *place) in self.acked:
            raise _broken("P3", f"{place} was acknowledged by {group} and is given out again")
        for status, seen_before in row["recall"]:
            if status is RecallStatus.CANCELLED:
                raise _broken("P8", f"{message_id} was CANCELLED and is delivered")
            if status is RecallStatus.NOT_FOUND and not seen_before and row["due_ms"]:
                raise _broken("P8", f"{message_id} was NOT_FOUND and is delivered later")
        del wall_ms

    def final(self, delivered: dict[tuple[str, int, int], str], lost_allowed: bool) -> None:
        """Everything was consumed from offset 0 by a new group at the end; compare with all that was said."""
        ids = set(delivered.values())
        for place, message_id in self.seen.items():
            if delivered.get(place) != message_id and not lost_allowed:
                raise _broken("P2", f"{place} held {message_id}, at the end {delivered.get(place)}")
        for message_id, row in self.sends.items():
            statuses = [status for status, _ in row["recall"]]
            cancelled = RecallStatus.CANCELLED in statuses
            if row["stored"] and not cancelled and message_id not in ids:
                undecided = row.get("recall_unknown", False)
                if not undecided and not lost_allowed:
                    raise _broken("P2", f"{message_id} was acknowledged and is not delivered")
            if cancelled and message_id in ids and not lost_allowed:
                raise _broken("P8", f"{message_id} was CANCELLED and is delivered")
            delivered_before = RecallStatus.ALREADY_DELIVERED in statuses
            if delivered_before and message_id not in ids and not lost_allowed:
                raise _broken("P8", f"{message_id} was ALREADY_DELIVERED and is not delivered")
        self._order(delivered)

    def _order(self, delivered: dict[tuple[str, int, int], str]) -> None:
        newest: dict[tuple[str, int, int], tuple[int, str]] = {}
        for topic, queue, offset in sorted(delivered):
            message_id = delivered[(topic, queue, offset)]
            row = self.sends[message_id]
            if not row["origin"] or row["due_ms"] <= row["wall_ms"]:
                continue  # its place in the log is not known, or it was due at once
            key = (topic, queue, row["due_ms"])
            before = newest.get(key)
            if before is not None and row["origin"] < before[0]:
                raise _broken("P7", f"{message_id} came after {before[1]}, which arrived later")
            newest[key] = (row["origin"], message_id)
