"""HPACK: the examples of RFC 7541 appendix C, faults, and bounds (P11)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.protocol.http2 import huffman
from horolog.protocol.http2.faults import HpackFault
from horolog.protocol.http2.hpack import (
    LOWERED,
    STATIC,
    TABLE_BYTES,
    Decoder,
    decode_integer,
    encode,
    encode_integer,
)

DATE_21 = (b"date", b"Mon, 21 Oct 2013 20:13:21 GMT")
DATE_22 = (b"date", b"Mon, 21 Oct 2013 20:13:22 GMT")
PLACE = (b"location", b"https://www.example.com")
PRIVATE = (b"cache-control", b"private")
COOKIE = (b"set-cookie", b"foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1")
GET = [(b":method", b"GET"), (b":scheme", b"http"), (b":path", b"/")]
SITE = (b":authority", b"www.example.com")
REQUESTS = [
    [*GET, SITE],
    [*GET, SITE, (b"cache-control", b"no-cache")],
    [
        (b":method", b"GET"),
        (b":scheme", b"https"),
        (b":path", b"/index.html"),
        SITE,
        (b"custom-key", b"custom-value"),
    ],
]
RESPONSES = [
    [(b":status", b"302"), PRIVATE, DATE_21, PLACE],
    [(b":status", b"307"), PRIVATE, DATE_21, PLACE],
    [(b":status", b"200"), PRIVATE, DATE_22, PLACE, (b"content-encoding", b"gzip"), COOKIE],
]
SINGLE = [  # C.2: one field, and the table after it
    ("400a637573746f6d2d6b65790d637573746f6d2d686561646572", (b"custom-key", b"custom-header"), 55),
    ("040c2f73616d706c652f70617468", (b":path", b"/sample/path"), 0),
    ("100870617373776f726406736563726574", (b"password", b"secret"), 0),
    ("82", (b":method", b"GET"), 0),
]
SERIES = {
    "C.3 requests": (
        TABLE_BYTES,
        REQUESTS,
        [
            "828684410f7777772e6578616d706c652e636f6d",
            "828684be58086e6f2d6361636865",
            "828785bf400a637573746f6d2d6b65790c637573746f6d2d76616c7565",
        ],
        [57, 110, 164],
    ),
    "C.4 requests, Huffman": (
        TABLE_BYTES,
        REQUESTS,
        [
            "828684418cf1e3c2e5f23a6ba0ab90f4ff",
            "828684be5886a8eb10649cbf",
            "828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf",
        ],
        [57, 110, 164],
    ),
    "C.5 responses, table of 256 bytes": (
        256,
        RESPONSES,
        [
            "4803333032580770726976617465611d4d6f6e2c203231204f637420323031332032303a31333a323120474d54"
            "6e1768747470733a2f2f7777772e6578616d706c652e636f6d",
            "4803333037c1c0bf",
            "88c1611d4d6f6e2c203231204f637420323031332032303a31333a323220474d54c05a04677a69707738666f6f"
            "3d4153444a4b48514b425a584f5157454f50495541585157454f49553b206d61782d6167653d333630303b2076"
            "657273696f6e3d31",
        ],
        [222, 222, 215],
    ),
    "C.6 responses, Huffman, table of 256 bytes": (
        256,
        RESPONSES,
        [
            "488264025885aec3771a4b6196d07abe941054d444a8200595040b8166e082a62d1bff6e919d29ad17"
            "1863c78f0b97c8e9ae82ae43d3",
            "4883640effc1c0bf",
            "88c16196d07abe941054d444a8200595040b8166e084a62d1bffc05a839bd9ab77ad94e7821dd7f2e6c7b335df"
            "dfcd5b3960d5af27087f3672c1ab270fb5291f9587316065c003ed4ee5b1063d5007",
        ],
        [222, 222, 215],
    ),
}


def size_of(decoder: Decoder) -> int:
    decoder.check_invariants()
    return decoder._size


@pytest.mark.parametrize(  # C.1
    ("value", "prefix_bits", "raw"), [(10, 5, "0a"), (1337, 5, "1f9a0a"), (42, 8, "2a")]
)
def test_an_integer_of_the_rfc(value, prefix_bits, raw) -> None:
    assert encode_integer(value, prefix_bits, 0).hex() == raw
    assert decode_integer(bytes.fromhex(raw), 0, prefix_bits) == (value, len(raw) // 2)


@pytest.mark.parametrize(("block", "field", "size"), SINGLE)
def test_a_single_field_of_the_rfc(block, field, size) -> None:
    decoder = Decoder(16_384)
    assert decoder.decode(bytes.fromhex(block)) == [field]
    assert size_of(decoder) == size


@pytest.mark.parametrize("name", SERIES)
def test_a_series_of_the_rfc(name) -> None:
    table, lists, blocks, sizes = SERIES[name]
    decoder = Decoder(16_384, table)
    for fields, block, size in zip(lists, blocks, sizes, strict=True):
        assert decoder.decode(bytes.fromhex(block)) == fields
        assert size_of(decoder) == size


@pytest.mark.parametrize(
    ("block", "why"),
    [
        ("80", "index 0"),
        ("be", "index 62"),
        ("ff80808080808080808001", "too large"),
        ("00", "cut short"),
        ("400a6375", "cut short"),
        ("7f", "cut short"),
        ("823fe11f", "after a field"),
        ("3fe21f", "at most 4096"),
        ("0084ffffffff00", "end-of-string"),
        ("0082ffff00", "seven bits"),
        ("00811800", "zeros"),
    ],
)
def test_a_block_that_cannot_be_read_says_why(block, why) -> None:
    with pytest.raises(HpackFault, match=why):
        Decoder(16_384).decode(bytes.fromhex(block))


def test_a_list_that_is_too_long_changes_the_table_and_is_not_kept() -> None:
    decoder = Decoder(100)
    assert decoder.decode(bytes.fromhex(SINGLE[0][0])) is not None
    assert decoder.decode(b"\xbe" * 10_000) is None
    assert decoder.decode(b"\xbe") == [SINGLE[0][1]]


def test_a_smaller_table_forgets_the_oldest() -> None:
    decoder = Decoder(16_384)
    decoder.decode(bytes.fromhex(SINGLE[0][0]))
    assert decoder.decode(LOWERED) == []
    assert size_of(decoder) == 0
    with pytest.raises(HpackFault, match="index 62"):
        decoder.decode(b"\xbe")


FIELDS = st.lists(
    st.one_of(
        st.sampled_from(STATIC),
        st.tuples(st.binary(min_size=1, max_size=40), st.binary(max_size=300)),
    ),
    max_size=20,
)


@given(FIELDS)
def test_what_is_encoded_is_decoded(fields) -> None:
    decoder = Decoder(1 << 20)
    assert decoder.decode(encode(fields)) == fields
    assert size_of(decoder) == 0, "the encoder adds nothing to the table"


@given(st.lists(st.binary(max_size=60), max_size=8))
def test_any_bytes_are_fields_or_a_fault(blocks) -> None:
    decoder = Decoder(1_000)
    for block in blocks:
        try:
            fields = decoder.decode(block)
        except HpackFault:
            break
        assert fields is None or all(name is not None for name, _ in fields)
    decoder.check_invariants()


@given(st.binary(max_size=200))
def test_any_bytes_are_a_huffman_string_or_a_fault(text) -> None:
    try:
        found = huffman.decode(text)
    except HpackFault:
        return
    assert len(found) <= len(text) * 8 // 5


def test_the_huffman_code_is_complete() -> None:
    """Kraft's sum is one: every sequence of bits begins with exactly one code."""
    assert sum(2.0**-length for length in huffman.LENGTHS) == 1
