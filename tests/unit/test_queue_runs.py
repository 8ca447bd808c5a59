"""Runs of a queue in a frame: few records are looked at one by one, many as columns, and both find the same."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from horolog.log import queue_runs
from horolog.log.record import HEAD_BYTES, KIND_AT, TOPIC_AT, Kind
from horolog.protocol.rocketmq import layout

SMALL = 40  # bytes of a control record, too few for what is read of a message
SIZE = HEAD_BYTES + layout.QUEUE_OFFSET_AT + 8

RECORDS = st.lists(
    st.tuples(
        st.sampled_from([Kind.MESSAGE, Kind.HANDED, Kind.SCHEDULED, Kind.ACK]),
        st.integers(1, 2),  # topic
        st.integers(0, 2),  # queue
        st.sampled_from([0, 1, 1, 1, 1, 2]),  # steps of the offset
        st.integers(0, 9),  # bytes of the body
    ),
    min_size=1,
    max_size=40,
)


def record(kind: Kind, topic: int, queue: int, offset: int, more: int) -> bytes:
    if kind is Kind.ACK:
        return bytes([0] * KIND_AT + [kind]).ljust(SMALL, b"\0")
    out = bytearray(SIZE + more)
    out[KIND_AT] = kind
    out[TOPIC_AT : TOPIC_AT + 4] = topic.to_bytes(4, "little")
    at = HEAD_BYTES + layout.QUEUE_ID_AT
    out[at : at + 4] = queue.to_bytes(4, "big")
    at = HEAD_BYTES + layout.QUEUE_OFFSET_AT
    out[at : at + 8] = offset.to_bytes(8, "big")
    return bytes(out)


@given(RECORDS)
def test_columns_find_what_is_found_one_by_one(
    records: list[tuple[Kind, int, int, int, int]],
) -> None:
    body, ends = b"", {}
    tails: dict[tuple[int, int], int] = {}
    for kind, topic, queue, step, more in records:
        offset = tails.get((topic, queue), 7) + step
        if kind in (Kind.MESSAGE, Kind.HANDED):
            tails[topic, queue] = offset
        one = record(kind, topic, queue, offset, more)
        ends[len(body)] = len(body) + len(one)
        body += one

    def runs(places: dict[tuple[int, int], tuple[int, list[int], int]]) -> object:
        rows = places.items()
        return {
            key: (first, starts)
            for key, (first, starts, last) in rows
            if last - first + 1 == len(starts)
        }

    slow, fast = queue_runs._places(body, ends), queue_runs._places_in_columns(body, ends)
    assert runs(fast) == runs(slow)
    assert fast.keys() == slow.keys()
