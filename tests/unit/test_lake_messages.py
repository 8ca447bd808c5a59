"""A recall by window that meets promotions and offloads on its way (`lake.serve.reader`)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from horolog.errors import ErrorCode, HorologError
from horolog.lake.core.gone import GONE
from horolog.lake.jobs import table as lake_table
from horolog.lake.serve.reader import LakeMessages
from horolog.limits import HOUR_MS
from horolog.protocol.commands import RecalledMany, RecallMany
from horolog.protocol.tier_commands import (
    DescribeTier,
    OffloadView,
    RecallRows,
    TierHour,
    TierView,
)

WINDOW = RecallMany("t", HOUR_MS + 5, 4 * HOUR_MS)


class Core:
    """A lake of (number, hour) → rows; `between` is called before each answer about a window."""

    def __init__(self, hours: dict[tuple[int, int], int]) -> None:
        self.hours = hours
        self.here = RecalledMany(0, 0, 0)
        self.asked: list[RecallMany] = []
        self.refusals: list[HorologError] = []
        self.between = lambda: None

    def submit(self, command: Any) -> asyncio.Future[Any]:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        try:
            answer.set_result(self.result(command))
        except HorologError as error:
            answer.set_exception(error)
        return answer

    def result(self, command: Any) -> Any:
        if isinstance(command, DescribeTier):
            hours = [TierHour(n, hour, 1, "t", rows) for (n, hour), rows in self.hours.items()]
            numbers = {number for number, _ in self.hours}
            offloads = [OffloadView(n, "a", 0, "lake", f"uri{n}") for n in sorted(numbers)]
            return TierView(sum(self.hours.values()), offloads, hours)
        if isinstance(command, RecallRows):
            hours = command.rows["due_ms"] // HOUR_MS
            numbers = command.rows["number"]
            return np.array(
                [
                    place in self.hours
                    for place in zip(numbers.tolist(), hours.tolist(), strict=True)
                ]
            )
        assert isinstance(command, RecallMany)
        self.asked.append(command)
        self.between()
        if self.refusals:
            raise self.refusals.pop(0)
        return replace(self.here)


def rows_between(
    uri: str, number: int, topic: int, from_ms: int, to_ms: int, hours: list[int], tag: str
) -> Iterator[tuple[Any, Any]]:
    """Two rows of each hour, of 100 bytes."""
    assert (uri, topic, from_ms, to_ms, tag) == (
        f"uri{number}",
        1,
        WINDOW.from_ms,
        WINDOW.to_ms,
        "",
    )
    for hour in hours:
        rows = np.zeros(2, GONE)
        rows["number"], rows["due_ms"] = number, hour * HOUR_MS + 7
        yield rows, np.full(2, 100)


@pytest.fixture
def core(monkeypatch) -> Core:
    monkeypatch.setattr(lake_table, "rows_between", rows_between)
    return Core({(1, 2): 2, (1, 3): 2, (2, 3): 2, (1, 0): 9})


def recalled(core: Core, command: RecallMany = WINDOW) -> RecalledMany:
    return asyncio.run(LakeMessages(core).recall_many(command))  # type: ignore[arg-type]


def came_meanwhile() -> HorologError:
    return HorologError(ErrorCode.TOO_MANY_REQUESTS, "offload 3 came into the lake meanwhile")


def test_what_is_there_and_here_is_added_up(core) -> None:
    core.here = RecalledMany(3, 3, 50)
    assert recalled(core) == RecalledMany(9, 9, 650)
    assert [each.looked for each in core.asked] == [(1, 2)]


def test_an_offload_that_comes_meanwhile_is_looked_at_too(core) -> None:
    core.refusals = [came_meanwhile()]

    def comes() -> None:
        core.hours = {(3, 2): 2}

    core.between = comes
    assert recalled(core) == RecalledMany(8, 8, 800)
    assert [each.looked for each in core.asked] == [(1, 2), (3,)]


def test_a_dry_run_counts_anew_when_hours_have_come_or_gone(core) -> None:
    """What was promoted in between would be counted there and here; single recalls do not matter."""

    def promoted() -> None:
        if len(core.asked) == 1:
            del core.hours[1, 2]
            core.here = RecalledMany(2, 0, 10)
        else:
            core.hours[1, 3] = 1

    core.between = promoted
    assert recalled(core, replace(WINDOW, dry_run=True)) == RecalledMany(6, 0, 410)
    assert len(core.asked) == 2


def test_other_refusals_say_what_was_done_before(core) -> None:
    core.refusals = [HorologError(ErrorCode.DISK_FULL, "disk: full", field="disk")]
    with pytest.raises(HorologError, match=r"disk: full \(6 more in the lake\)") as refused:
        recalled(core)
    assert refused.value.code is ErrorCode.DISK_FULL


def test_it_ends_when_the_lake_never_rests(core) -> None:
    core.refusals = [came_meanwhile() for _ in range(50)]
    with pytest.raises(HorologError, match="on their way to the lake, or back") as refused:
        recalled(core)
    assert refused.value.code is ErrorCode.TOO_MANY_REQUESTS
    assert len(core.asked) < 20
