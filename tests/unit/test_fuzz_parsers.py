"""Every parser of bytes against its written invariant: any bytes give a value or exactly the stated errors."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.delay.state import decode_state, empty_heads, encode_state
from horolog.errors import ErrorCode, HorologError
from horolog.log import record
from horolog.log.checkpoint import COLUMNS, Checkpoint, decode_checkpoint, encode_checkpoint
from horolog.log.frame import HEADER_BYTES, body_intact, parse, seal
from horolog.ready.receipt import (
    Receipt,
    decode_receipt,
    decode_receipts,
    encode_receipt,
    encode_receipts,
)

ANY = st.binary(max_size=400)


@given(ANY, st.integers(0, 500))
def test_frame_header_of_any_bytes_is_none(content, at) -> None:
    assert parse(content, at) is None, "64 random bytes with a right magic and CRC do not happen"


@given(ANY, st.integers(0, 1 << 40), st.integers(0, HEADER_BYTES * 8 - 1))
def test_a_frame_header_comes_back_and_no_flipped_bit_is_overlooked(body, base, bit) -> None:
    head = seal(
        log_id=7, shard=0, base=base, durable=base, append_ms=1, epoch=2, count=3, body=body
    )
    found = parse(head)
    assert found is not None
    assert (found.base, found.count, found.length, found.epoch) == (base, 3, len(body), 2)
    assert body_intact(found, body)
    assert not body_intact(found, body + b"x")
    broken = bytearray(head)
    broken[bit // 8] ^= 1 << bit % 8
    assert parse(bytes(broken)) is None


@given(ANY, st.integers(1, 40))
def test_records_of_any_body_add_up_or_are_damage(body, count) -> None:
    try:
        offsets = record.offsets_of(body, count)
    except HorologError as error:
        assert error.code is ErrorCode.DAMAGED
        return
    sizes = [int.from_bytes(body[at : at + 4], "little") for at in offsets.tolist()]
    assert all(size >= record.ENVELOPE_BYTES for size in sizes)
    assert sum(sizes) == len(body)


@given(st.lists(st.integers(0, 60), min_size=1, max_size=20))
def test_record_offsets_of_bodies_that_add_up(lengths) -> None:
    body = b"".join(record.ENVELOPE.pack(16 + n, 1, 0, 0, 0) + bytes(n) for n in lengths)
    offsets = record.offsets_of(body, len(lengths)).tolist()
    assert offsets == [sum(16 + n for n in lengths[:i]) for i in range(len(lengths))]


@given(ANY)
def test_checkpoint_and_state_of_any_bytes_are_none(content) -> None:
    assert decode_checkpoint(content) is None
    assert decode_checkpoint(b"HLCK" + content) is None
    assert decode_state(content) is None
    assert decode_state(b"HLST" + content) is None


def checkpoint() -> Checkpoint:
    columns = {name: np.zeros(2, dtype) for name, dtype in COLUMNS.items()}
    return Checkpoint(0, 1, 2, 300, 200, 300, 4, {"topics": []}, columns)


def test_every_flipped_byte_of_a_checkpoint_is_noticed() -> None:
    content = encode_checkpoint(checkpoint())
    found = decode_checkpoint(content)
    assert found is not None
    assert (found.position, found.registry) == (300, {"topics": []})
    for at in range(len(content)):
        broken = bytearray(content)
        broken[at] ^= 0x10
        assert decode_checkpoint(bytes(broken)) is None
        assert decode_checkpoint(content[:at]) is None


@pytest.mark.parametrize("version", [3, 65_535])
def test_files_of_a_newer_version_are_refused_not_ignored(version) -> None:
    from zlib_ng.zlib_ng import crc32

    from horolog.delay.state import HourState

    def newer(content: bytes, head: int) -> bytes:
        changed = content[:4] + version.to_bytes(2, "little") + content[6:head]
        return changed + crc32(changed).to_bytes(4, "little") + content[head + 4 :]

    state = HourState(1, 0, 0, 0, 0, empty_heads(), {}, np.zeros(0, np.uint8))
    for decode, content in (
        (decode_checkpoint, newer(encode_checkpoint(checkpoint()), 64)),
        (decode_state, newer(encode_state(state), 52)),
    ):
        with pytest.raises(HorologError) as caught:
            decode(content)
        assert caught.value.code is ErrorCode.VERSION_UNSUPPORTED
        assert str(version) in caught.value.message


@given(st.one_of(st.text(max_size=120), st.from_regex(r"[A-Za-z0-9_-]{60,72}\Z")))
def test_receipts_of_any_text_are_refused(text) -> None:
    with pytest.raises(HorologError) as caught:
        decode_receipt(text)
    assert caught.value.code is ErrorCode.INVALID_RECEIPT_HANDLE


u32 = st.integers(0, (1 << 32) - 1)


@given(
    st.builds(
        Receipt, u32, u32, u32, u32, u32, u32, st.integers(0, 1 << 62), st.integers(0, 1 << 50)
    )
)
def test_receipts_come_back(receipt) -> None:
    assert decode_receipt(encode_receipt(receipt)) == receipt


@given(st.lists(st.tuples(st.integers(0, 1 << 62), u32, u32), max_size=5), st.data())
def test_receipts_that_are_read_together_are_those_read_alone(grants, data) -> None:
    """Whatever one of them is instead of a receipt."""
    texts = encode_receipts((1, 2, 3), 4, 5, grants)
    alone = [Receipt(1, 2, 3, attempt, grant, 4, at, 5) for at, attempt, grant in grants]
    assert texts == [encode_receipt(receipt) for receipt in alone]
    assert list(decode_receipts(texts)) == alone
    if not texts:
        return
    at = data.draw(st.integers(0, len(texts) - 1))
    changed = list(texts[at])
    changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.sampled_from("A=-é \n+"))
    texts[at] = "".join(changed)
    together = list(decode_receipts(texts))
    for text, found in zip(texts, together, strict=True):
        try:
            assert decode_receipt(text) == found
        except HorologError as error:
            assert isinstance(found, HorologError)
            assert found.message == error.message
