"""Rows of structured arrays that are copied whole are what numpy makes of them field by field."""

from __future__ import annotations

import numpy as np
import pytest

from horolog.delay.entry import ENTRY
from horolog.log.queue_unit import UNIT
from horolog.log.record import HEAD
from horolog.log.whole_rows import copied, joined


@pytest.fixture(params=[ENTRY, HEAD, UNIT], ids=["entry", "head", "unit"])
def rows(request) -> np.ndarray:
    raw = np.random.default_rng(7).bytes(100 * request.param.itemsize)
    return np.frombuffer(raw, request.param)


def test_a_copy_is_of_its_own(rows) -> None:
    part = rows[10:20]
    found = copied(part)
    assert found.tobytes() == part.copy().tobytes()
    assert found.dtype == rows.dtype
    found[found.dtype.names[0]] = 0
    assert rows[10:20].tobytes() == part.tobytes() != found.tobytes()


def test_joined_rows_follow_each_other(rows) -> None:
    parts = [rows[:3], rows[3:3], rows[50:], rows[::7]]
    assert joined(parts).tobytes() == np.concatenate(parts).tobytes()
    assert joined(parts[:1]) is parts[0]
    with pytest.raises(AssertionError):
        joined([rows, np.zeros(2, np.int64)])


def test_numpy_takes_and_compresses_whole_rows(rows) -> None:
    index = np.array([99, 0, 0, -1, 5])
    assert rows.take(index).tobytes() == rows[index].tobytes()
    mask = np.arange(len(rows)) % 3 == 1
    assert rows.compress(mask).tobytes() == rows[mask].tobytes()
    with pytest.raises(IndexError):
        rows.take(np.array([len(rows)]))
