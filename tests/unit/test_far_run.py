"""A run in use: rows that its cursor passed over, while their hand-over is under way and after a restart."""

from __future__ import annotations

import numpy as np
import pytest
from run_rows import HOUR_MS, LOG_ID, Source, new_disk, opened

from horolog.delay.far.names import registry_row
from horolog.delay.far.run import FarRun
from horolog.delay.far.run_state import decode_run_state, encode_run_state
from horolog.delay.state import EntryState
from horolog.testing.disk import FaultyDisk
from horolog.verify.adoptions import AdoptionCheck
from horolog.verify.balance import Balance
from horolog.verify.far import check_run
from horolog.verify.findings import Findings
from horolog.verify.holes import Holes
from horolog.verify.reading import LogBytes, Reading

WAITING, GOING = EntryState.WAITING, EntryState.HANDING_OVER
GONE = EntryState.HANDED_OVER


def rows(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def hand_over(run: FarRun, *numbers: int) -> None:
    run.mark_inflight(rows(*numbers), GOING)
    run.settle(rows(*numbers), GONE)


@pytest.fixture
def disk() -> FaultyDisk:
    return new_disk()


@pytest.fixture
def late(disk) -> FarRun:
    """A run of six rows, one an hour: the fourth has been handed over, the three before it were not filed in time."""
    info = Source([HOUR_MS * (i + 1) for i in range(6)]).flush(disk, "a")
    run = FarRun(info, 1, 0, lambda name: opened(disk, name))
    hand_over(run, 3)
    return run


def restarted(disk: FaultyDisk, run: FarRun) -> FarRun:
    """The run as a start finds it by a checkpoint that is captured now."""
    state = decode_run_state(encode_run_state(run.capture()))
    assert state is not None
    again = FarRun(run.info, 1, 0, lambda name: opened(disk, name))
    states = run.states
    again.restore(states.cursor, states.limit, run.counts.limit_ms, run.waiting)
    again.take_state(state)
    return again


def waiting_rows(run: FarRun) -> list[int]:
    return np.flatnonzero(run.states_at(np.arange(6)) == WAITING).tolist()


def counted(run: FarRun) -> list[int]:
    """What waits of each hour, by the second."""
    return [int(run.waiting_by_second(hour, None).sum()) for hour in range(1, 7)]


def test_rows_passed_over_wait(disk, late) -> None:
    assert (late.states.cursor, late.waiting, waiting_rows(late)) == (4, 5, [0, 1, 2, 4, 5])
    assert late.first_waiting_ms(0) == HOUR_MS
    again = restarted(disk, late)
    assert (again.waiting, waiting_rows(again)) == (5, [0, 1, 2, 4, 5])
    assert again.first_waiting_ms(0) == HOUR_MS
    assert counted(again) == counted(late) == [1, 1, 1, 0, 1, 1]


def test_a_row_passed_over_waits_until_its_hand_over_is_committed(disk, late) -> None:
    """A checkpoint may be captured in between, and the frame of the hand-over be lost with a power cut (P2)."""
    late.mark_inflight(rows(0, 1), GOING)
    assert waiting_rows(late) == [2, 4, 5]
    assert counted(late) == [1, 1, 1, 0, 1, 1], "by what is committed"
    again = restarted(disk, late)
    assert (again.waiting, waiting_rows(again)) == (5, [0, 1, 2, 4, 5])
    assert again.waiting_by_hour(None)[0].tolist() == [1, 2, 3, 5, 6]
    late.settle(rows(0, 1), GONE)
    again.settle(rows(0, 1), GONE)  # the frame was not lost: replay settles them
    for run in (late, again, restarted(disk, late)):
        assert (run.waiting, waiting_rows(run)) == (3, [2, 4, 5])
        assert counted(run) == [0, 0, 1, 0, 1, 1]


def test_verify_counts_rows_passed_over(disk, late) -> None:
    late.settle(rows(1), EntryState.RECALLED)
    state = encode_run_state(late.capture())
    row = registry_row(late)
    file = disk.open(f"runs/a.state.{row['version']:010d}", create=True)
    file.write(0, state)
    findings = Findings()
    reading = Reading(disk, findings, quick=True, report=lambda what, done, total: None)
    balance = Balance(0)
    check_run(
        reading,
        "runs",
        row,
        log_id=LOG_ID,
        log=LogBytes(reading, "log", 1 << 16, start=1 << 40, holes=Holes()),  # has none of them
        balance=balance,
        adoptions=AdoptionCheck(),
    )
    kept = [finding.what for finding in findings.kept]
    assert kept == []
    assert balance.faults() == [(hour, -1) for hour in (1, 3, 5, 6)]


def test_a_row_that_is_being_recalled_is_not_being_handed_over(disk, late) -> None:
    """A hand-over of later rows passes it: a recall is under way, and nothing else."""
    late.mark_inflight(rows(4), EntryState.RECALLING)
    late.mark_inflight(rows(5), GOING)
    assert late.states_at(rows(4, 5)).tolist() == [EntryState.RECALLING, GOING]
    late.settle(rows(4), EntryState.RECALLED)
    late.settle(rows(5), GONE)
    assert late.states_at(rows(4, 5)).tolist() == [EntryState.RECALLED, GONE]
    assert not late.states.in_flight
