"""The checker of the promises that knows what clients did and saw; it does not ask the core.

`sim_watch`, which reads the log, does not either. A broken promise raises `PromiseBroken`, which
names it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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


class PromiseBroken(AssertionError):
    """A promise P1 … P11 does not hold; the text says which and how."""


def broken(promise: str, why: str) -> PromiseBroken:
    """Build the error for a promise that did not hold."""
    return PromiseBroken(f"{promise}: {why}")


def _is_meant(command: RecallMany, row: dict[str, Any], dues: set[int]) -> bool:
    return (
        row["topic"] == command.topic
        and (not command.tag or row["tag"] == command.tag)
        and any(command.from_ms <= due_ms < command.to_ms for due_ms in dues)
    )


class History:
    """What clients did and saw, by message id (each message has its own; a retry has the same id).

    A row of `messages`:

    due_ms, origin  of the newest copy that is known; moves whose answer was lost are in `dues` too
    dues            all due times that a copy may have
    left            due times from which the message was moved, as answered
    moving          count of reschedules that are in flight, or whose answer was lost
    moves           count of reschedules that were asked for
    recall          (due time, status, whether seen before the recall was sent), as answered
    attempts        how often the message was sent; `refused`: how many of these were refused
    first           origin that its sends were answered with
    recall_unknown  it may have been recalled: the answer was lost, or a bulk recall may cover it
    """

    def __init__(self) -> None:
        self.latest_ms = 0  # the latest time that the wall clock has shown
        self.messages: dict[str, dict[str, Any]] = {}
        self.seen: dict[tuple[str, int, int], str] = {}
        self.places: dict[str, tuple[str, int, int]] = {}
        self.acked: set[tuple[str, str, int, int]] = set()
        # Ids of messages that bit rot may have damaged: they may be missing, or not be found
        self.excused: set[str] = set()
        # Rot may have damaged the key index: NOT_FOUND proves nothing any more
        self.lost_keys = False

    def sent(
        self, message_id: str, topic: str, due_ms: int, wall_ms: int, tag: str | None = None
    ) -> None:
        """Note a send that is in flight."""
        self.messages[message_id] = {
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
        """Note a retry of a send that is in flight."""
        row = self.messages[message_id]
        row["attempts"] += 1
        if not row["stored"]:
            row["stored"] = None
            row["wall_ms"] = max(row["wall_ms"], wall_ms)

    def send_answered(self, message_ids: list[str], result: Sent | Exception) -> None:
        """Note the answer to a send."""
        for i, message_id in enumerate(message_ids):
            row = self.messages[message_id]
            if isinstance(result, Exception) or i in result.refused:
                row["refused"] += 1
                if row["refused"] == row["attempts"]:
                    row["stored"] = False
                continue
            if row["first"] not in (None, result.origins[i]):
                text = f"{row['first']}, a retry with {result.origins[i]}"
                raise broken("P3", f"{message_id} was answered with {text}")
            row["first"] = result.origins[i]
            if not row["stored"]:
                row["stored"], row["origin"] = True, result.origins[i]

    def recall_answered(self, message_id: str, result: Recalled, asked_seen: bool) -> None:
        """Note the answer to a recall; `asked_seen`: it was seen before the recall was sent."""
        row = self.messages.get(message_id)
        if row is None:
            if result.status is not RecallStatus.NOT_FOUND:
                raise broken("P8", f"{result.status} for {message_id}, which nobody sent")
            return
        row["recall"].append((result.due_ms, result.status, asked_seen))
        if result.status is RecallStatus.CANCELLED and message_id in self.places:
            raise broken("P8", f"{message_id} was seen, then CANCELLED")

    # --- reschedules and bulk recalls -----------------------------------------------------------

    def reschedule_asked(self, message_id: str, new_due_ms: int | None) -> None:
        """Note a reschedule that is in flight; None: hand over now, by the clock of the broker."""
        row = self.messages[message_id]
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
        """Note the answer to a reschedule."""
        row = self.messages[command.message_id]
        row["moving"] -= 1
        if isinstance(result, Exception):
            return
        if result.status in (RescheduleStatus.RESCHEDULED, RescheduleStatus.HANDED_OVER):
            if command.now != (result.status is RescheduleStatus.HANDED_OVER):
                raise broken("P8", f"{command} was answered {result.status}")
            if command.now and result.queue_offset < 0:
                raise broken("P8", f"{command.message_id} was HANDED_OVER, and is not visible")
            if asked_seen:
                raise broken("P8", f"{command.message_id} was seen, then RESCHEDULED")
            row["left"].add(command.due_ms)
            row["left"].discard(result.due_ms)  # handed over in the same ms in which it was due
            row["due_ms"] = result.due_ms
            row["origin"] = None if result.queue_offset >= 0 else result.origin
        else:
            status = RecallStatus(result.status.value)
            row["recall"].append((command.due_ms, status, asked_seen))

    def certain(self, command: RecallMany) -> dict[str, int]:
        """Return the certainly pending messages that a bulk recall covers, with their `moves`."""
        return {
            message_id: row["moves"]
            for message_id, row in self.messages.items()
            if row["stored"]
            and message_id not in self.excused
            and not row["moving"]
            and row["due_ms"] > self.latest_ms
            and _is_meant(command, row, {row["due_ms"]})
        }

    def bulk_lost(self, command: RecallMany) -> None:
        """Note that the outcome of a bulk recall is unknown."""
        if not command.dry_run:
            for row in self.messages.values():
                if _is_meant(command, row, row["dues"]):
                    row["recall_unknown"] = True

    def bulk_answered(
        self, command: RecallMany, result: RecalledMany | Exception, before: dict[str, int]
    ) -> None:
        """Note the answer to a bulk recall; `before`: what was certain when it was asked for."""
        self.bulk_lost(command)
        if isinstance(result, Exception):
            return
        after = self.certain(command)
        for message_id in [name for name, moves in before.items() if after.get(name) == moves]:
            row = self.messages[message_id]
            if not command.dry_run:
                row["recall"].append((row["due_ms"], RecallStatus.CANCELLED, False))
            if message_id in self.places:
                raise broken("P1", f"{message_id} was seen before it was due")
        if result.cancelled != (0 if command.dry_run else result.matched):
            raise broken("P8", f"{result} of {command}")

    def received(
        self, group: str, place: tuple[str, int, int], message_id: str, store_ms: int, due_ms: int
    ) -> None:
        """Note that a consumer got a message at (topic, queue, offset), with the due time in it."""
        row = self.messages.get(message_id)
        if row is None:
            raise broken("P2", f"{message_id} at {place} was never sent")
        before = self.seen.setdefault(place, message_id)
        if before != message_id:
            raise broken("P3", f"{place} held {before}, now {message_id}")
        first = self.places.setdefault(message_id, place)
        if first != place:
            raise broken("P3", f"{message_id} was handed over at {first} and at {place}")
        if row["stored"] is False:
            raise broken("P11", f"{message_id} was refused and then delivered")
        if due_ms > max(store_ms, 0):
            raise broken("P1", f"{message_id} due {due_ms} stored as visible at {store_ms}")
        if due_ms not in row["dues"] and not row["by_request"]:
            raise broken("P2", f"{message_id} is due {due_ms}, which nobody asked for")
        if due_ms in row["left"]:
            raise broken("P8", f"{message_id} was RESCHEDULED, and is delivered as due {due_ms}")
        if (group, *place) in self.acked:
            raise broken("P3", f"{place} was acknowledged by {group} and is given out again")
        for of_due_ms, status, seen_before in row["recall"]:
            if status is RecallStatus.CANCELLED:
                raise broken("P8", f"{message_id} was CANCELLED and is delivered")
            was_absent = status is RecallStatus.NOT_FOUND and of_due_ms == due_ms
            was_absent = was_absent and not (self.lost_keys or message_id in self.excused)
            if was_absent and not seen_before and due_ms:
                raise broken("P8", f"{message_id} was NOT_FOUND and is delivered later")

    def intact(self, message_id: str, body: bytes) -> None:
        """Check a body: bodies of simulated messages are zeros, so any other was never sent."""
        if body.strip(b"\0"):
            raise broken("P2", f"{message_id} came with a body that nobody sent")

    def final(
        self,
        delivered: dict[tuple[str, int, int], str],
        lost_allowed: bool,
        dropped: Callable[[str, str], bool] = lambda _topic, _message_id: False,
    ) -> None:
        """Compare everything that a new group consumed at the end with all answers.

        dropped  returns whether retention has dropped the visible message of a topic and message id
        """
        ids = set(delivered.values())
        for place, message_id in self.seen.items():
            gone = place not in delivered and (
                message_id in self.excused or dropped(place[0], message_id)
            )
            if delivered.get(place) != message_id and not (lost_allowed or gone):
                raise broken("P2", f"{place} held {message_id}, at the end {delivered.get(place)}")
        for message_id, row in self.messages.items():
            statuses = [status for _, status, _ in row["recall"]]
            cancelled = RecallStatus.CANCELLED in statuses
            may_lack = lost_allowed or message_id in ids or message_id in self.excused
            may_lack = may_lack or dropped(row["topic"], message_id)
            is_lost = row["stored"] and not cancelled and not may_lack
            if is_lost and not row["recall_unknown"]:
                raise broken("P2", f"{message_id} was acknowledged and is not delivered")
            if cancelled and message_id in ids and not lost_allowed:
                raise broken("P8", f"{message_id} was CANCELLED and is delivered")
            if RecallStatus.ALREADY_DELIVERED in statuses and not may_lack:
                raise broken("P8", f"{message_id} was ALREADY_DELIVERED and is not delivered")
        self._order(delivered)

    def _order(self, delivered: dict[tuple[str, int, int], str]) -> None:
        newest: dict[tuple[str, int, int], tuple[int, str]] = {}
        for topic, queue, offset in sorted(delivered):
            message_id = delivered[(topic, queue, offset)]
            row = self.messages[message_id]
            if not row["origin"] or row["moving"] or row["due_ms"] <= row["wall_ms"]:
                continue  # its log position is not known, or it was due at once
            if message_id in self.excused:
                continue  # it may have been handed over late, after a repair
            key = (topic, queue, row["due_ms"])
            before = newest.get(key)
            if before is not None and row["origin"] < before[0]:
                raise broken("P7", f"{message_id} came after {before[1]}, which arrived later")
            newest[key] = (row["origin"], message_id)
