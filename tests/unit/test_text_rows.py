"""Batches that are read as rows of bytes become what they become message by message."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from remoting_sends import batch_frame, item, stored

from horolog.limits import SHAPE_TEXT_MAX
from horolog.protocol.remoting.batch import form_of, rows_of
from horolog.protocol.remoting.batches import Batch, records_of_batches
from horolog.protocol.remoting.frame import Frame
from horolog.protocol.remoting.gathered import Site
from horolog.protocol.remoting.send import gather
from horolog.protocol.remoting.send_header import names_of, shared_by
from horolog.protocol.remoting.shapes import Shapes
from horolog.protocol.remoting.wanted import SendContext
from horolog.protocol.rocketmq.delays import DEFAULT_LEVELS, parse_levels

LEVELS = parse_levels(DEFAULT_LEVELS)
SITE = Site("broker-a", b"\x7f\0\0\1\0\0\x2a\x9f", LEVELS)
PEER = (b"\x0a\0\0\7", 4_711)
MANY = 96  # messages, of which it is worth it

ID = st.integers(0, 0xFF).map(lambda n: f"7F00{n:04X}")
VALUES: dict[str, st.SearchStrategy[str]] = {
    "UNIQ_KEY": ID,
    "KEYS": st.integers(10, 99).map(str),
    "TAGS": st.sampled_from(["TagA", "TagB"]),
    "WAIT": st.just("true"),
    "__SHARDINGKEY": st.sampled_from(["one", "two"]),
    "mine": st.sampled_from(["a b", "c,d"]),
}
DELAYS: dict[str, st.SearchStrategy[str]] = {
    "DELAY": st.integers(1, 9).map(str),
    "TIMER_DELAY_SEC": st.integers(100, 999).map(str),
    "TIMER_DELAY_MS": st.integers(10_000, 99_999).map(str),
    "TIMER_DELIVER_MS": st.integers(10**14, 10**15 - 1).map(str),
    "__STARTDELIVERTIME": st.integers(10**12, 10**13 - 1).map(str),
}
ODD = st.sampled_from(
    [
        "UNIQ_KEY\x017F0\x0200A\x02",
        "DELAY\x010\x02",
        "DELAY\x0119\x02",
        "TAGS\x01T\x00gA\x02",
        "TAGS\x01Täg\x02",
        "TAGS\x02TagA\x01",
        "KEYS\x01",
    ]
)


def frame_of(items: list[bytes], queue: int = 3, born: str = "1700000000000") -> Frame:
    frame = batch_frame(items)
    return frame._replace(fields=frame.fields | {"e": str(queue), "g": born})


@st.composite
def batches(draw: Any) -> list[Frame]:
    """A few batches whose messages are of one size, and at times one that is not as the others."""
    names = draw(st.lists(st.sampled_from(sorted(VALUES)), unique=True, max_size=5))
    names += draw(st.lists(st.sampled_from(sorted(DELAYS)), max_size=1))
    end = draw(st.sampled_from(["\x02", "\x02", ""])) if names else ""
    kinds = VALUES | DELAYS
    rows = draw(
        st.lists(
            st.tuples(
                st.binary(min_size=2, max_size=2),
                st.integers(-5, 5),
                *[kinds[name] for name in names],
            ),
            min_size=2,
            max_size=6,
        )
    )
    items = []
    for body, flag, *values in rows:
        pairs = [f"{name}\x01{value}" for name, value in zip(names, values, strict=True)]
        items.append(item(("\x02".join(pairs) + end).encode(), body, flag))
    frames = []
    for number in range(draw(st.integers(1, 2))):
        chosen = items[number % 2 :] * (MANY // (len(items) - 1))
        if draw(st.integers(0, 9)) == 0:
            at = draw(st.integers(0, len(chosen) - 1))
            chosen[at] = item(draw(ODD).encode(), draw(st.sampled_from([b"xx", b"xyz", b""])))
        frames.append(frame_of(chosen, draw(st.integers(-1, 3)), str(draw(st.integers(0, 9)))))
    return frames


def taught_by(frames: list[Frame]) -> Shapes:
    """Shapes that know the properties of the first message."""
    shapes = Shapes()
    form = form_of(frames[0].body)
    rows = rows_of([frames[0].body], form) if form else None
    if rows is not None:
        for _ in range(64):
            shapes.missed([rows.texts[0].tobytes()])
    return shapes


def made(frames: list[Frame], shapes: Shapes) -> Any:
    """What becomes of frames that came together."""
    ids = count()
    gathered, refused = gather(
        frames, PEER, SITE, lambda n: [b"NEW%06d" % next(ids) for _ in range(n)], shapes
    )
    commands = [(each.command, [bytes(name) for name in each.ids], each.taken) for each in gathered]
    return commands, [(frame, error.message, error.code) for frame, error in refused]


@given(batches())
@example([frame_of([item(b"", b"x") for _ in range(MANY)])] * 2)
def test_rows_become_what_messages_become(frames: list[Frame]) -> None:
    assert made(frames, taught_by(frames)) == made(frames, Shapes())


def rows_records(items: list[bytes], **changes: int) -> Any:
    """What is made of a batch as rows; None: it is for the other way."""
    frame = frame_of(items)
    of = names_of(frame.code)
    shared = shared_by(frame.code, *[frame.fields.get(of[i]) for i in (0, 1, 2, 4, 6, 7)])
    batch = Batch.of(frame, shared._replace(**changes), 7)
    context_of = lambda added: SendContext(LEVELS, added, lambda n: [b"NEW"] * n, b"DefaultCluster")  # noqa: E731
    return records_of_batches(
        [Batch.of(frame, shared, 7), batch], PEER, context_of, taught_by([frame])
    )


def text(number: int, **more: object) -> bytes:
    return stored({"UNIQ_KEY": f"0A{number:04X}", "TAGS": "TagA", "DELAY": 3, **more}).encode()


def test_what_is_usual_is_read_as_rows() -> None:
    usual = [item(text(n, TAGS="TagA" if n % 3 else "TagB"), b"%03d" % n) for n in range(MANY)]
    assert rows_records(usual) is not None
    assert rows_records(usual, queue_id=2) is not None


@pytest.mark.parametrize(
    "odd",
    [
        item(text(1, UNIQ_KEY="0A 001"), b"001"),
        item(text(1, TAGS="Ta\xe4"), b"001"),
        item(text(1, DELAY=0), b"001"),
        item(text(1, DELAY="x"), b"001"),
        item(text(1).replace(b"TAGS", b"TAGZ"), b"001"),
        item(text(1).replace(b"\x02TAGS", b"\x00TAGS"), b"001"),
        item(text(1, TAGS="Tag"), b"0011"),
    ],
)
def test_a_message_that_is_not_like_the_first_is_for_the_other_way(odd: bytes) -> None:
    items = [item(text(n), b"%03d" % n) for n in range(MANY)]
    assert rows_records([*items[:50], odd, *items[50:]]) is None


def test_what_batches_do_not_have_in_common_is_for_the_other_way() -> None:
    items = [item(text(n), b"%03d" % n) for n in range(MANY)]
    assert rows_records(items, sys_flag=1) is None
    assert rows_records(items, attempts=1) is None
    assert rows_records([item(text(n, DELAY=19), b"x") for n in range(MANY)]) is None
    long = [item(text(n, mine="v" * SHAPE_TEXT_MAX), b"x") for n in range(MANY)]
    assert rows_records(long) is None
    assert rows_records([item(text(n), b"") for n in range(MANY)]) is None
