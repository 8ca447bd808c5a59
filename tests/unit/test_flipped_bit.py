"""One flipped bit, found by a CRC-32; and state files that are put right by it where the log is gone (row 12)."""

from __future__ import annotations

import struct
from random import Random

import pytest
from cut_worlds import HOUR, cut_world, states_of_hour
from offloads import begin, expected_counts, hour_after, open_world, schedule
from worlds import checkpoint, send, take_all, view
from zlib_ng.zlib_ng import crc32

from horolog.delay.state import HEADER_BYTES as HOUR_HEADER_BYTES
from horolog.protocol.commands import Recall, RecallStatus
from horolog.protocol.tier_commands import CommitOffload
from horolog.storage.api import read_file
from horolog.storage.flipped_bit import flipped_back, flipped_bit, is_intact

HEADER_BYTES = 24


def a_file(seed: int, body_bytes: int) -> bytes:
    random = Random(seed)
    body = random.randbytes(body_bytes)
    head = random.randbytes(HEADER_BYTES - 8) + crc32(body).to_bytes(4, "little")
    return head + crc32(head).to_bytes(4, "little") + body


def flipped(content: bytes, *bits: int) -> bytes:
    found = bytearray(content)
    for bit in bits:
        found[bit // 8] ^= 1 << bit % 8
    return bytes(found)


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 300])
def test_every_bit_of_a_content_and_its_sum_is_found(length: int) -> None:
    content = Random(length).randbytes(length)
    whole = content + crc32(content).to_bytes(4, "little")
    for bit in range(8 * len(whole)):
        rotten = flipped(whole, bit)
        crc = int.from_bytes(rotten[length:], "little")
        assert flipped_bit(rotten[:length], crc) == (bit // 8, bit % 8)


def test_a_flipped_bit_of_header_or_body_or_one_of_each_is_put_right() -> None:
    content = a_file(1, 100)
    assert is_intact(content, HEADER_BYTES)
    bits = 8 * len(content)
    for bit in range(bits):
        rotten = flipped(content, bit)
        assert not is_intact(rotten, HEADER_BYTES)
        assert flipped_back(rotten, HEADER_BYTES) == content
        if bit < 8 * HEADER_BYTES:
            both = flipped(rotten, 8 * HEADER_BYTES + bit)
            assert flipped_back(both, HEADER_BYTES) == content


@pytest.mark.parametrize("length", [0, HEADER_BYTES - 1, HEADER_BYTES, HEADER_BYTES + 1, 99])
def test_what_is_too_short_is_not_put_right(length: int) -> None:
    content = a_file(2, 100)[:length]
    assert not is_intact(content, HEADER_BYTES)
    assert flipped_back(content, HEADER_BYTES) is None


def test_two_bits_of_one_part_are_not_put_right() -> None:
    content = a_file(3, 400)
    for first in range(8 * HEADER_BYTES, 8 * len(content), 97):
        assert flipped_back(flipped(content, first, first + 5), HEADER_BYTES) is None


# --- state files where the log has been cut --------------------------------------------------------


def states_in(world, directory: str) -> list[str]:
    return [f"{directory}/{n}" for n in world.disk.list(directory) if ".state." in f".{n}"]


def assert_put_right(world, paths: list[str], pending: int) -> None:
    """A start puts these right, whichever bit it is, and loses nothing; the next one finds them whole."""
    assert paths
    intact = [read_file(world.disk, path) for path in paths]
    bits = 8 * min(len(content) for content in intact)
    for at in (0, 8 * 13 + 5, 8 * 30 + 1, bits // 2, bits - 1):
        for path in paths:
            world.disk.flip(path, at // 8, at % 8)
        world.reopen()
        assert "recovery row 12" in world.broker.reports[-1]
        shown = view(world)
        assert (shown.pending, shown.problems, shown.repairs) == (pending, [], 1)
        assert [read_file(world.disk, path) for path in paths] == intact
        world.reopen(power_cut=True)
        assert "recovery row 12" not in world.broker.reports[-1]
        assert view(world).pending == pending


def test_row_12_a_flipped_bit_in_the_state_of_an_hour_costs_nothing(make_world) -> None:
    """P2: the CRC of the file says which bit it is."""
    world = cut_world(make_world)
    assert_put_right(world, states_of_hour(world, world.due), 44)
    world.clock.advance(60 * HOUR)
    world.broker.settle()
    got = sorted(i for i in take_all(world) if i.startswith(("old", "young")))
    assert len(got) == len(set(got)) == 44
    assert "young-due0" not in got  # it was recalled


def test_row_12_a_flipped_bit_in_the_state_of_a_run_costs_nothing(make_world) -> None:
    world = cut_world(make_world, buffer_bytes=8_192)
    for i in (2, 5):
        cancelled = world.broker.ask(Recall("t", f"old-far{i}", world.far))
        assert cancelled.status is RecallStatus.CANCELLED
    for _ in range(2):
        send(world, "tail", 1)
        checkpoint(world)
    assert_put_right(world, states_in(world, "shard-00/runs"), 42)
    world.clock.advance(60 * HOUR)
    world.broker.settle()
    got = sorted(i for i in take_all(world) if i.startswith("old-far"))
    assert got == [f"old-far{i}" for i in range(10) if i not in (2, 5)]


def offloaded_world(make_world):
    """The lake has messages, and retention has dropped the beginning of the log."""
    world = open_world(make_world)
    schedule(world, 120)
    offload = begin(world, hour_after(world, 48 * HOUR))
    world.broker.ask(CommitOffload(offload.offload_id, 100, "lake"))
    world.broker.settings = world.broker.settings._replace(retention_bytes=1, dedup_ms=0)
    world.reopen()
    for i in range(4):
        send(world, f"filler{i}-", 300)
        checkpoint(world)
    return world


def test_row_12_a_flipped_bit_in_the_state_of_the_lake_costs_nothing(make_world) -> None:
    world = offloaded_world(make_world)
    assert view(world).log_start > 0
    counts = expected_counts(world)
    assert_put_right(world, states_in(world, "shard-00/runs"), 120)
    assert expected_counts(world) == counts


def test_row_12_a_damaged_state_of_the_lake_is_reported(make_world) -> None:
    """Its messages were not counted any more, without a word, at every start again."""
    world = offloaded_world(make_world)
    (path,) = [path for path in states_in(world, "shard-00/runs") if "lake" in path]
    before = view(world).pending
    waiting = world.broker.shard.tier.waiting
    assert waiting > 50
    world.disk.crash(power_cut=False)
    world.disk.flip(path, 40, 1, 2, 3)
    for _ in range(2):
        world.broker.open()
        (said,) = view(world).problems
        assert f"{waiting} of {waiting} messages due" in said
        assert "state 1 of the lake is missing or damaged" in said
        assert view(world).pending == before - waiting
        send(world, "more", 1)
        checkpoint(world)
        checkpoint(world)
        world.disk.crash(power_cut=False)
    assert sum("set aside as" in each for each in world.broker.reports) == 1


def test_row_12_what_does_not_agree_with_its_counts_is_not_put_right(make_world) -> None:
    """Two states are exchanged for others, and the sum made to name a single bit: it is quarantined."""
    world = cut_world(make_world)
    for path in states_of_hour(world, world.due):
        content = bytearray(read_file(world.disk, path))
        content[-2:] = bytes([1, 1])
        sums = struct.pack("<I", crc32(content[HOUR_HEADER_BYTES:]))
        content[HOUR_HEADER_BYTES - 8 : HOUR_HEADER_BYTES - 4] = sums
        sums = struct.pack("<I", crc32(content[: HOUR_HEADER_BYTES - 4]))
        content[HOUR_HEADER_BYTES - 4 : HOUR_HEADER_BYTES] = sums
        content[-1] ^= 4
        world.disk.open(path).write(0, bytes(content))
    world.reopen()
    assert "10 of 14 messages due" in view(world).problems[0]
