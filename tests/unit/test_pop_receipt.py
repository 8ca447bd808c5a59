"""Handles of pop consumers: made, taken apart as Java clients do, and found again after whatever a client does."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from horolog.errors import ErrorCode, HorologError
from horolog.ready.leases import Lease
from horolog.ready.pop_receipt import decode_pop, encode_pop, is_pop, resolved, serial_of
from horolog.ready.receipt import Receipt, encode_receipt

NOW = 1_700_000_000_000
EPOCHS = st.integers(1, 1 << 20)
GRANTS = st.integers(1, (1 << 32) - 1)


def receipt(epoch: int, grant: int, offset: int = 7, granted_ms: int = NOW) -> Receipt:
    return Receipt(3, 4, 5, 2, grant, epoch, offset, granted_ms + 60_000)


def lease(epoch: int, grant: int, granted_ms: int = NOW) -> Lease:
    return Lease(2, epoch << 32 | grant, 0, granted_ms, 60_000)


@given(EPOCHS, GRANTS, st.integers(0, 1 << 50))
def test_a_handle_names_its_lease(epoch: int, grant: int, offset: int) -> None:
    made = receipt(epoch, grant, offset)
    text = encode_pop(made, 60_000, "broker-a")
    assert is_pop(text)
    words = text.split(" ")
    assert len(words) == 8
    assert -(1 << 31) <= int(words[3]) < 1 << 31, "Java reads an int"
    assert words[4:7] == ["0", "broker-a", "5"]
    assert int(words[0]) == int(words[7]) == offset
    assert resolved(decode_pop(text), lease(epoch, grant), 3, 4, epoch + 9) == made


@given(EPOCHS, GRANTS, EPOCHS, GRANTS, st.integers(0, 3))
def test_a_newer_grant_voids_it(
    epoch: int, grant: int, newer_epoch: int, newer: int, later: int
) -> None:
    handle = decode_pop(encode_pop(receipt(epoch, grant), 60_000, "b"))
    assume(later or serial_of(epoch, grant) != serial_of(newer_epoch, newer))
    with pytest.raises(HorologError, match="given out again"):
        resolved(handle, lease(newer_epoch, newer, NOW + later), 3, 4, max(epoch, newer_epoch))


@given(st.integers(1, 1 << 20), st.integers(1, (1 << 24) - 1), st.integers(0, 126))
def test_a_lost_lease_is_found_by_the_handle_alone(epoch: int, grant: int, restarts: int) -> None:
    text = encode_pop(receipt(epoch, grant), 60_000, "b")
    found = resolved(decode_pop(text), None, 3, 4, epoch + restarts)
    assert (found.epoch, found.grant, found.offset) == (epoch, grant, 7)
    assert found.expires_ms == NOW + 60_000


@pytest.mark.parametrize(
    "text",
    [
        "a b",
        " " * 7,
        "1 2 3 4 0 b 5",
        "1 2 3 4 0 b 5 6 7",
        "1 x 3 4 0 b 5 6",
        "1 -2 3 4 0 b 5 6",
        "1 2 3 4 0 b ٥ 6",
        "1 2 3 4 0 b 5 " + "9" * 19,
    ],
)
def test_what_is_no_handle(text: str) -> None:
    with pytest.raises(HorologError) as error:
        decode_pop(text)
    assert error.value.code is ErrorCode.INVALID_RECEIPT_HANDLE


def test_the_handles_of_others_are_not_taken_for_one() -> None:
    assert not is_pop(encode_receipt(receipt(1, 1)))
