"""Units of consume queues in memory and in files: what is sealed is opened as it was, and what rots is known."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from horolog.log.consume_queue import ConsumeQueue
from horolog.log.queue_unit import (
    MANY_CODE,
    ROTTEN_CODE,
    UNIT,
    UNIT_BYTES,
    UnitsPlace,
    seal,
    unseal,
)
from horolog.testing.disk import FaultyDisk

PLACE = UnitsPlace(7, 3, 262_144 * 5 + 17)
CODES = [0, 1, -1, 2_112, -(1 << 31), (1 << 31) - 1, MANY_CODE, MANY_CODE + 0xFFFF_FFFF]


def made(count: int) -> np.ndarray:
    random = Random(count)
    units = np.zeros(count, UNIT)
    for i in range(count):
        code = random.choice([*CODES, random.randrange(-(1 << 31), 1 << 31)])
        units[i] = (random.randrange(1 << 50), random.randrange(1, 1 << 22), code)
    return units


@pytest.mark.parametrize("count", [0, 1, 4, 5, 600])
def test_what_is_sealed_is_opened_as_it_was(count: int) -> None:
    units = made(count)
    opened = unseal(seal(units, PLACE), PLACE)
    assert opened.units.tolist() == units.tolist()
    assert opened.rotten == []


def test_few_and_many_are_opened_alike() -> None:
    sealed = seal(made(100), PLACE)
    for at in range(100):
        unit = sealed[at * UNIT_BYTES : (at + 1) * UNIT_BYTES]
        one = unseal(unit, PLACE._replace(first=PLACE.first + at))
        assert one.units.tolist() == made(100)[at : at + 1].tolist()


@pytest.mark.parametrize("count", [3, 9])
def test_every_flipped_bit_is_known(count: int) -> None:
    sealed, middle = seal(made(count), PLACE), count // 2
    for bit in range(UNIT_BYTES * 8):
        rotten = bytearray(sealed)
        rotten[middle * UNIT_BYTES + bit // 8] ^= 1 << bit % 8
        opened = unseal(rotten, PLACE)
        assert opened.rotten == [middle], bit
        assert [code == ROTTEN_CODE for code in opened.units["tags"]].count(True) == 1


def test_another_place_is_known() -> None:
    """A unit that was written to the wrong place, or a whole file of another queue."""
    sealed = seal(made(50), PLACE)
    for place in (PLACE._replace(topic=8), PLACE._replace(queue=2), PLACE._replace(first=0)):
        assert len(unseal(sealed, place).rotten) == 50


@pytest.mark.parametrize("count", [2, 60])
def test_units_without_a_check_are_believed(count: int) -> None:
    """As files from before it have them; also between those that have one."""
    units = made(count)
    assert unseal(units.tobytes(), PLACE).units.tolist() == units.tolist()
    half = count // 2
    later = PLACE._replace(first=PLACE.first + half)
    mixed = units[:half].tobytes() + seal(units[half:], later)
    assert unseal(mixed, PLACE).units.tolist() == units.tolist()
    assert unseal(mixed, PLACE).rotten == []


def test_the_check_is_the_one_that_files_have() -> None:
    """It must never change."""
    unit = np.array([(64, 400, 2_112)], UNIT)
    assert seal(unit, UnitsPlace(1, 0, 0)).hex() == "400000000000000090010000400800008e16756a"


def test_a_queue_keeps_few_units_in_memory_and_is_synced_once() -> None:
    changed: dict[ConsumeQueue, None] = {}
    queue = ConsumeQueue(FaultyDisk(), "queues/1-0", changed)
    queue.append(made(1_023))
    assert queue.is_unwritten
    queue.append(made(1))
    assert not queue.is_unwritten
    assert list(changed) == [queue]
    paths = queue.sync_paths()
    assert changed == {}
    assert queue.sync_paths() == []
    queue.mark_unsynced(set(paths))  # the checkpoint has failed
    assert list(changed) == [queue]
    assert queue.sync_paths() == paths
