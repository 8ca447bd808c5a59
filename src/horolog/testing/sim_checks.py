"""Checkers of the promises, independent of the core: they read only what clients saw, and bytes of the log.

`HandOverWatch` reads every frame that a step appends; `History` knows what the clients did and saw.  A broken
promise raises `PromiseBroken`, which names it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from horolog.log.control_records import IS_EXPIRED
from horolog.log.controls import read_control
from horolog.log.frame import HEADER_BYTES, parse
from horolog.log.record import FLAGS_AT, Kind
from horolog.log.segment import Write
from horolog.protocol.commands import (
    Recalled,
    RecalledMany,
    RecallMany,
    RecallStatus,
    Reschedule,
    Rescheduled,
    RescheduleStatus,
    Sent,
)

_SIZE_KIND = struct.Struct("<IB")
_DUE = struct.Struct("<q")
_KEY = struct.Struct("<Q")
_KEY_AT = 24
_VISIBLE = frozenset({1, 4})  # MESSAGE, HANDED
_MESSAGES = frozenset({1, 2, 4})  # and SCHEDULED


class PromiseBroken(AssertionError):
    """A promise P1 … P11 does not hold; the text says which and how."""


def _broken(promise: str, why: str) -> PromiseBroken:
    return PromiseBroken(f"{promise}: {why}")


def _is_meant(command: RecallMany, row: dict[str, Any], dues: set[int]) -> bool:
    return (
        row["topic"] == command.topic
        and (not command.tag or row["tag"] == command.tag)
        and any(command.from_ms <= due_ms < command.to_ms for due_ms in dues)
    )


class Frame(NamedTuple):
    """One frame of the log as it was written: log positions, and key hash → position of its messages."""

    base: int
    end: int
    durable: int
    keys: dict[int, int]


class HandOverWatch:
    """P1 at the source: no message is appended as visible before its due time by the clock of that step.

    `positions` tells where the log has what was made visible, by key hash: what retention may have dropped.
    `frames` are all that were written, in their order.
    """

    def __init__(self) -> None:
        self.positions: dict[int, int] = {}
        self.frames: list[Frame] = []
        self.expired: dict[tuple[int, int], int] = {}  # origin of what was too late → its record

    def new_life(self, end: int) -> None:
        """A process has begun; `end` is where the log of those before it ends now."""
        self.positions = {key: at for key, at in self.positions.items() if at < end}
        self.expired = {origin: at for origin, at in self.expired.items() if at < end}
        while self.frames and self.frames[-1].base >= end:
            self.frames.pop()

    def see(self, writes: Sequence[Write], wall_ms: int) -> None:
        """The writes of one step."""
        for write in writes:
            header = parse(bytes(write.content))
            if header is not None:
                self.frames.append(Frame(header.base, header.end, header.durable, {}))
            elif self.frames and write.position == self.frames[-1].base + HEADER_BYTES:
                self._see_body(write.position, bytes(write.content), wall_ms)

    def _see_body(self, position: int, content: bytes, wall_ms: int) -> None:
        keys = self.frames[-1].keys
        at = 0
        while at + 16 <= len(content):
            size, kind = _SIZE_KIND.unpack_from(content, at)
            due_ms = _DUE.unpack_from(content, at + 8)[0]
            if kind == Kind.RECALL_MANY and content[at + FLAGS_AT] & IS_EXPIRED:
                ended = read_control(content, at, position + at).ended()
                assert ended is not None
                origins = ended.origins[["position", "row"]].tolist()
                self._see_expired(position + at, origins)
            if kind in _VISIBLE and due_ms > wall_ms:
                raise _broken("P1", f"due {due_ms} handed over at {wall_ms}")
            if kind in _MESSAGES and size >= _KEY_AT + _KEY.size:
                key = _KEY.unpack_from(content, at + _KEY_AT)[0]
                keys[key] = position + at
                if kind in _VISIBLE:
                    self.positions[key] = position + at
            at += size

    def _see_expired(self, position: int, origins: list[tuple[int, int]]) -> None:
        for origin in origins:
            if origin in self.expired:
                raise _broken("P3", f"the message at {origin} was too late twice")
            self.expired[origin] = position


class History:
    """What clients did and saw, by message id (every message has its own; a retry sends the same one again).

    A row of `sends`:

    due_ms, origin  of the newest copy that is known; moves that nobody was told of are in `dues` too
    dues            all due times that a copy may have
    left            due times from which it was moved, as answered
    moving          reschedules that are under way, or whose answer was lost
    moves           reschedules that were asked for
    recall          (due time, status, whether it had been seen when the recall was sent), as answered
    attempts        how often it was sent; `refused`: how many of these were refused
    first           origin that its sends were answered with
    recall_unknown  it may have been recalled: the answer was lost, or a bulk recall may have meant it
    """

    def __init__(self) -> None:
        self.latest_ms = 0  # the latest time that the wall clock has shown
        self.sends: dict[str, dict[str, Any]] = {}
        self.seen: dict[tuple[str, int, int], str] = {}
        self.places: dict[str, tuple[str, int, int]] = {}
        self.acked: set[tuple[str, str, int, int]] = set()
        self.excused: set[str] = (
            set()
        )  # what bit rot may have taken: it may be missing, or not be found
        self.lost_keys = (
            False  # rot may have taken ways to find a message: NOT_FOUND says nothing any more
        )

    def sent(
        self, message_id: str, topic: str, due_ms: int, wall_ms: int, tag: str | None = None
    ) -> None:
        """A send is under way; nobody knows yet what becomes of it."""
        self.sends[message_id] = {
            "topic": topic,
            "tag": tag or "",
            "due_ms": due_ms,
            "dues": {due_ms},
            "left": set(),
            "moving": 0,
            "moves": 0,
            "by_request": False,
            "wall_ms": wall_ms,
            "origin": None,
            "stored": None,
            "attempts": 1,
            "refused": 0,
            "first": None,
            "recall": [],
            "recall_unknown": False,
        }

    def sent_again(self, message_id: str, wall_ms: int) -> None:
        """A retry is under way."""
        row = self.sends[message_id]
        row["attempts"] += 1
        if not row["stored"]:
            row["stored"] = None
            row["wall_ms"] = max(row["wall_ms"], wall_ms)

    def send_answered(self, message_ids: list[str], result: Sent | Exception) -> None:
        """The answer to a send has been released."""
        for i, message_id in enumerate(message_ids):
            row = self.sends[message_id]
            if isinstance(result, Exception) or i in result.refused:
                row["refused"] += 1
                if row["refused"] == row["attempts"]:
                    row["stored"] = False
                continue
            if row["first"] not in (None, result.origins[i]):
                text = f"{row['first']}, a retry with {result.origins[i]}"
                raise _broken("P3", f"{message_id} was answered with {text}")
            row["first"] = result.origins[i]
            if not row["stored"]:
                row["stored"], row["origin"] = True, result.origins[i]

    def recall_answered(self, message_id: str, result: Recalled, asked_seen: bool) -> None:
        """The answer to a recall; `asked_seen`: the message had been seen before the recall was sent."""
        row = self.sends.get(message_id)
        if row is None:
            if result.status is not RecallStatus.NOT_FOUND:
                raise _broken("P8", f"{result.status} for {message_id}, which nobody sent")
            return
        row["recall"].append((result.due_ms, result.status, asked_seen))
        if result.status is RecallStatus.CANCELLED and message_id in self.places:
            raise _broken("P8", f"{message_id} was seen, then CANCELLED")

    # --- reschedules and bulk recalls -----------------------------------------------------------

    def reschedule_asked(self, message_id: str, new_due_ms: int | None) -> None:
        """A reschedule is under way; None: to be handed over now, by the clock of whoever decides it."""
        row = self.sends[message_id]
        row["moving"] += 1
        row["moves"] += 1
        if new_due_ms is None:
            row["by_request"] = True
        else:
            row["dues"].add(new_due_ms)

    def reschedule_answered(
        self,
        command: Reschedule,
        result: Rescheduled | Exception,
        asked_seen: bool,
    ) -> None:
        """The answer to a reschedule."""
        row = self.sends[command.message_id]
        row["moving"] -= 1
        if isinstance(result, Exception):
            return
        if result.status in (RescheduleStatus.RESCHEDULED, RescheduleStatus.HANDED_OVER):
            if command.now != (result.status is RescheduleStatus.HANDED_OVER):
                raise _broken("P8", f"{command} was answered {result.status}")
            if command.now and result.queue_offset < 0:
                raise _broken("P8", f"{command.message_id} was HANDED_OVER, and is not visible")
            if asked_seen:
                raise _broken("P8", f"{command.message_id} was seen, then RESCHEDULED")
            row["left"].add(command.due_ms)
            row["due_ms"] = result.due_ms
            row["origin"] = None if result.queue_offset >= 0 else result.origin
        else:
            status = RecallStatus(result.status.value)
            row["recall"].append((command.due_ms, status, asked_seen))

    def certain(self, command: RecallMany) -> dict[str, int]:
        """Messages that wait without any doubt and that a bulk recall means, with their numbers of moves."""
        return {
            message_id: row["moves"]
            for message_id, row in self.sends.items()
            if row["stored"]
            and message_id not in self.excused
            and not row["moving"]
            and row["due_ms"] > self.latest_ms
            and _is_meant(command, row, {row["due_ms"]})
        }

    def bulk_lost(self, command: RecallMany) -> None:
        """Nobody knows what became of a bulk recall."""
        if not command.dry_run:
            for row in self.sends.values():
                if _is_meant(command, row, row["dues"]):
                    row["recall_unknown"] = True

    def bulk_answered(
        self, command: RecallMany, result: RecalledMany | Exception, before: dict[str, int]
    ) -> None:
        """The answer to a bulk recall; `before`: what was certain when it was asked for."""
        self.bulk_lost(command)
        if isinstance(result, Exception):
            return
        after = self.certain(command)
        for message_id in [name for name, moves in before.items() if after.get(name) == moves]:
            row = self.sends[message_id]
            if not command.dry_run:
                row["recall"].append((row["due_ms"], RecallStatus.CANCELLED, False))
            if message_id in self.places:
                raise _broken("P1", f"{message_id} was seen before it was due")
        if result.cancelled != (0 if command.dry_run else result.matched):
            raise _broken("P8", f"{result} of {command}")

    def received(
        self, group: str, place: tuple[str, int, int], message_id: str, store_ms: int, due_ms: int
    ) -> None:
        """A consumer was given a message at (topic, queue, offset); due as its properties say."""
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
        if due_ms > max(store_ms, 0):
            raise _broken("P1", f"{message_id} due {due_ms} stored as visible at {store_ms}")
        if due_ms not in row["dues"] and not row["by_request"]:
            raise _broken("P2", f"{message_id} is due {due_ms}, which nobody asked for")
        if due_ms in row["left"]:
            raise _broken("P8", f"{message_id} was RESCHEDULED, and is delivered as due {due_ms}")
        if (group, *place) in self.acked:
            raise _broken("P3", f"{place} was acknowledged by {group} and is given out again")
        for of_due_ms, status, seen_before in row["recall"]:
            if status is RecallStatus.CANCELLED:
                raise _broken("P8", f"{message_id} was CANCELLED and is delivered")
            was_absent = status is RecallStatus.NOT_FOUND and of_due_ms == due_ms
            was_absent = was_absent and not (self.lost_keys or message_id in self.excused)
            if was_absent and not seen_before and due_ms:
                raise _broken("P8", f"{message_id} was NOT_FOUND and is delivered later")

    def intact(self, message_id: str, body: bytes) -> None:
        """Bodies of simulated messages are zeros: anything else was never sent."""
        if body.strip(b"\0"):
            raise _broken("P2", f"{message_id} came with a body that nobody sent")

    def final(
        self,
        delivered: dict[tuple[str, int, int], str],
        lost_allowed: bool,
        dropped: Callable[[str, str], bool] = lambda _topic, _message_id: False,
    ) -> None:
        """Everything still kept was consumed by a new group at the end; compare with all that was said.

        dropped  whether retention has dropped what was made visible of that topic and message id
        """
        ids = set(delivered.values())
        for place, message_id in self.seen.items():
            gone = place not in delivered and (
                message_id in self.excused or dropped(place[0], message_id)
            )
            if delivered.get(place) != message_id and not (lost_allowed or gone):
                raise _broken("P2", f"{place} held {message_id}, at the end {delivered.get(place)}")
        for message_id, row in self.sends.items():
            statuses = [status for _, status, _ in row["recall"]]
            cancelled = RecallStatus.CANCELLED in statuses
            may_lack = lost_allowed or message_id in ids or message_id in self.excused
            may_lack = may_lack or dropped(row["topic"], message_id)
            is_lost = row["stored"] and not cancelled and not may_lack
            if is_lost and not row["recall_unknown"]:
                raise _broken("P2", f"{message_id} was acknowledged and is not delivered")
            if cancelled and message_id in ids and not lost_allowed:
                raise _broken("P8", f"{message_id} was CANCELLED and is delivered")
            if RecallStatus.ALREADY_DELIVERED in statuses and not may_lack:
                raise _broken("P8", f"{message_id} was ALREADY_DELIVERED and is not delivered")
        self._order(delivered)

    def _order(self, delivered: dict[tuple[str, int, int], str]) -> None:
        newest: dict[tuple[str, int, int], tuple[int, str]] = {}
        for topic, queue, offset in sorted(delivered):
            message_id = delivered[(topic, queue, offset)]
            row = self.sends[message_id]
            if not row["origin"] or row["moving"] or row["due_ms"] <= row["wall_ms"]:
                continue  # its place in the log is not known, or it was due at once
            if message_id in self.excused:
                continue  # it may have been repaired later
            key = (topic, queue, row["due_ms"])
            before = newest.get(key)
            if before is not None and row["origin"] < before[0]:
                raise _broken("P7", f"{message_id} came after {before[1]}, which arrived later")
            newest[key] = (row["origin"], message_id)
