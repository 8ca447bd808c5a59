"""Messages that are read by their shape mean what they mean when they are read the full way."""

from __future__ import annotations

import time
from itertools import count
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st
from remoting_sends import batch_frame, item, send_frame, stored

from horolog import limits
from horolog.protocol.remoting.frame import Frame
from horolog.protocol.remoting.send import Site, gather
from horolog.protocol.remoting.shapes import PropertyShape, Shapes
from horolog.protocol.remoting.wanted import Wanted, Ways
from horolog.protocol.rocketmq.delays import DEFAULT_LEVELS, parse_levels

LEVELS = parse_levels(DEFAULT_LEVELS)
SITE = Site("broker-a", b"\x7f\0\0\1\0\0\x2a\x9f", LEVELS)
PEER = (b"\x0a\0\0\7", 4_711)
REAL = b"REAL_TOPIC\x01%t\x02REAL_QID\x013\x02"

DELAYS = ["DELAY", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS", "__STARTDELIVERTIME"]
ODD = ["POP_CK", "TRAN_MSG", "REAL_TOPIC", "REAL_QID", "TIMER_OUT_MS", "TIMER_X", "", "a.b*", "Ü"]
NAMES = st.sampled_from(["UNIQ_KEY", "TAGS", "KEYS", "WAIT", *DELAYS, *ODD])
NUMBERS = st.integers(-3, 30) | st.integers(0, 10**20)
VALUES = (
    NUMBERS.map(str)
    | st.sampled_from(["", "A1", "a b", "TagA", "true", "Ü", "007", "+5", "1_0", "x" * 41, "%b"])
    | st.text(st.characters(codec="utf-8"), max_size=4)
)


def ways(counter: Any) -> Ways:
    return Ways(LEVELS, REAL, lambda: f"NEW{next(counter)}")


@st.composite
def alike(draw: Any) -> list[bytes]:
    """Properties of messages with the same names, and now and then one with others."""
    names = draw(st.lists(NAMES, max_size=5))
    end = draw(st.sampled_from(["\x02", "\x02", ""]))
    found = []
    for _ in range(draw(st.integers(1, 4))):
        told = [f"{name}\x01{draw(VALUES)}" for name in names]
        found.append("\x02".join(told) + (end if told else ""))
    if draw(st.integers(0, 9)) == 0:
        found.append(draw(st.text("\x00\x01\x02ADELY5", max_size=12)))
    return [text.encode() for text in found]


def plain(message: int, **more: object) -> bytes:
    return stored({"UNIQ_KEY": f"0A{message}", "TAGS": "x", **more}).encode()


@given(alike())
@example([plain(1, DELAY=18), plain(2, DELAY=19)])
@example([plain(1, TIMER_DELIVER_MS=10**15 - 1), plain(2, TIMER_DELIVER_MS=5)])
@example([b"", b""])
@example([b"WAIT\x01true", b"WAIT\x01\x00WAIT\x01"])
@example([b"WAIT\x01true\x02", b"WAIT\x01\xff\x02"])
def test_a_shape_reads_what_the_full_way_reads(texts: list[bytes]) -> None:
    shapes = Shapes()
    for _ in range(64):
        shapes.missed(texts)
    quick = shapes.read(texts, ways(count()))
    shapes.check_invariants()
    if quick is None:
        return
    full = Wanted.of(texts, ways(count()))
    assert [list(column) for column in quick] == [list(column) for column in full]


def test_what_is_usual_is_read_by_its_shape() -> None:
    for name in DELAYS:
        shape = PropertyShape.of(plain(1, **{name: 5}))
        assert shape is not None
        texts = [plain(7, **{name: 3}), plain(12345, **{name: 12})]
        wanted = shape.read(b"\0%b\0" % b"\0".join(texts), texts, ways(count()))
        assert wanted is not None, name
        assert wanted.ids == (b"0A7", b"0A12345")


def test_shapes_are_bounded_and_learned_ever_more_rarely() -> None:
    shapes, learned = Shapes(), 0
    for number in range(20_000):
        text = b"name%d\x01value\x02" % number
        shapes.missed([text])
        learned += shapes.read([text], ways(count())) is not None
        shapes.check_invariants()
    assert len(shapes._known) == limits.SHAPES_MAX
    assert learned < 10
    assert PropertyShape.of(b"a\x01b\x02" * 2) is None
    many = b"".join(b"name%d\x01v\x02" % n for n in range(limits.SHAPE_NAMES_MAX + 1))
    assert PropertyShape.of(many) is None
    assert PropertyShape.of(b"a\x01" + b"x" * limits.SHAPE_TEXT_MAX) is None


def test_a_text_that_nearly_matches_takes_linear_time() -> None:
    names = b"".join(b"n%d\x01v\x02" % n for n in range(limits.SHAPE_NAMES_MAX))
    shape = PropertyShape.of(names)
    assert shape is not None

    def took(times: int) -> float:
        texts = [names[:-3] + b"x" * 500] * times
        joined = b"\0%b\0" % b"\0".join([names, *texts])
        began = time.thread_time()
        assert shape.read(joined, [names, *texts], ways(count())) is None
        return time.thread_time() - began

    assert took(4_000) < 40 * max(took(400), 0.001)


def made(frames: list[Frame], shapes: Shapes) -> Any:
    """What becomes of frames that came together."""
    ids = count()
    gathered, refused = gather(frames, PEER, SITE, lambda: f"NEW{next(ids)}", shapes)
    return gathered, [(frame, error.message, error.code) for frame, error in refused]


ITEMS = st.lists(
    st.tuples(alike(), st.sampled_from([b"x", b"yy", b"x", b""]), st.integers(-5, 5)), max_size=3
)


@given(st.lists(ITEMS, min_size=1, max_size=3), st.binary(max_size=3))
def test_batches_and_their_refusals_are_the_same(batches: list[Any], rest: bytes) -> None:
    taught, frames = Shapes(), []
    for batch in batches:
        items = []
        for texts, body, flag in batch:
            items += [item(text, body, flag) for text in texts]
            for _ in range(70 if body == b"x" else 0):
                taught.missed(texts)
        frames.append(batch_frame(items))
    frames[-1] = frames[-1]._replace(body=frames[-1].body + rest)
    frames.append(send_frame(""))
    assert made(frames, taught) == made(frames, Shapes())


def test_a_refused_batch_says_what_is_wrong_with_its_first_message() -> None:
    taught = Shapes()
    for _ in range(64):
        taught.missed([plain(1)])
    good, bad = item(plain(1)), item(plain(2, UNIQ_KEY="a b"))
    for items in ([good, bad, item(b"\xff")], [good, item(b"\xff"), bad], [good, b"cut", bad]):
        frames = [batch_frame(items)]
        assert made(frames, taught) == made(frames, Shapes())
        assert not made(frames, taught)[0]
