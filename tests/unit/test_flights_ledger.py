"""The demo's books: they balance for an honest broker, and for no other."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

FLIGHTS = Path(__file__).resolve().parents[2] / "examples" / "flights"


@pytest.fixture
def books(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module, which is a program in `examples/` and not part of the package."""
    monkeypatch.syspath_prepend(str(FLIGHTS))
    monkeypatch.delitem(sys.modules, "ledger", raising=False)
    return importlib.import_module("ledger")


def scheduled(call: str, *, requests: int = 1, answered_ms: int = 1_000) -> dict[str, Any]:
    return {
        "kind": "scheduled", "call": call, "id": f"id-{call}", "due_ms": 9_000,
        "answered_ms": answered_ms, "requests": requests,
    }  # fmt: skip


def received(
    call: str, offset: int, *, lateness_ms: int = 4, message_id: str = ""
) -> dict[str, Any]:
    return {
        "kind": "received", "call": call, "id": message_id or f"id-{call}", "queue": 0,
        "offset": offset, "due_ms": 9_000, "stored_ms": 9_000 + lateness_ms,
        "arrived_ms": 9_002 + lateness_ms, "corrupted": False,
    }  # fmt: skip


def recalled(call: str, truth: str, unanswered: int = 0) -> dict[str, Any]:
    return {"kind": "recalled", "call": call, "truth": truth, "unanswered": unanswered}


def acked(offset: int, acked_ms: int) -> dict[str, Any]:
    return {"kind": "acked", "queue": 0, "offset": offset, "unanswered": 0, "acked_ms": acked_ms}


def balance(
    books: Any, lines: list[dict[str, Any]], *, calls: int = 0, recalls: int = 0, **seen: int
) -> Any:
    ledger = books.Ledger()
    for line in lines:
        ledger.take(line)
    at_broker = books.Seen(
        pending=seen.get("pending", 0), queue_offsets=seen.get("offsets", len(ledger.arrivals))
    )
    return ledger.balance(books.Expected(calls, recalls), at_broker, (0, 0))


def test_an_honest_day_adds_up(books: Any) -> None:
    lines = [
        scheduled("a"), scheduled("b"), scheduled("c"),
        recalled("b", "CANCELLED"), recalled("c", "ALREADY_DELIVERED"),
        received("a", 0), received("c", 1, lateness_ms=6), acked(0, 9_010), acked(1, 9_012),
    ]  # fmt: skip
    result = balance(books, lines, calls=3, recalls=2)
    assert result.faults == []
    assert (result.scheduled, result.recalled, result.handed_over, result.too_late) == (3, 1, 2, 1)
    assert result.store_lateness_ms == [4, 6]
    assert result.arrival_lateness_ms == [6, 8]


def test_the_order_of_lines_does_not_matter(books: Any) -> None:
    lines = [received("a", 0), scheduled("a"), scheduled("b"), recalled("b", "CANCELLED")]
    assert balance(books, lines[::-1], calls=2, recalls=1).faults == []


@pytest.mark.parametrize(
    ("lines", "fault"),
    [
        ([scheduled("a")], "1 calls were lost"),
        ([scheduled("a"), received("a", 0), received("a", 1)], "1 calls were handed over twice"),
        ([scheduled("a"), received("a", 0, lateness_ms=-1)], "1 calls were early"),
        ([scheduled("a"), received("a", 0), received("x", 1)], "handed over but never sent"),
        (
            [scheduled("a"), recalled("a", "CANCELLED"), received("a", 0)],
            "although its recall was confirmed",
        ),
        (
            [scheduled("a"), recalled("a", "NOT_FOUND"), received("a", 0)],
            "NOT_FOUND without reason",
        ),
        ([scheduled("a"), recalled("a", "ALREADY_DELIVERED")], "for a call that never came"),
        (
            [
                scheduled("a"),
                received("a", 0),
                acked(0, 9_007),
                {**received("a", 0), "arrived_ms": 9_500},
            ],
            "delivered again after its ack",
        ),
        ([scheduled("a"), {**received("a", 0), "corrupted": True}], "fails its digest"),
        ([scheduled("a"), {**received("a", 0), "due_ms": 8_000}], "another due time"),
    ],
)
def test_what_does_not_add_up_is_named(books: Any, lines: list[dict[str, Any]], fault: str) -> None:
    recalls = sum(line["kind"] == "recalled" for line in lines)
    result = balance(books, lines, calls=1, recalls=recalls)
    assert any(fault in found for found in result.faults), result.faults


def test_what_the_broker_says_has_to_agree(books: Any) -> None:
    lines = [scheduled("a"), received("a", 0)]
    assert balance(books, lines, calls=1, pending=1).faults
    assert balance(books, lines, calls=1, offsets=2).faults
    assert balance(books, lines, calls=2).faults


def test_copies_the_client_asked_for_are_counted_apart(books: Any) -> None:
    lost = {"kind": "unanswered", "call": "b", "id": "id-lost", "requests": 3}
    lines = [
        scheduled("a", requests=2), received("a", 0), received("a", 1),
        lost, scheduled("b"), received("b", 2), received("b", 3, message_id="id-lost"),
    ]  # fmt: skip
    result = balance(books, lines, calls=2)
    assert result.faults == []
    assert (result.copies, result.twice, result.answers_lost) == (2, 0, 4)


def test_a_recall_repeated_after_a_lost_answer_had_worked(books: Any) -> None:
    result = balance(
        books, [scheduled("a"), recalled("a", "NOT_FOUND", unanswered=1)], calls=1, recalls=1
    )
    assert result.faults == []
    assert result.recalled == 1


def test_a_second_delivery_is_no_second_hand_over(books: Any) -> None:
    result = balance(books, [scheduled("a"), received("a", 0), received("a", 0)], calls=1)
    assert result.faults == []
    assert (result.redelivered, result.twice) == (1, 0)


def test_a_call_accepted_after_its_due_time_measures_nothing(books: Any) -> None:
    lines = [scheduled("a", answered_ms=9_500), received("a", 0, lateness_ms=600)]
    result = balance(books, lines, calls=1)
    assert result.faults == []
    assert (result.answered_late, result.store_lateness_ms) == (1, [])


@pytest.mark.parametrize(("share", "value"), [(0.5, 50), (0.99, 99), (1.0, 100), (0.001, 1)])
def test_percentile_is_nearest_rank(books: Any, share: float, value: int) -> None:
    assert books.percentile(range(1, 101), share) == value
    assert books.percentile([], share) == 0
