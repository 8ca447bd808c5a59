"""Recalls that meet promotions and offloads on their way (`server.messages`, `lake.serve.reader`)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from horolog.errors import ErrorCode, HorologError
from horolog.lake.core.recalled_set import LAKE_ROW
from horolog.lake.serve.reader import LakeMessages
from horolog.lake.table import reading
from horolog.limits import HOUR_MS
from horolog.protocol.commands import (
    FoundMessage,
    MessageState,
    Recall,
    RecallByKey,
    Recalled,
    RecalledMany,
    RecallMany,
    RecallStatus,
)
from horolog.protocol.history_commands import (
    HistoryEvent,
    MessageEvent,
    MessageHistory,
    ShowMessage,
)
from horolog.protocol.tier_commands import (
    DescribeTier,
    Elsewhere,
    ListRecalled,
    LookElsewhere,
    OffloadView,
    RecallRows,
    TierHour,
    TierRow,
    TierView,
)
from horolog.server import messages

ONE = Recall("t", "m", 3 * HOUR_MS + 7)
CANCELLED = Recalled(RecallStatus.CANCELLED, "CANCELLED: m", "m", ONE.due_ms)
WINDOW = RecallMany("t", HOUR_MS + 5, 4 * HOUR_MS)


class Core:
    """A lake of (number, hour) → rows; `between` is called before each answer about a window."""

    def __init__(self, hours: dict[tuple[int, int], int]) -> None:
        self.hours = hours
        self.committed_ms: dict[int, int] = {}
        self.here = RecalledMany(0, 0, 0)
        self.asked: list[RecallMany] = []
        self.answers: list[LookElsewhere | HorologError] = []  # the next ones, instead of `here`
        self.offloads = SimpleNamespace(messages=LakeMessages(self))  # type: ignore[arg-type]
        self.singles: list[Any] = []
        self.known: tuple[list[FoundMessage], list[HistoryEvent]] = ([], [])
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
            offloads = [
                OffloadView(n, "a", 0, "lake", f"uri{n}", committed_ms=self.committed_ms.get(n, 0))
                for n in sorted(numbers)
            ]
            return TierView(sum(self.hours.values()), offloads, hours)
        if isinstance(command, ListRecalled):
            return []
        if isinstance(command, RecallRows):
            hours = command.rows["due_ms"] // HOUR_MS
            numbers = command.rows["number"]
            return np.array(
                [
                    place in self.hours
                    for place in zip(numbers.tolist(), hours.tolist(), strict=True)
                ]
            )
        if isinstance(command, ShowMessage):
            return MessageHistory(*self.known)
        if not isinstance(command, RecallMany):
            self.singles.append(command)
            return self.answers.pop(0) if self.answers else CANCELLED
        if not command.looked and self.hours:
            return LookElsewhere(HorologError(ErrorCode.IN_TIER, "nobody has looked"))
        self.asked.append(command)
        self.between()
        if self.answers:
            answer = self.answers.pop(0)
            if isinstance(answer, HorologError):
                raise answer
            return answer
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
        rows = np.zeros(2, LAKE_ROW)
        rows["number"], rows["due_ms"] = number, hour * HOUR_MS + 7
        yield rows, np.full(2, 100)


@pytest.fixture
def core(monkeypatch) -> Core:
    monkeypatch.setattr(reading, "rows_between", rows_between)
    return Core({(1, 2): 2, (1, 3): 2, (2, 3): 2, (1, 0): 9})


def recalled(core: Core, command: RecallMany = WINDOW) -> RecalledMany:
    return asyncio.run(messages.recall_many(core, command))  # type: ignore[arg-type]


def came_meanwhile() -> LookElsewhere:
    return LookElsewhere(
        HorologError(ErrorCode.TOO_MANY_REQUESTS, "offload 3 came into the lake meanwhile")
    )


def test_what_is_there_and_here_is_added_up(core) -> None:
    core.here = RecalledMany(3, 3, 50)
    assert recalled(core) == RecalledMany(9, 9, 650)
    assert [each.looked for each in core.asked] == [(1, 2)]


def test_an_offload_that_comes_meanwhile_is_looked_at_too(core) -> None:
    core.answers = [came_meanwhile()]

    def comes() -> None:
        core.hours = {(3, 2): 2}

    core.between = comes
    assert recalled(core) == RecalledMany(8, 8, 800)
    assert [each.looked for each in core.asked] == [(1, 2), (3,)]


def test_a_dry_run_counts_again_when_hours_have_come_or_gone(core) -> None:
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
    core.answers = [HorologError(ErrorCode.DISK_FULL, "disk: full", field="disk")]
    with pytest.raises(HorologError, match=r"disk: full \(6 more in the lake\)") as refused:
        recalled(core)
    assert refused.value.code is ErrorCode.DISK_FULL


def test_it_ends_when_the_lake_never_rests(core) -> None:
    core.answers = [came_meanwhile() for _ in range(50)]
    with pytest.raises(HorologError, match="on their way to the lake, or back") as refused:
        recalled(core)
    assert refused.value.code is ErrorCode.TOO_MANY_REQUESTS
    assert len(core.asked) < 20


# --- one message ----------------------------------------------------------------------------------


@pytest.fixture
def table(monkeypatch) -> None:
    """Row 5 of each offload is the message."""
    monkeypatch.setattr(reading, "find_rows", lambda *_: [(64, 5)])


def test_a_message_that_cannot_be_elsewhere_is_asked_for_once(core) -> None:
    assert asyncio.run(messages.recall(core, ONE)) == CANCELLED
    assert core.singles == [ONE]


def test_what_may_be_elsewhere_is_looked_for_there_and_asked_for_again(core, table) -> None:
    core.answers = [came_meanwhile()]
    assert asyncio.run(messages.recall(core, ONE)) == CANCELLED
    rows = tuple(TierRow(number, 64, 5, ONE.due_ms) for number in (1, 2))
    found = Elsewhere(rows, (1, 2))
    assert core.singles == [ONE, replace(ONE, elsewhere=found)]


def test_what_went_there_in_between_is_looked_for_again(core, table) -> None:
    core.answers = [came_meanwhile(), came_meanwhile()]
    assert asyncio.run(messages.recall(core, ONE)) == CANCELLED
    assert len(core.singles) == 3
    core.answers = [came_meanwhile() for _ in range(50)]
    with pytest.raises(HorologError, match="came into the lake meanwhile") as refused:
        asyncio.run(messages.recall(core, ONE))
    assert refused.value.code is ErrorCode.TOO_MANY_REQUESTS
    assert len(core.singles) < 20


def test_without_a_reader_it_is_a_refusal(core) -> None:
    core.offloads = None
    core.answers = [LookElsewhere(HorologError(ErrorCode.IN_TIER, "where this cannot look"))] * 2
    for asked in (messages.recall(core, ONE), messages.recall_many(core, WINDOW)):
        with pytest.raises(HorologError) as refused:
            asyncio.run(asked)
        assert refused.value.code is ErrorCode.IN_TIER


def test_by_key_each_message_that_may_be_elsewhere_is_recalled_by_itself(core, monkeypatch) -> None:
    there = reading.LakePlace("m", ONE.due_ms, (64, 5))
    monkeypatch.setattr(reading, "find_key", lambda *_: [there])
    nobody_looked = HorologError(ErrorCode.IN_TIER, "nobody has looked")
    core.answers = [LookElsewhere(nobody_looked, (("n", 9), ("m", ONE.due_ms), ("now", 0)))]
    asyncio.run(messages.recall_by_key(core, RecallByKey("t", "k")))
    assert [each.message_id for each in core.singles[1:]] == ["m", "n"]


@pytest.mark.parametrize(
    ("hours", "committed_ms", "at_ms"),
    [
        ({(1, 3): 2, (2, 4): 2}, {1: 70, 2: 80}, 70),
        ({(1, 3): 2, (2, 3): 2}, {1: 70, 2: 80}, None),  # which of the two has it?
        ({(1, 3): 2}, {}, None),  # of a version that did not note it
        ({(1, 4): 2}, {1: 70}, None),
    ],
)
def test_the_time_of_the_move_is_shown_where_it_is_certain(
    hours: dict[tuple[int, int], int], committed_ms: dict[int, int], at_ms: int | None
) -> None:
    there = FoundMessage(MessageState.IN_TIER, "t", "m", [], ONE.due_ms, 64, 0, -1, 5, b"")
    asked = Core(hours)
    asked.committed_ms = committed_ms
    accepted = HistoryEvent(MessageEvent.ACCEPTED, 5, {})
    asked.known = [there], [accepted, HistoryEvent(MessageEvent.OFFLOADED, None, {})]
    history = asyncio.run(messages.show(asked, ShowMessage("t", "m")))  # type: ignore[arg-type]
    assert history.events == [accepted, HistoryEvent(MessageEvent.OFFLOADED, at_ms, {})]
