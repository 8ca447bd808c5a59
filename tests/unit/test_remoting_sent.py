"""Ready answers to sends are those that would be made field by field."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from horolog.errors import ErrorCode, HorologError
from horolog.protocol.remoting.codes import Code
from horolog.protocol.remoting.frame import Flag, Frame, Serializer
from horolog.protocol.remoting.frame_reader import Reader
from horolog.protocol.remoting.frame_writer import encode_answer
from horolog.protocol.remoting.gathered import Gathered, Site
from horolog.protocol.remoting.request import Answer
from horolog.protocol.remoting.send import gather
from horolog.protocol.remoting.sent import ready_answers
from horolog.protocol.remoting.shapes import Shapes
from horolog.protocol.rocketmq.delays import DEFAULT_LEVELS, parse_levels
from horolog.protocol.send_commands import Sent

SITE = Site("broker-a", b"\x7f\0\0\1\0\0\x2a\x9f", parse_levels(DEFAULT_LEVELS))
IDS = st.text("ABCDEF0123456789", min_size=1, max_size=34)
PLACES = st.tuples(
    st.integers(0, (1 << 63) - 1),
    st.integers(0, 1_023),
    st.integers(-1, 1 << 40),
    st.integers(0, 1 << 52),
)


def sends(ids: list[str], topic: str = "orders", **more: object) -> Gathered:
    """Frames of one message each, gathered."""
    frames = [
        Frame(
            Code.SEND_MESSAGE_V2,
            opaque,
            fields={"b": topic, "e": "0", "i": f"UNIQ_KEY\x01{message_id}\x02"},
            body=b"x",
            language="JAVA",
            **more,  # type: ignore[arg-type]
        )
        for opaque, message_id in enumerate(ids, -2)
    ]
    (gathered,), refused = gather(frames, (b"\0\0\0\0", 0), SITE, lambda n: [b"new"] * n, Shapes())
    assert refused == []
    return gathered


def sent(places: list[tuple[int, int, int, int]]) -> Sent:
    origins, queues, offsets, dues = map(list, zip(*places, strict=True))
    return Sent(origins, queues, offsets, due_ms=dues)


@given(
    st.lists(st.tuples(IDS, PLACES), min_size=1, max_size=8),
    st.sampled_from(["orders", "%RETRY%g"]),
)
@example([("A1", (7, 0, -1, 9))], "%RETRY%g")  # scheduled: its handle names the topic
def test_ready_answers_are_the_same(
    cases: list[tuple[str, tuple[int, int, int, int]]], topic: str
) -> None:
    gathered = sends([each[0] for each in cases], topic)
    result = sent([each[1] for each in cases])
    ready = ready_answers(gathered, result, SITE)
    assert ready is not None
    plain = b""
    for frame, answer in gathered.answers(result, SITE):
        assert isinstance(answer, Answer)
        plain += encode_answer(frame, answer.status, answer.fields, answer.remark, 0)
    assert Reader().receive(b"".join(ready)) == Reader().receive(plain)


def test_what_it_does_not_know_is_left_to_others() -> None:
    place = (1, 0, 5, 0)
    refused = sent([place])
    refused.refused[0] = HorologError(ErrorCode.DISK_FULL, "full")
    assert ready_answers(sends(["A"]), refused, SITE) is None
    assert ready_answers(sends(["A"], serializer=Serializer.ROCKETMQ), sent([place]), SITE) is None
    assert ready_answers(sends(['a"b']), sent([place]), SITE) is None
    assert ready_answers(sends(["A"], flag=Flag.ONE_WAY), sent([place]), SITE) == []
