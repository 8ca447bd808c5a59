"""Double-entry bookkeeping of the demo: what the airline says, what the gates say, what the broker
says.

Pure: it is fed the JSON lines of both client processes in any order, and `balance` says whether
they add up. The identity of a hand-over is its (queue, queue offset); the identity of a message
is its id.

* A message id at two offsets was handed over twice, unless the client itself sent the request
  more than once (it does so when an answer is lost, with the same id): that many copies are put
  down to the client.
* An id whose send was never answered may or may not have been stored; its arrivals are copies as
  well.
* The same offset received again is a second delivery, not a second hand-over.  After its ack it
  is a fault.
* A recall whose first answer was lost and that is then answered NOT_FOUND had worked the first
  time.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

Place = tuple[int, int]  # queue, queue offset


@dataclass(slots=True)
class Booking:
    """An accepted boarding call."""

    id: str
    due_ms: int
    answered_ms: int
    requests: int


@dataclass(slots=True)
class Arrival:
    """A hand-over, as first seen by a gate."""

    id: str
    call: str
    due_ms: int
    stored_ms: int
    arrived_ms: int


@dataclass(frozen=True, slots=True)
class Expected:
    """What the plan says must happen."""

    calls: int
    recalls: int


@dataclass(frozen=True, slots=True)
class Seen:
    """What the broker itself says at the end."""

    pending: int
    queue_offsets: int  # sum of the next offsets of all queues: everything ever handed over


@dataclass(slots=True)
class Balance:
    """The result; `faults` is empty if and only if everything adds up."""

    scheduled: int = 0
    recalled: int = 0
    too_late: int = 0
    handed_over: int = 0
    pending: int = 0
    lost: int = 0
    twice: int = 0
    early: int = 0
    copies: int = 0  # of requests the client repeated because an answer was lost
    redelivered: int = 0
    answers_lost: int = 0  # requests of sends, recalls and acks without an answer
    answered_late: int = 0  # accepted only after their due time, so no measure of lateness
    store_lateness_ms: list[int] = field(default_factory=list)
    arrival_lateness_ms: list[int] = field(default_factory=list)
    due_while_down: int = 0
    store_lateness_up_ms: list[int] = field(default_factory=list)  # without those due while down
    arrival_lateness_up_ms: list[int] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


class Ledger:
    """Takes the lines of the client processes."""

    def __init__(self) -> None:
        self.calls: dict[str, Booking] = {}
        self.unanswered: dict[str, int] = {}  # id of a send that failed → requests sent
        self.truths: dict[str, tuple[str, int]] = {}  # call → truth, recalls without an answer
        self.arrivals: dict[Place, Arrival] = {}
        self.acked_ms: dict[Place, int] = {}
        self.redelivered: list[Place] = []
        self.acks_unanswered = 0
        self.faults: list[str] = []

    @property
    def outstanding(self) -> int:
        """Accepted calls that are neither recalled nor handed over so far."""
        arrived = {arrival.id for arrival in self.arrivals.values()}
        return sum(
            booking.id not in arrived and not self._recalled(call)
            for call, booking in self.calls.items()
        )

    @property
    def recalled(self) -> int:
        """Calls cancelled so far."""
        return sum(self._recalled(call) for call in self.truths)

    def take(self, line: dict[str, Any]) -> None:
        """Book one line of a client process; kinds that mean nothing here are ignored."""
        kind = line["kind"]
        if kind == "scheduled":
            self._take_scheduled(line)
        elif kind == "unanswered":
            self.unanswered[line["id"]] = line["requests"]
        elif kind == "recalled":
            self.truths[line["call"]] = (line["truth"], line["unanswered"])
        elif kind == "received":
            self._take_received(line)
        elif kind == "acked":
            self.acked_ms[line["queue"], line["offset"]] = line["acked_ms"]
            self.acks_unanswered += line["unanswered"]
        elif kind in {"ack refused", "ack lost"} and not (line["unanswered"] or line["late"]):
            self.faults.append(f"an ack was refused without need: {line['why']}")

    def _take_scheduled(self, line: dict[str, Any]) -> None:
        call = line["call"]
        if call in self.calls:
            self.faults.append(f"{call} was scheduled twice by the airline itself")
        self.calls[call] = Booking(
            line["id"], line["due_ms"], line["answered_ms"], line["requests"]
        )

    def _take_received(self, line: dict[str, Any]) -> None:
        place = (line["queue"], line["offset"])
        if line["corrupted"]:
            self.faults.append(f"{line['call']} arrived with a body that fails its digest")
        first = self.arrivals.get(place)
        if first is None:
            names = ("id", "call", "due_ms", "stored_ms", "arrived_ms")
            self.arrivals[place] = Arrival(**{name: line[name] for name in names})
            return
        self.redelivered.append(place)
        if first.id != line["id"]:
            self.faults.append(f"queue {place[0]} offset {place[1]} holds two messages")
        acked_ms = self.acked_ms.get(place)
        if acked_ms is not None and acked_ms < line["arrived_ms"]:
            self.faults.append(f"{line['call']} was delivered again after its ack")

    def _recalled(self, call: str) -> bool:
        truth, unanswered = self.truths.get(call, ("", 0))
        return truth == "CANCELLED" or (truth == "NOT_FOUND" and unanswered > 0)

    def balance(self, expected: Expected, seen: Seen, down_ms: tuple[int, int]) -> Balance:
        """Add everything up.  `down_ms`: from, to (epoch ms) the broker was not there."""
        result = Balance(
            scheduled=len(self.calls),
            recalled=self.recalled,
            too_late=sum(truth == "ALREADY_DELIVERED" for truth, _ in self.truths.values()),
            pending=seen.pending,
            redelivered=len(self.redelivered),
            answers_lost=sum(self.unanswered.values())
            + sum(booking.requests - 1 for booking in self.calls.values())
            + sum(unanswered for _, unanswered in self.truths.values())
            + self.acks_unanswered,
            faults=list(self.faults),
        )
        self._count_hand_overs(result)
        self._measure_lateness(result, down_ms)
        self._find_faults(result, expected, seen)
        return result

    def _count_hand_overs(self, result: Balance) -> None:
        offsets = Counter(arrival.id for arrival in self.arrivals.values())
        accepted = {booking.id: call for call, booking in self.calls.items()}
        for call, booking in self.calls.items():
            found = offsets[booking.id]
            result.handed_over += found > 0
            result.lost += found == 0 and not self._recalled(call)
            result.copies += max(0, min(found, booking.requests) - 1)
            result.twice += max(0, found - booking.requests)
            if found and self._recalled(call):
                result.faults.append(f"{call} was handed over although its recall was confirmed")
        for message_id, found in offsets.items():
            if message_id in accepted:
                continue
            requests = self.unanswered.get(message_id, 0)
            if not requests:
                result.faults.append(f"message {message_id} was handed over but never sent")
            result.copies += min(found, requests)
            result.twice += max(0, found - requests) if requests else 0

    def _measure_lateness(self, result: Balance, down_ms: tuple[int, int]) -> None:
        bookings = {booking.id: booking for booking in self.calls.values()}
        for arrival in self.arrivals.values():
            if min(arrival.stored_ms, arrival.arrived_ms) < arrival.due_ms:
                result.early += 1
            booking = bookings.get(arrival.id)
            if booking is None:
                continue  # a copy: when it was stored is not known
            if booking.due_ms != arrival.due_ms:
                result.faults.append(f"{arrival.call} arrived with another due time")
            if booking.answered_ms >= booking.due_ms:
                result.answered_late += 1
                continue
            stored = arrival.stored_ms - arrival.due_ms
            arrived = arrival.arrived_ms - arrival.due_ms
            result.store_lateness_ms.append(stored)
            result.arrival_lateness_ms.append(arrived)
            if down_ms[0] <= arrival.due_ms <= down_ms[1]:
                result.due_while_down += 1
            else:
                result.store_lateness_up_ms.append(stored)
                result.arrival_lateness_up_ms.append(arrived)

    def _find_faults(self, result: Balance, expected: Expected, seen: Seen) -> None:
        found = len(self.arrivals)
        unexplained = len(self.truths) - result.recalled - result.too_late
        first_seen = {arrival.id for arrival in self.arrivals.values()}
        denied = [
            call
            for call, (truth, _) in self.truths.items()
            if truth == "ALREADY_DELIVERED" and self.calls[call].id not in first_seen
        ]
        claims = [
            (result.lost, 0, "calls were lost"),
            (result.twice, 0, "calls were handed over twice"),
            (result.early, 0, "calls were early"),
            (result.pending, 0, "calls are still pending at the broker"),
            (unexplained, 0, "recalls were answered NOT_FOUND without reason"),
            (len(denied), 0, "recalls were too late for a call that never came"),
            (result.scheduled, expected.calls, "calls were scheduled, the plan says"),
            (len(self.truths), expected.recalls, "recalls were answered, the plan says"),
            (result.recalled + result.handed_over, result.scheduled, "recalled + handed over, of"),
            (found, result.handed_over + result.copies, "offsets seen, handed over + copies is"),
            (seen.queue_offsets, found, "messages lie in the broker's queues, the gates saw"),
        ]
        result.faults += [
            f"{number} {sentence}" + (f" {wanted}" if wanted else "")
            for number, wanted, sentence in claims
            if number != wanted
        ]


def percentile(values: Iterable[int], share: float) -> int:
    """Nearest-rank percentile; 0 without values."""
    ordered = sorted(values)
    if not ordered:
        return 0
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
