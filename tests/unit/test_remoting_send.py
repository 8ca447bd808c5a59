"""Sends of 4.x clients: frames to records, and what became of them to answers."""

from __future__ import annotations

import re
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from remoting_sends import batch_frame, item, send_frame, stored

from horolog import limits
from horolog.errors import ErrorCode, HorologError
from horolog.protocol.commands import CreateTopic, Receive, TopicType
from horolog.protocol.remoting.codes import Code
from horolog.protocol.remoting.gathered import Site
from horolog.protocol.remoting.request import Answer
from horolog.protocol.remoting.send import Cancel, gather
from horolog.protocol.remoting.shapes import Shapes
from horolog.protocol.rocketmq import layout, properties
from horolog.protocol.rocketmq.delays import DEFAULT_LEVELS, parse_levels
from horolog.protocol.rocketmq.recall_handle import decode_recall_handle
from horolog.testing.sim_broker import Answer as CoreAnswer

SITE = Site("broker-a", b"\x7f\0\0\1\0\0\x2a\x9f", parse_levels(DEFAULT_LEVELS))
PEER = (b"\x0a\0\0\7", 4_711)
HOUR = 3_600_000


@pytest.fixture
def broker(world):
    for topic in ("t", "u"):
        world.broker.ask(CreateTopic(topic, TopicType.MIXED, 4))
    return world.broker


def made(*frames):
    ids = count(1)
    return gather(frames, PEER, SITE, lambda n: [b"NEW%d" % next(ids) for _ in range(n)], Shapes())


def send(broker, *frames) -> list[Any]:
    """What each frame is answered, in their order."""
    gathered, refused = made(*frames)
    found = {id(frame): error for frame, error in refused}
    for each in gathered:
        sent = broker.ask(each.command)
        found |= {id(frame): answer for frame, answer in each.answers(sent, SITE)}
    return [found[id(frame)] for frame in frames]


def take(broker, topic: str = "t") -> list[tuple[layout.Stored, dict[str, str]]]:
    got = []
    while messages := broker.ask(Receive("g", topic, -1, "*", 32, 60_000, False, 0, "c")).messages:
        for each in messages:
            found = layout.decode(each.layout)
            kept = properties.decode(found.properties)
            assert kept.pop("MSG_REGION") == "DefaultRegion"
            got.append((found, kept))
    return got


def refusal(broker, frame) -> HorologError:
    (error,) = send(broker, frame)
    assert isinstance(error, HorologError)
    return error


@pytest.mark.parametrize("code", [Code.SEND_MESSAGE, Code.SEND_MESSAGE_V2])
def test_a_message_is_stored_as_it_came(broker, code) -> None:
    fields = {"UNIQ_KEY": "0A00", "TAGS": "Ü", "KEYS": "a b", "WAIT": "true", "mine": "x y"}
    frame = send_frame(fields, code=code, queue=3, f=1, h=-7, j=2, body=b"packed")
    (answer,) = send(broker, frame)
    assert isinstance(answer, Answer)
    ((found, kept),) = take(broker)
    assert kept == fields
    assert found.properties == properties.IN_REGION + stored(fields).encode(), "byte for byte"
    assert (found.queue_id, found.queue_offset) == (3, 0)
    assert (found.sys_flag, found.flag, found.reconsume_times) == (layout.COMPRESSED, -7, 2)
    assert (found.born_ms, found.born_host) == (1_700_000_000_000, PEER)
    assert found.body == b"packed"
    assert answer.fields == {
        "msgId": f"7F00000100002A9F{found.position:016X}",
        "queueId": "3",
        "queueOffset": "0",
        "transactionId": "0A00",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
    }


@pytest.mark.parametrize("region", ["", "east"])
def test_each_message_has_one_region_however_it_is_read(region) -> None:
    """The full way, by its shape, or as rows; one that was received and is sent on keeps its own."""
    own = {"MSG_REGION": region} if region else {}
    items = [item({"UNIQ_KEY": f"m{i:03}", **own}) for i in range(200)]
    shapes = Shapes()
    mark = f"\x01{region or 'DefaultRegion'}\x02".encode()
    for size in (1, 90, 2, 200):
        frame = batch_frame(items[:size])
        (gathered,), _ = gather([frame], PEER, SITE, lambda n: [b""] * n, shapes)
        records, sizes = gathered.command.columns()
        assert records.count(b"MSG_REGION") == records.count(mark) == len(sizes) == size
    assert shapes.shape_of(b"UNIQ_KEY\x01m001\x02" + properties.encode(own))


@pytest.mark.parametrize(
    "empty", ["UNIQ_KEY\x01", "KEYS\x01k\x02UNIQ_KEY\x01\x02", "UNIQ_KEY\x01\x02a\x01b"]
)
def test_an_empty_id_is_none(broker, empty) -> None:
    (answer,) = send(broker, send_frame(empty))
    assert answer.fields["transactionId"] == "NEW1"
    ((found, kept),) = take(broker)
    assert kept["UNIQ_KEY"] == "NEW1"
    assert found.properties.count(b"UNIQ_KEY") == 1, "some clients read the first one"


def test_sends_that_came_together_are_one_command_a_topic(broker) -> None:
    frames = [send_frame({"UNIQ_KEY": f"m{i}"}, topic="tu"[i % 2], queue=1) for i in range(6)]
    gathered, refused = made(*frames)
    assert [len(each.ids) for each in gathered] == [3, 3]
    assert not refused
    answers = [answer.fields for answer in send(broker, *frames)]
    assert [each["transactionId"] for each in answers] == [f"m{i}" for i in range(6)]
    assert [each["queueOffset"] for each in answers] == ["0", "0", "1", "1", "2", "2"]


def test_the_broker_chooses_a_queue_and_an_id_if_the_client_does_not(broker) -> None:
    answers = [
        answer.fields for answer in send(broker, *[send_frame("", queue=-1) for _ in range(4)])
    ]
    assert sorted(each["queueId"] for each in answers) == ["0", "1", "2", "3"]
    assert {kept["UNIQ_KEY"] for _, kept in take(broker)} == {
        each["transactionId"] for each in answers
    }


def test_a_queue_that_is_not_there_is_refused_alone(broker) -> None:
    good, bad = send(broker, send_frame({"UNIQ_KEY": "a"}), send_frame({"UNIQ_KEY": "b"}, queue=4))
    assert isinstance(good, Answer)
    assert bad.code is ErrorCode.BAD_REQUEST
    assert bad.field == "queueId"
    assert bad.limit == "0 to 3"
    assert len(take(broker)) == 1


@pytest.mark.parametrize(
    ("given", "wait"),
    [
        ({"DELAY": 3}, 10_000),
        ({"TIMER_DELAY_SEC": 3}, 3_000),
        ({"TIMER_DELAY_MS": 3}, 3),
        ({"TIMER_DELIVER_MS": "in 3 s"}, 3_000),
        ({"__STARTDELIVERTIME": "in 3 s"}, 3_000),
    ],
)
def test_every_dialect_delays_and_can_be_recalled(world, broker, given, wait) -> None:
    now = world.clock.wall_ms()
    given = {name: now + 3_000 if value == "in 3 s" else value for name, value in given.items()}
    (answer,) = send(broker, send_frame({"UNIQ_KEY": "m", **given}, queue=2))
    handle = decode_recall_handle(answer.fields["recallHandle"])
    assert (handle.topic, handle.message_id, handle.due_ms) == ("t", "m", now + wait)
    assert answer.fields["msgId"].endswith(f"{handle.origin:016X}")
    world.clock.advance(wait - 1)
    broker.settle()
    assert take(broker) == []
    world.clock.advance(1)
    broker.settle()
    ((found, kept),) = take(broker)
    assert kept == {
        "UNIQ_KEY": "m",
        **{name: str(value) for name, value in given.items()},
        "REAL_TOPIC": "t",
        "REAL_QID": "2",
    }
    assert found.queue_id == 2


def test_a_batch_is_taken_item_by_item_with_its_delays(world, broker) -> None:
    items = [
        item({"UNIQ_KEY": "a", "TAGS": "x"}, b"1"),
        item({"UNIQ_KEY": "b", "DELAY": 2}, b"2", flag=9),
        item(b"", b"3"),
        item({"UNIQ_KEY": "d", "TIMER_DELAY_MS": 700}, b"4"),
    ]
    (answer,) = send(broker, batch_frame(items, queue=1))
    ids = answer.fields["msgId"].split(",")
    assert len(ids) == 4
    assert "recallHandle" not in answer.fields
    assert (answer.fields["queueId"], answer.fields["queueOffset"]) == ("1", "0")
    assert [found.body for found, _ in take(broker)] == [b"1", b"3"]
    world.clock.advance(5_000)
    broker.settle()
    assert [(found.body, found.flag) for found, _ in take(broker)] == [(b"4", 0), (b"2", 9)]


def test_a_large_batch_among_single_sends_keeps_its_place() -> None:
    names = [f"m{n:03}" for n in range(100)]
    batch = batch_frame([item({"UNIQ_KEY": name}, body=name.encode()) for name in names])
    first, last = [send_frame({"UNIQ_KEY": name}, body=name.encode()) for name in ("one", "two")]
    shapes = Shapes()
    for _ in range(3):  # the last times its records are made as rows of bytes
        frames = [first, batch, last]
        (gathered,), _ = gather(frames, PEER, SITE, lambda n: [b""] * n, shapes)
        assert gathered.ids == [name.encode() for name in ("one", *names, "two")]
        records, sizes = gathered.command.columns()
        at = 0
        for name, size in zip(gathered.ids, sizes, strict=True):
            assert records[at : at + size].count(name) == 2, "its id and its body"
            at += size
    assert shapes.shape_of(b"UNIQ_KEY\x01m001\x02")


def test_a_message_that_was_consumed_and_is_sent_on_cancels_nothing() -> None:
    fields = {"UNIQ_KEY": "m", "TIMER_DEL_UNIQKEY": "t+other", "TIMER_DELIVER_MS": 10**12}
    for attempts in (0, 1):
        frame, cancels = send_frame(fields, j=attempts), list[Cancel]()
        found, refused = gather([frame], PEER, SITE, lambda n: [b""] * n, Shapes(), cancels)
        assert not found
        assert [error.field for _, error in refused] == ["TIMER_DEL_UNIQKEY"] * attempts
        assert cancels == [Cancel(frame, "t", "other", 10**12)][attempts:]


@pytest.mark.parametrize("size", [2, 60])  # read together as texts, or as rows of bytes
def test_batches_to_several_topics_go_to_their_own(size) -> None:
    names = [f"m{n:02}" for n in range(size)]
    frames = [
        batch_frame([item({"UNIQ_KEY": topic + name}) for name in names], topic=topic)
        for topic in "tuttu"
    ]
    shapes = Shapes()
    for _ in range(20):  # at first the full way, then by the shape that was learned
        gathered, refused = gather(frames, PEER, SITE, lambda n: [b""] * n, shapes)
        assert not refused
        assert {each.command.topic: len(each.taken) for each in gathered} == {"t": 3, "u": 2}
        for each in gathered:
            own = [(each.command.topic + name).encode() for name in names]
            assert each.ids == own * len(each.taken)
            assert each.command.parts == [size] * len(each.taken)
    assert shapes.shape_of(b"UNIQ_KEY\x01tm01\x02")


def test_a_batch_of_the_c_client_has_the_code_of_a_message(broker) -> None:
    frame = send_frame("", body=item({"UNIQ_KEY": "a"}) * 2, code=Code.SEND_MESSAGE, m="1")
    assert isinstance(send(broker, frame)[0], Answer)


def test_properties_of_a_batch_in_another_encoding_are_stored_as_in_a_single_send(broker) -> None:
    """From a C++ client on a system in GBK."""
    known = {"UNIQ_KEY": "a", "TAGS": "订单"}
    sent = send(broker, batch_frame([item(stored(known).encode("gbk")), item({"UNIQ_KEY": "b"})]))
    assert isinstance(sent[0], Answer)
    taken = {kept["UNIQ_KEY"]: kept for _, kept in take(broker)}
    assert taken["a"]["TAGS"] == "\ufffd\ufffd\ufffd\ufffd"
    assert taken.keys() == {"a", "b"}


@pytest.mark.parametrize(
    "items",
    [
        [item({"UNIQ_KEY": "a"}), item({"UNIQ_KEY": "b"}, b"")],
        [item({"UNIQ_KEY": "a"}), item({"UNIQ_KEY": "b", "DELAY": "x"})],
        [item({"UNIQ_KEY": "a"}), item({"UNIQ_KEY": "b"})[:-1]],
        [item({"UNIQ_KEY": "a"}), item({"UNIQ_KEY": "b", "TIMER_DELAY_SEC": 10**12})],
        [item({"UNIQ_KEY": "a"}), b"\xff\xff\xff\xff" + bytes(40)],
        [],
    ],
)
def test_a_batch_is_taken_whole_or_not_at_all(broker, items) -> None:
    bad, good = send(broker, batch_frame(items), send_frame({"UNIQ_KEY": "c"}))
    assert isinstance(bad, HorologError)
    assert isinstance(good, Answer)
    assert [kept["UNIQ_KEY"] for _, kept in take(broker)] == ["c"]


@pytest.mark.parametrize(
    ("frame", "code", "field"),
    [
        (send_frame("", body=b""), ErrorCode.BODY_EMPTY, "body"),
        (send_frame("", body=bytes(limits.BODY_MAX + 1)), ErrorCode.BODY_TOO_LARGE, "body"),
        (send_frame({"a": "b" * 32_767}), ErrorCode.PROPERTIES_TOO_LARGE, "properties"),
        (send_frame({"UNIQ_KEY": "a b"}), ErrorCode.ILLEGAL_MESSAGE_ID, "message_id"),
        (send_frame({"UNIQ_KEY": "a" * 256}), ErrorCode.ILLEGAL_MESSAGE_ID, "message_id"),
        (send_frame("", topic="t" * 128), ErrorCode.ILLEGAL_TOPIC, "topic"),
        (send_frame("", topic="SCHEDULE_TOPIC_XXXX"), ErrorCode.ILLEGAL_TOPIC, "topic"),
        (send_frame("", topic="rmq_sys_wheel_timer"), ErrorCode.ILLEGAL_TOPIC, "topic"),
        (send_frame("", queue="x"), ErrorCode.BAD_REQUEST, "e"),
        (send_frame("", g=1 << 63), ErrorCode.BAD_REQUEST, "g"),
        (send_frame("", j=-1), ErrorCode.BAD_REQUEST, "j"),
        (send_frame({"DELAY": "x"}), ErrorCode.ILLEGAL_DELIVERY_TIME, "DELAY"),
    ],
)
def test_bad_input_is_refused_by_field(broker, frame, code, field) -> None:
    error = refusal(broker, frame)
    assert (error.code, error.field) == (code, field)
    assert take(broker) == []


def test_too_far_ahead_is_the_same_error_over_both_protocols(world, broker) -> None:
    far = world.clock.wall_ms() + limits.MAX_DELAY_MS + 1
    error = refusal(broker, send_frame({"TIMER_DELIVER_MS": far}))
    assert (error.code, error.field) == (ErrorCode.ILLEGAL_DELIVERY_TIME, "delivery_timestamp")
    assert isinstance(send(broker, send_frame({"TIMER_DELIVER_MS": far - 1}))[0], Answer)


def test_a_time_that_has_passed_is_now(world, broker) -> None:
    send(broker, send_frame({"UNIQ_KEY": "m", "TIMER_DELIVER_MS": world.clock.wall_ms()}))
    assert len(take(broker)) == 1


def test_a_send_again_is_one_message_but_a_message_sent_back_is_another(broker) -> None:
    first, again = send(broker, *[send_frame({"UNIQ_KEY": "m", "DELAY": 5}) for _ in range(2)])
    assert first == again
    (back,) = send(broker, send_frame({"UNIQ_KEY": "m", "DELAY": 5}, j=1))
    assert back.fields["msgId"] != first.fields["msgId"]


def test_a_lease_of_before_is_not_stored(broker) -> None:
    send(broker, send_frame({"UNIQ_KEY": "m", "POP_CK": "0 1 2", "a": "b"}))
    ((_, kept),) = take(broker)
    assert kept == {"UNIQ_KEY": "m", "a": "b"}


def test_a_command_keeps_its_bound_and_a_batch_its_order(broker) -> None:
    frames = [batch_frame([item({"UNIQ_KEY": f"{i}x{j}"}) for j in range(300)]) for i in range(9)]
    gathered, _ = made(*frames)
    assert max(len(each.ids) for each in gathered) <= 1_024
    offsets = [int(answer.fields["queueOffset"]) for answer in send(broker, *frames)]
    assert offsets == [300 * i for i in range(9)]


_WORDS = st.text(
    st.characters(blacklist_categories=["Cs"], blacklist_characters="\x01\x02"), max_size=9
)


@given(
    st.dictionaries(_WORDS, _WORDS, max_size=6),
    st.binary(min_size=1, max_size=90),
    st.sampled_from(["", "\x02", "\x02\x02"]),
    st.integers(-1, 3),
)
def test_records_are_what_rocketmq_would_have_stored(given, body, end, queue) -> None:
    given = {k: v for k, v in given.items() if k not in properties.HIDDEN}
    given |= {"UNIQ_KEY": "m", "TAGS": "tag", "KEYS": "k"}
    gathered, refused = made(send_frame(stored(given, end), body=body, queue=queue))
    assert not refused
    ((record, sizes),) = [each.command.columns() for each in gathered]
    assert sizes == [len(record)]
    found = layout.decode(record[32:])
    assert properties.decode(found.properties) == {"MSG_REGION": "DefaultRegion", **given}
    assert (found.topic, found.body, found.queue_id) == ("t", body, queue)


@given(st.binary(max_size=300), st.sampled_from(["", "1"]))
def test_any_body_of_a_batch_is_messages_or_an_error(body, head) -> None:
    gathered, refused = made(batch_frame([item({"UNIQ_KEY": "a"})] * len(head) + [body]))
    assert len(gathered) + len(refused) == 1
    for _, error in refused:
        assert re.match(r"\w+: ", error.message), error.message


def test_the_answer_waits_like_any_send(world, broker) -> None:
    gathered, _ = made(send_frame({"UNIQ_KEY": "m"}))
    asked = CoreAnswer(gathered[0].command)
    broker.step([asked])
    broker.settle()
    assert asked.done
