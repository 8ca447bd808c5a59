"""Messages that are read by their shape mean what they mean when they are read the full way."""

from __future__ import annotations

import itertools
import json
import re
import struct
from itertools import count
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from remoting_sends import batch_frame, item, send_frame, stored

from horolog import limits
from horolog.protocol.remoting.frame import Frame, FrameFault
from horolog.protocol.remoting.frame_reader import Reader
from horolog.protocol.remoting.gathered import Site
from horolog.protocol.remoting.send import gather
from horolog.protocol.remoting.send_reader import Alike, SendReader
from horolog.protocol.remoting.sent import ready_answers
from horolog.protocol.remoting.shapes import PropertyShape, Shapes
from horolog.protocol.remoting.wanted import SendContext, Wanted
from horolog.protocol.rocketmq.delays import DEFAULT_LEVELS, parse_levels
from horolog.protocol.send_commands import Sent

LEVELS = parse_levels(DEFAULT_LEVELS)
SITE = Site("broker-a", b"\x7f\0\0\1\0\0\x2a\x9f", LEVELS)
PEER = (b"\x0a\0\0\7", 4_711)
REAL = b"REAL_TOPIC\x01%t\x02REAL_QID\x013\x02"

DELAYS = ["DELAY", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS", "__STARTDELIVERTIME"]
ODD = [
    "POP_CK",
    "TRAN_MSG",
    "REAL_TOPIC",
    "REAL_QID",
    "TIMER_OUT_MS",
    "TIMER_X",
    "",
    "a.b*",
    "Ü",
    "REPLY_TO_CLIENT",
]
NAMES = st.sampled_from(["UNIQ_KEY", "TAGS", "KEYS", "WAIT", *DELAYS, *ODD])
NUMBERS = st.integers(-3, 30) | st.integers(0, 10**20)
VALUES = (
    NUMBERS.map(str)
    | st.sampled_from(["", "A1", "a b", "TagA", "true", "Ü", "007", "+5", "1_0", "x" * 41, "%b"])
    | st.text(st.characters(codec="utf-8"), max_size=4)
)


def context(counter: Any, n: int = 9) -> SendContext:
    return SendContext(LEVELS, [REAL] * n, lambda n: [b"NEW"] * n, b"DefaultCluster")


@st.composite
def alike(draw: Any) -> list[bytes]:
    """Properties of messages with the same names, and now and then one with others."""
    names = draw(st.lists(NAMES, max_size=5))
    end = draw(st.sampled_from(["\x02", "\x02", ""]))
    found = []
    for _ in range(draw(st.integers(1, 4))):
        rows = [f"{name}\x01{draw(VALUES)}" for name in names]
        found.append("\x02".join(rows) + (end if rows else ""))
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
    quick = shapes.read(texts, context(count(), len(texts)))
    shapes.check_invariants()
    if quick is None:
        return
    full = Wanted.of(texts, context(count(), len(texts)))
    assert [list(column) for column in quick] == [list(column) for column in full]


def test_mixed_messages_are_read_by_their_shapes() -> None:
    texts = [plain(1, DELAY=3), b"WAIT\x01true\x02", plain(2), plain(3, DELAY=4), b"WAIT\x01no\x02"]
    shapes = Shapes()
    for _ in range(200):
        shapes.missed(texts)
    mixed = shapes.read(texts, context(count(), len(texts)))
    assert mixed is not None
    full = Wanted.of(texts, context(count(), len(texts)))
    assert [list(column) for column in mixed] == [list(column) for column in full]
    assert shapes.read([*texts, b"x\x01y"], context(count(), 6)) is None


def test_what_is_usual_is_read_by_its_shape() -> None:
    for name in DELAYS:
        shape = PropertyShape.of(plain(1, **{name: 5}))
        assert shape is not None
        texts = [plain(7, **{name: 3}), plain(12345, **{name: 12})]
        wanted = shape.read(b"\0%b\0" % b"\0".join(texts), texts, context(count(), 2))
        assert wanted is not None, name
        assert wanted.ids == (b"0A7", b"0A12345")


def test_shapes_are_bounded_and_learned_ever_more_rarely() -> None:
    shapes, learned = Shapes(), 0
    for number in range(20_000):
        text = b"name%d\x01value\x02" % number
        shapes.missed([text])
        learned += shapes.read([text], context(count(), 1)) is not None
        shapes.check_invariants()
    assert len(shapes._known) == limits.SHAPES_MAX
    assert learned < 10
    assert PropertyShape.of(b"a\x01b\x02" * 2) is None
    many = b"".join(b"name%d\x01v\x02" % n for n in range(limits.SHAPE_NAMES_MAX + 1))
    assert PropertyShape.of(many) is None
    assert PropertyShape.of(b"a\x01" + b"x" * limits.SHAPE_TEXT_MAX) is None


def flat(pattern: Any) -> list[tuple[str, Any]]:
    """The parts of a parsed expression in order: groups and what is looked ahead for are taken apart."""
    found: list[tuple[str, Any]] = []
    for kind, value in pattern:
        if str(kind) in ("SUBPATTERN", "ASSERT"):
            found += flat(value[-1])
        elif str(kind) == "BRANCH":
            found += [part for branch in value[1] for part in flat(branch)]
        else:
            found.append((str(kind), value))
    return found


def first_bytes(kind: str, value: Any) -> set[int]:
    """The bytes that a part can begin with."""
    if kind == "LITERAL":
        return {value}
    if kind == "MAX_REPEAT":
        return first_bytes(*flat(value[2])[0])
    assert kind == "IN", kind
    expression = re.compile(b"[%b]" % b"".join(_class_of(str(k), v) for k, v in value))
    return {byte for byte in range(256) if expression.match(bytes([byte]))}


def _class_of(kind: str, value: Any) -> bytes:
    if kind == "NEGATE":
        return b"^"
    low, high = value if kind == "RANGE" else (value, value)
    return re.escape(bytes([low])) + b"-" + re.escape(bytes([high]))


def test_a_text_that_nearly_matches_takes_linear_time() -> None:
    """No repeated part can take the byte that comes after it, so nothing is ever tried in a second way."""
    names = [b"UNIQ_KEY", b"TAGS", b"KEYS", b"__SHARDINGKEY", b"mine", b"more"]
    texts = {b"UNIQ_KEY": b"A1"}
    for ends in (b"", b"\x02"):
        shape = PropertyShape.of(
            b"\x02".join(n + b"\x01" + texts.get(n, b"v") for n in names) + ends
        )
        assert shape is not None
        parts = flat(re._parser.parse(shape._expression.pattern))  # type: ignore[attr-defined]
        repeats = 0
        for (kind, value), after in itertools.pairwise(parts):
            if kind == "MAX_REPEAT":
                repeats += 1
                assert first_bytes(kind, value).isdisjoint(first_bytes(*after)), (value, after)
        assert repeats == len(names)


def made(frames: list[Frame], shapes: Shapes) -> Any:
    """What becomes of frames that came together."""
    gathered, refused = gather(frames, PEER, SITE, lambda n: [b"NEW"] * n, shapes)
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


# --- headers ----------------------------------------------------------------------------------------

SHORT = ("a", "b", "e", "f", "g", "h", "i", "j", "m", "c", "zz")
REQUIRED = {"b": "t", "e": "1", "f": "0", "g": "1700000000000", "h": "0", "j": "0", "m": "false"}
FIELD = (
    st.integers(-5, 5)
    | st.integers(-(10**19), 10**19)
    | st.sampled_from(["", "7", "-1", "+1", "x"])
)
JSON_TEXT = st.sampled_from(
    ["KEYS\x01k\x02", "UNIQ_KEY\x01A1\x02DELAY\x013\x02", "x\\\x01", 'a"b', "Ü\x01v", "", "\x7f"]
)


@st.composite
def headers(draw: Any) -> list[bytes]:
    """Headers of one client, the first ones as usual, the others perhaps not."""
    order = draw(st.permutations([*REQUIRED, "i"]))
    layout = draw(st.sampled_from([(",", ":"), (", ", ": ")]))
    code = draw(st.sampled_from([310, 310, 310, 320, 11]))
    opaque_last = draw(st.booleans())
    found = []
    for _ in range(draw(st.integers(1, 5))):
        fields: dict[str, object] = {
            name: ({"i": "WAIT\x01true\x02"} | REQUIRED)[name] for name in order
        }
        for name in ("e", "g"):
            if draw(st.booleans()):
                fields[name] = draw(FIELD)
        fields["i"] = draw(JSON_TEXT)
        if draw(st.integers(0, 5)) == 0:
            fields[draw(st.sampled_from(SHORT))] = draw(FIELD)
        opaque = draw(st.integers(-(1 << 31) - 1, 1 << 31) | st.integers(0, 99))
        named: dict[str, object] = {"code": code, "language": "JAVA", "version": 401, "flag": 0}
        named |= (
            {"extFields": fields, "opaque": opaque}
            if opaque_last
            else {"opaque": opaque, "extFields": fields}
        )
        text = json.dumps(named, separators=layout, ensure_ascii=draw(st.booleans())).encode()
        if draw(st.integers(0, 7)) == 0:
            odd = [
                (b'"e"', b'"g"'),
                (b"\\u0001", b"\\\\u0001"),
                (b'"j"', b'"j": {}, "j"'),
                (b"}", b"]"),
            ]
            text = text.replace(*draw(st.sampled_from(odd)))
        found.append(text)
    return found


def framed(header: bytes, body: bytes = b"x") -> bytes:
    return struct.pack(">II", 4 + len(header) + len(body), len(header)) + header + body


def read(receive: Any, chunk: bytes) -> Any:
    """The frames, or what is wrong."""
    try:
        found = receive(chunk)
    except FrameFault as fault:
        return str(fault)
    return [
        frame for each in found for frame in (each.frames() if isinstance(each, Alike) else (each,))
    ]


@given(headers())
def test_headers_are_read_as_without_shapes(rows: list[bytes]) -> None:
    reader = SendReader()
    for header in rows[:2] * 64:
        if isinstance(read(reader.receive_alike, framed(header)), str):
            return  # the connection has ended
    chunk = b"".join(framed(header, b"%d" % n) for n, header in enumerate(rows))
    assert read(reader.receive_alike, chunk) == read(Reader().receive, chunk)
    reader.check_invariants()


def java(opaque: int, text: str, **more: object) -> bytes:
    fields = {"a": "g", "b": "t", "e": "1", "f": "0", "g": "170", "h": "0", "i": text, **more}
    named = {"code": 310, "extFields": fields, "flag": 0, "language": "JAVA", "opaque": opaque}
    return json.dumps(named, separators=(",", ":")).encode()


def taught(header: bytes) -> SendReader:
    reader = SendReader()
    for _ in range(64):
        reader.receive_alike(framed(header))
    return reader


def test_sends_that_are_alike_come_as_one_run() -> None:
    reader = taught(java(1, "KEYS\x01k\x02"))
    texts = [f"KEYS\x01k{n}\x02UNIQ_KEY\x01A{n}\x02" for n in range(300)]
    chunk = b"".join(framed(java(n, text)) for n, text in enumerate(texts))
    runs = reader.receive_alike(chunk[:5_000]) + reader.receive_alike(chunk[5_000:])
    assert all(isinstance(run, Alike) for run in runs)
    assert sum(len(run) for run in runs if isinstance(run, Alike)) == 300
    assert len(runs) <= 4
    assert read(lambda _: runs, b"") == Reader().receive(chunk)
    assert isinstance(reader.receive_alike(framed(java(1, "", b="u")))[0], Frame)


@pytest.mark.parametrize(
    "odd",
    [
        java(1, "KEYS\x01k\x02", b="another"),
        java(1, "KEYS\x01\xe9\x02"),
        java(1, 'KEYS\x01"\x02'),
        java((1 << 31) - 1, ""),
        java(1 << 31, ""),
        java(1, "").replace(b'"170"', b'"1\x0070"'),
        java(1, "") + b"\0" + java(2, ""),
        java(1, "")[:-1],
        b"\0",
        b"",
    ],
)
def test_frames_among_sends_that_are_alike_are_read_as_without_shapes(odd: bytes) -> None:
    rows = [java(n, f"UNIQ_KEY\x01A{n}\x02") for n in range(20)]
    for at in (0, 1, 7, 20):
        for end in (b"", framed(rows[0])[:30], struct.pack(">II", 4, 5), struct.pack(">II", 1, 0)):
            reader = taught(java(1, ""))
            several = [*rows[:at], odd, *rows[at:]]
            chunk = b"".join(framed(row, b"%d" % n) for n, row in enumerate(several)) + end
            assert read(reader.receive_alike, chunk) == read(Reader().receive, chunk)
            reader.check_invariants()


def test_what_signed_sends_have_signed() -> None:
    """Values by the order of their names, and the body; read by the shape as without it."""
    named = {"AccessKey": "app", "Z": "last", "k": "false"}
    reader = taught(java(1, "KEYS\x01k\x02", Signature="c2lnbmF0dXJl", **named))
    rows = [
        java(n, f"UNIQ_KEY\x01A{n}\x02", Signature=f"{n:027}=", **named | {"g": str(n), "e": n % 3})
        for n in range(40)
    ]
    chunk = b"".join(framed(row, b"body %d" % n) for n, row in enumerate(rows))
    frames = Reader().receive(chunk)
    plain = taught(java(1, "KEYS\x01k\x02", **named))
    assert all(isinstance(each, Frame) for each in plain.receive_alike(framed(rows[0])))
    queues = {frame.fields["e"] for frame in frames}
    assert queues == {"0", "1", "2"}
    found = reader.receive_alike(chunk)
    assert read(lambda _: found, b"") == frames
    signed = [each for run in found if isinstance(run, Alike) for each in run.signed()]
    assert not signed  # numbers and texts are shapes of their own
    texts = [row.replace(b'"e":%d' % (n % 3), b'"e":"%d"' % (n % 3)) for n, row in enumerate(rows)]
    chunk = b"".join(framed(row, b"body %d" % n) for n, row in enumerate(texts))
    found = reader.receive_alike(chunk)
    assert all(isinstance(run, Alike) for run in found)
    assert read(lambda _: found, b"") == Reader().receive(chunk)
    signed = [each for run in found if isinstance(run, Alike) for each in run.signed()]
    assert signed == [
        "".join(frame.fields[name] for name in sorted(frame.fields) if name != "Signature").encode()
        + frame.body
        for frame in Reader().receive(chunk)
    ]


@given(st.lists(alike(), min_size=1, max_size=3), st.sampled_from([b"x", b""]))
def test_runs_and_their_refusals_are_the_same(rows: list[list[bytes]], body: bytes) -> None:
    texts = [text.decode("utf-8", "replace") for each in rows for text in each]
    reader = taught(java(1, ""))
    chunk = b"".join(framed(java(n, text), b"x" if n else body) for n, text in enumerate(texts))
    shapes = Shapes()
    for text in texts:
        for _ in range(64):
            shapes.missed([text.encode()])
    outcomes = []
    for frames, with_shapes in (
        (reader.receive_alike(chunk), shapes),
        (Reader().receive(chunk), Shapes()),
    ):
        gathered, refused = gather(frames, PEER, SITE, lambda n: [b"NEW"] * n, with_shapes)
        outcomes.append(
            (
                [(each.command, each.ids, each.requests) for each in gathered],
                [(frame, error.message, error.code) for frame, error in refused],
            )
        )
    assert outcomes[0] == outcomes[1]


def test_a_run_is_answered_as_its_frames_are() -> None:
    chunk = b"".join(framed(java(n, f"UNIQ_KEY\x01A{n}\x02")) for n in range(4))
    shown = Sent([7, 8, 9, 10], [0, 1, 2, 3], [5, -1, 6, -1], due_ms=[0, 99, 0, 98])
    reader = taught(java(1, ""))
    outcomes = []
    for frames in (reader.receive_alike(chunk), Reader().receive(chunk)):
        (gathered,), _ = gather(frames, PEER, SITE, lambda n: [b"NEW"] * n, Shapes())
        outcomes.append((ready_answers(gathered, shown, SITE), gathered.answers(shown, SITE)))
    assert outcomes[0] == outcomes[1]
    assert outcomes[0][0]


def test_headers_of_which_no_two_are_alike_are_seldom_learned() -> None:
    reader = SendReader()
    for number in range(20_000):
        reader.receive_alike(framed(java(1, "", h=number)))
    assert len(reader._known) <= limits.SHAPES_MAX
    assert reader._pace._wait >= 8_192
