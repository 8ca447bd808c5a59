"""Names of topics and groups (`protocol.rocketmq.names`)."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.errors import ErrorCode, HorologError
from horolog.protocol.rocketmq.names import SYSTEM_TOPICS, check_group, check_topic

Check = Callable[[str], str]
BOTH: list[tuple[Check, str, int, ErrorCode]] = [
    (check_topic, "topic", 127, ErrorCode.ILLEGAL_TOPIC),
    (check_group, "consumer group", 120, ErrorCode.ILLEGAL_GROUP),
]


@pytest.mark.parametrize(("check", "field", "limit", "code"), BOTH)
class TestNames:
    def test_good_ones(self, check: Check, field: str, limit: int, code: ErrorCode) -> None:
        for name in ("a", "A-b_c|d%e9", "%RETRY%group", "a" * limit):
            assert check(name) == name

    def test_one_character_too_long(
        self, check: Check, field: str, limit: int, code: ErrorCode
    ) -> None:
        with pytest.raises(HorologError) as caught:
            check("a" * (limit + 1))
        assert caught.value.code is code
        assert caught.value.field == field
        assert caught.value.limit == f"{limit} characters"
        assert str(limit) in str(caught.value)

    @pytest.mark.parametrize(
        "name", ["", " ", "a b", "a\n", "a.b", "ü", "a/b", "a\0", "٣", "\ud800", "a" * 100_000]
    )
    def test_bad_ones(
        self, check: Check, field: str, limit: int, code: ErrorCode, name: str
    ) -> None:
        with pytest.raises(HorologError) as caught:
            check(name)
        assert caught.value.code is code
        assert caught.value.field == field

    def test_a_refusal_is_not_remembered_as_good(
        self, check: Check, field: str, limit: int, code: ErrorCode
    ) -> None:
        for _ in range(2):
            with pytest.raises(HorologError):
                check("a b")


@pytest.mark.parametrize("name", [*sorted(SYSTEM_TOPICS), "rmq_sys_anything"])
def test_system_topics(name: str) -> None:
    with pytest.raises(HorologError, match="system topic") as caught:
        check_topic(name)
    assert caught.value.code is ErrorCode.ILLEGAL_TOPIC


def test_topics_of_traces_may_be_used() -> None:
    for name in ("RMQ_SYS_TRACE_TOPIC", "rmq_sys_TRACE_DATA_DefaultRegion"):
        assert check_topic(name) == name


@pytest.mark.parametrize("name", ["TOOLS_CONSUMER", "CID_RMQ_SYS_TRANS", "CID_ONSAPI_PULL"])
def test_system_groups(name: str) -> None:
    with pytest.raises(HorologError, match="system group") as caught:
        check_group(name)
    assert caught.value.code is ErrorCode.ILLEGAL_GROUP


@given(st.text(max_size=140))
def test_any_text(name: str) -> None:
    for check, _, limit, code in BOTH:
        try:
            assert check(name) == name
        except HorologError as error:
            assert error.code is code
        else:
            assert re.fullmatch(rf"[A-Za-z0-9%|_-]{{1,{limit}}}", name)
