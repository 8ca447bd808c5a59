"""One flipped bit of the commit log costs nothing (P2): at a start, while the broker runs, and for a salvage."""

from __future__ import annotations

from random import Random

import orjson
import pytest
from worlds import checkpoint, send, take_all, view
from zlib_ng.zlib_ng import crc32

from horolog.broker.life.salvage import survey
from horolog.errors import HorologError
from horolog.log.flipped_frame import flipped_frame
from horolog.log.frame import HEADER_BYTES, FrameHeader, parse, seal
from horolog.log.record import HEAD_BYTES
from horolog.protocol.commands import CreateTopic, TopicType
from horolog.storage.api import replace_file
from horolog.verify.directory import verify_directory

LOG = "shard-00/log/00000000000000000000.log"
IDS = [f"{name}{i}" for name in ("a", "b", "c") for i in range(5)]


def content_of(world) -> bytes:
    file = world.disk.open(LOG)
    return file.read(0, file.size())


def frames(world) -> list[FrameHeader]:
    """Those of the first segment."""
    content, found, at = content_of(world), [], 0
    while (header := parse(content, at)) is not None:
        found.append(header)
        at = header.end
    return found


def filled(world):
    """Fifteen messages in three frames, of which the log says itself that they are durable."""
    world.broker.ask(CreateTopic("t", TopicType.MIXED, 1))
    for name in ("a", "b", "c"):
        send(world, name, 5)
    world.clock.advance(150)
    world.broker.settle()
    return world


def flip(world, at: int, *bits: int) -> None:
    world.disk.flip(LOG, at, *bits)


def every_place(header: FrameHeader, seed: int) -> list[tuple[int, int]]:
    """(byte, bit): a seventh of the header, and sixty of the body."""
    bits = 8 * HEADER_BYTES, 8 * (HEADER_BYTES + header.length)
    chosen = [*range(seed, bits[0], 7), *Random(seed).sample(range(*bits), 60)]
    return [(header.base + bit // 8, bit % 8) for bit in chosen]


def test_any_bit_of_the_tail_is_put_right_by_a_start(world) -> None:
    """Where two bits are damage that a start refuses (row 4), as everything there was promised."""
    filled(world)
    header = next(each for each in frames(world) if each.count == 5)
    whole = content_of(world)[: header.end]
    for at, bit in every_place(header, 1):
        flip(world, at, bit)
        world.reopen()
        shown = view(world)
        assert (shown.problems, shown.holes, shown.repairs) == ([], 0, 1), (at, bit)
        assert content_of(world)[: header.end] == whole, "and written again as it was"
    assert take_all(world) == IDS
    flip(world, header.base + 90, 1, 4)
    with pytest.raises(HorologError, match=f"damaged at log position {header.base}"):
        world.reopen()


@pytest.mark.parametrize("running", [True, False])
def test_any_bit_below_the_checkpoint_is_put_right_when_it_is_read(world, running) -> None:
    filled(world)
    checkpoint(world)
    header = next(each for each in frames(world) if each.count == 5)
    whole = content_of(world)[: header.end]
    world.reopen()
    for number, (at, bit) in enumerate(every_place(header, 2)[::4]):
        if running:
            world.reopen()
        flip(world, at, bit)
        if not running:
            world.reopen()
        assert take_all(world, f"g{number}") == IDS, (at, bit)
        shown = view(world)
        assert (shown.problems, shown.holes, shown.repairs) == ([], 0, 1)
        assert content_of(world)[: header.end] == whole


def test_a_disk_that_keeps_the_bit_costs_nothing_either(world) -> None:
    filled(world)
    checkpoint(world)
    world.reopen()
    header = next(each for each in frames(world) if each.count == 5)
    flip(world, header.base + HEADER_BYTES + 99, 3)
    world.disk.fail_next("write")
    assert take_all(world) == IDS
    assert view(world).repairs == 1


def test_a_salvage_finds_nothing_to_give_up(world) -> None:
    filled(world)
    header = next(each for each in frames(world) if each.count == 5)
    flip(world, header.base + 30, 2)
    assert not survey(world.disk, "shard-00", world.broker.meta).lost


@pytest.mark.parametrize("at", [30, HEADER_BYTES + 40])
def test_verify_distinguishes_it_from_other_damage(world, at) -> None:
    filled(world)
    checkpoint(world)
    meta = {"format": 1, "log_id": "5eed5eed5eed5eed", "shards": 1, "clock": "simulated"}
    meta["segment_bytes"] = world.broker.meta.segment_bytes
    replace_file(world.disk, "", "meta", orjson.dumps(meta))
    header = next(each for each in frames(world) if each.count == 5)
    flip(world, header.base + at, 2)
    assert "one flipped bit" in verify_directory(world.disk).findings.kept[0].what
    flip(world, header.base + at, 3)
    assert "one flipped bit" not in verify_directory(world.disk).findings.kept[0].what


def test_what_looks_like_a_flipped_bit_and_holds_no_such_records_is_damage(world) -> None:
    """A body of which more has changed, and a sum that some single bit would explain."""
    filled(world)
    header = next(each for each in frames(world) if each.count == 5)
    whole = content_of(world)
    log_id = world.broker.meta.log_id

    def found(body: bytearray, bit: int) -> bool:
        """Whether a frame of this body, whose sum was made before that bit was flipped, is believed."""
        sealed = seal(
            log_id=log_id,
            shard=0,
            base=header.base,
            durable=header.durable,
            append_ms=header.append_ms,
            epoch=header.epoch,
            count=header.count,
            body=body,
        )
        body[bit // 8] ^= 1 << bit % 8
        raw = sealed + bytes(body)
        read = lambda at, n: raw[at - header.base : at - header.base + n]  # noqa: E731
        return flipped_frame(read, log_id, header.base, header.end) is not None

    def body() -> bytearray:
        return bytearray(whole[header.base + HEADER_BYTES : header.end])

    assert found(body(), 700)
    other = body()
    other[HEAD_BYTES + 200] ^= 0xFF  # inside a message
    assert not found(other, 700)
    other = body()
    other[0] += 1  # the length of the first record
    assert not found(other, 700)
    other = body()
    other[4] = 99  # its kind
    assert not found(other, 700)
    assert crc32(bytes(body())) == header.body_crc
