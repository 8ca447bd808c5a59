"""One flipped bit of `meta` costs nothing: a start writes it again, as the log and its checkpoints say what was in it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

import pytest
from damaged_log import open_directory

from horolog.errors import ErrorCode, HorologError

DEADLINE_S = 60.0


def start(data_dir: Path) -> None:
    async def begin() -> None:
        engine = await open_directory(data_dir)
        await engine.stop()

    asyncio.run(asyncio.wait_for(begin(), DEADLINE_S))


def test_a_start_puts_a_flipped_bit_of_meta_right(data_dir: Path) -> None:
    meta = data_dir / "meta"
    right = meta.read_bytes()
    log_id = right.index(b'"log_id": "') + 11
    places = {log_id, log_id + 15, *Random(1).sample(range(len(right)), 12)}
    for at in sorted(places):
        for bit in (0, 2):
            flipped = bytearray(right)
            flipped[at] ^= 1 << bit
            meta.write_bytes(bytes(flipped))
            start(data_dir)
            now = meta.read_bytes()
            # Spaces may be other spaces, and a number of shards or a name that nobody asks for is passed over.
            assert now == right or now == bytes(flipped), (at, bit)
            if at in (log_id, log_id + 15):
                assert now == right
    meta.write_bytes(right)


def test_what_is_not_one_flipped_bit_is_refused(data_dir: Path) -> None:
    meta = data_dir / "meta"
    right = meta.read_bytes()
    at = right.index(b'"log_id": "') + 11
    other = bytearray(right)
    other[at : at + 2] = b"00" if other[at : at + 2] != b"00" else b"11"
    other[at + 5] ^= 1
    meta.write_bytes(bytes(other))
    with pytest.raises(HorologError) as refused:
        start(data_dir)
    assert refused.value.code is ErrorCode.DIRECTORY_FOREIGN
    assert meta.read_bytes() == bytes(other), "nothing was changed"
    meta.write_bytes(right)
    start(data_dir)
