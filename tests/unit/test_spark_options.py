"""Numbers in the options of the Spark sources and the sink."""

from __future__ import annotations

import pytest

from horolog.errors import ErrorCode, HorologError
from horolog.spark.given_options import Given
from horolog.spark.sink_options import sink_options

SINK = {"broker": "http://127.0.0.1:8090", "topic": "t"}


@pytest.mark.parametrize(
    "text", ["0", "-1", "²", "٣", "0" * 19 + "1" + "9" * 40, "9" * 5_000, "1" + "0" * 19]
)
def test_a_count_is_a_number_above_0(text: str) -> None:
    """Only the first twenty digits were compared with the limits, and all of them were taken."""
    given = Given({"rows": text}, ["rows"])
    with pytest.raises(HorologError) as caught:
        given.count("rows", 1)
    assert (caught.value.code, caught.value.field) == (ErrorCode.BAD_REQUEST, "rows")
    with pytest.raises(HorologError) as caught:
        sink_options({**SINK, "rowsPerFile": text})
    assert (caught.value.code, caught.value.field) == (ErrorCode.BAD_REQUEST, "rowsPerFile")


def test_numbers_within_the_limits() -> None:
    assert Given({"rows": "007"}, ["rows"]).count("rows", 1) == 7
    assert sink_options({**SINK, "rowsPerFile": "10000000"}).rows_per_file == 10_000_000
    assert Given({"queues": "5, 0,5"}, ["queues"]).queues() == (0, 5)


@pytest.mark.parametrize("text", ["0,", "0,²", "0,٣", "-1", "0," + "9" * 5_000])
def test_queues_are_a_list_of_numbers(text: str) -> None:
    with pytest.raises(HorologError) as caught:
        Given({"queues": text}, ["queues"]).queues()
    assert caught.value.field == "queues"
