"""Stored properties (`protocol.rocketmq.properties`)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from horolog.protocol.rocketmq import properties

TEXT = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), max_size=30)


def test_stored_form() -> None:
    assert properties.encode({}) == b""
    assert properties.encode({"a": "1", "ü": ""}) == b"a\x011\x02\xc3\xbc\x01\x02"


def test_tolerates_what_other_writers_do() -> None:
    assert properties.decode(b"") == {}
    assert properties.decode(b"a\x011") == {"a": "1"}, "the last separator is optional"
    assert properties.decode(b"\x02\x02a\x011\x02\x02") == {"a": "1"}, "empty pieces"
    assert properties.decode(b"junk\x02a\x011\x02") == {"a": "1"}, "a piece without a separator"
    assert properties.decode(b"a\x01b\x01c\x02") == {"a": "b\x01c"}
    assert properties.decode(b"a\x011\x02a\x012\x02") == {"a": "2"}, "the last one counts"


@given(st.dictionaries(TEXT, TEXT, max_size=8))
def test_round_trip(user: dict[str, str]) -> None:
    assert properties.decode(properties.encode(user)) == user


@given(st.binary(max_size=200))
def test_any_bytes(stored: bytes) -> None:
    for name, value in properties.decode(stored).items():
        assert "\x02" not in name + value
        assert "\x01" not in name


def test_reserved_names() -> None:
    assert len(properties.RESERVED) == 51
    assert {"KEYS", "TAGS", "UNIQ_KEY", "TIMER_DELIVER_MS", "__CRC32#"} < properties.RESERVED
    assert properties.RESERVED < properties.HIDDEN
    for name in properties.HIDDEN:
        assert name
        assert name == name.strip()
