"""The demo's audit has to agree with what the consumer saw, and all of the year has to be there."""

from __future__ import annotations

import importlib
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

FLIGHTS = Path(__file__).resolve().parents[2] / "examples" / "flights"


@pytest.fixture
def proof(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module, which is a program in `examples/` and not part of the package."""
    monkeypatch.syspath_prepend(str(FLIGHTS))
    for name in ("proof", "broker"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return importlib.import_module("proof")


def found(**fields: object) -> dict[str, Any]:
    whole = {"visible": 855, "counts": {}, "faults": 0}
    return whole | dict.fromkeys(("loaded", "forecast", "adopted"), 336_776) | fields


def test_what_agrees_has_no_fault(proof: Any) -> None:
    assert proof.compare(found(), 855, 336_776) == []


@pytest.mark.parametrize(
    ("fields", "arrived", "pending", "message"),
    [
        ({}, 854, 336_776, "the consumer saw 854"),
        ({}, 855, 336_775, "336775 of 336776 flights are pending"),
        ({"forecast": 0}, 855, 336_776, "0 of 336776 flights are forecast"),
        ({"counts": {"lost": 2}, "faults": 2}, 855, 336_776, "2 times: lost"),
        ({"faults": 1}, 855, 336_776, "the log is damaged"),
    ],
)
def test_what_does_not_agree_is_reported(
    proof: Any, fields: dict[str, object], arrived: int, pending: int, message: str
) -> None:
    (fault,) = proof.compare(found(**fields), arrived, pending)
    assert message in fault


def test_every_call_of_the_year_is_still_to_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FLIGHTS))
    year = importlib.import_module("year")
    assert year.year_ahead(datetime(2026, 11, 21, tzinfo=UTC)) == 2027
    assert year.year_ahead(datetime(2026, 12, 30, 12, tzinfo=UTC)) == 2028
