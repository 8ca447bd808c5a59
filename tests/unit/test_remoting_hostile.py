"""The remoting doors under requests that ask for too much, or say nonsense: each has its answer, others go on."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
from tests.support.remoting_client import RemotingClient
from tests.support.remoting_door import remoting_door
from tests.support.remoting_requests import batch, layouts, popping, sending
from tests.unit.test_remoting_members import join, of

from horolog.errors import ErrorCode, HorologError
from horolog.limits import HEARTBEAT_BYTES_MAX, KIB, MESSAGES_PER_SEND_MAX, MIB, UNREAD_BYTES_MAX
from horolog.protocol.remoting.codes import Code, Status
from horolog.protocol.remoting.frame import FRAME_BYTES_MAX, Flag, Frame, FrameFault, Serializer
from horolog.protocol.remoting.frame_reader import Reader
from horolog.protocol.remoting.gathered import Site
from horolog.protocol.remoting.heartbeat import read_heartbeat
from horolog.protocol.remoting.queue_locks import LockedQueue, QueueLocks
from horolog.protocol.remoting.request import Answer
from horolog.protocol.remoting.send import gather
from horolog.protocol.remoting.shapes import Shapes
from horolog.protocol.rocketmq import properties
from horolog.protocol.rocketmq.delays import DEFAULT_LEVELS, parse_levels
from horolog.server.remoting.registry import Registry


class FakeLink:
    """What the registry knows of a connection."""

    language, version = "JAVA", 401


SITE = Site("broker-a", b"\x7f\0\0\1\0\0\x2a\x9f", parse_levels(DEFAULT_LEVELS))


def send_large(client: RemotingClient, count: int) -> set[bytes]:
    """So many messages of a megabyte with the key `k`; gives their first bytes."""
    sent = {b"%04d" % number for number in range(count)}
    for start in sorted(sent):
        body = start + bytes(MIB)
        client.done(Code.SEND_MESSAGE_V2, sending(properties={"KEYS": "k"}), body)
    return sent


def gathered(*frames: Frame) -> tuple[list[Any], list[tuple[Frame, HorologError]]]:
    """What becomes of sends that come together."""
    return gather(frames, (b"\x7f\0\0\1", 1), SITE, lambda n: [b"0" * 32] * n, Shapes())


def sends(**fields: Any) -> Frame:
    """A send with a body."""
    named = {name: str(value) for name, value in sending(**fields).items()}
    return Frame(Code.SEND_MESSAGE_V2, 1, fields=named | {"k": "false", "m": "false"}, body=b"x")


# --- answers that would be too large ----------------------------------------------------------------


def test_large_messages_are_popped_a_few_at_a_time(tmp_path: Path) -> None:
    with remoting_door(tmp_path) as door, door.client() as client:
        door.create("orders", queues=1)
        sent = send_large(client, 20)
        got: list[bytes] = []
        while len(got) < len(sent):
            answer = client.call(Code.POP_MESSAGE, popping())
            assert answer.code == Status.SUCCESS
            messages = layouts(answer.body)
            assert len(answer.body) <= FRAME_BYTES_MAX
            assert {message.reconsume_times for message in messages} == {0}
            got += [message.body[:4] for message in messages]
        assert sorted(got) == sorted(sent)


def test_a_popped_message_without_room_for_its_handle_leaves_the_others_readable(
    tmp_path: Path,
) -> None:
    with remoting_door(tmp_path) as door, door.client() as client:
        door.create("orders", queues=1)
        room = 32_767 - len(properties.IN_REGION)
        known = {"UNIQ_KEY": "A", "x": "y" * (room - len("UNIQ_KEY.A.x..."))}
        client.done(Code.SEND_MESSAGE_V2, sending(properties=known), b"full")
        client.done(Code.SEND_MESSAGE_V2, sending(properties={"UNIQ_KEY": "B"}), b"usual")
        full, usual = layouts(client.done(Code.POP_MESSAGE, popping()).body)
        assert (full.body, len(full.properties)) == (b"full", 32_766)
        assert "POP_CK" in properties.decode(usual.properties)


def test_a_query_gives_the_newest_messages_that_an_answer_holds(tmp_path: Path) -> None:
    with remoting_door(tmp_path) as door, door.client() as client:
        door.create("orders", queues=1)
        sent = sorted(send_large(client, 20))
        asked = {"topic": "orders", "key": "k", "maxNum": 32}
        found = [m.body[:4] for m in layouts(client.done(Code.QUERY_MESSAGE, asked).body)]
        assert 4 <= len(found) < 20
        assert found == sent[-len(found) :]


def test_an_answer_that_is_too_large_is_refused(tmp_path: Path) -> None:
    with remoting_door(tmp_path) as door, door.client() as client:
        client.done(Code.GET_BROKER_CLUSTER_INFO)
        link = door.within(lambda: next(iter(door.front.doors["broker"]._links)))
        for number, answer_sent in enumerate(
            (Answer(body=bytes(FRAME_BYTES_MAX)), Answer(fields={"f": "x" * FRAME_BYTES_MAX})), 100
        ):
            link._open += 1
            link._open_bytes += 512
            door.within(
                lambda answer_sent=answer_sent, n=number: link.answer(Frame(21, n), answer_sent)
            )
            answer = client.answer(number)
            assert answer.code == Status.SYSTEM_ERROR
            assert "bytes" in answer.remark


def test_a_long_remark_is_cut(tmp_path: Path) -> None:
    with remoting_door(tmp_path) as door, door.client() as client:
        answer = client.call(Code.GET_TOPICS_BY_CLUSTER, {"cluster": "\x01" * MIB})
        assert answer.code == Status.INVALID_PARAMETER
        assert answer.remark.startswith(r"cluster: '\x01\x01")
        assert len(answer.remark) <= 4 * KIB


@pytest.mark.parametrize(
    "said",
    [
        {"code": 100_000},
        {"fields": {"x" * 70_000: "y"}},
        {"fields": {"x": "y" * 9 * MIB}, "body": bytes(7 * MIB - 4 * KIB)},
    ],
)
@pytest.mark.parametrize("serializer", list(Serializer))
def test_what_a_client_says_is_passed_on_or_refused(
    tmp_path: Path, serializer: Serializer, said: dict[str, Any]
) -> None:
    asked = {"consumerGroup": "workers", "clientId": "c1"}
    with (
        remoting_door(tmp_path) as door,
        door.client() as client,
        door.client(serializer=serializer) as tool,
    ):
        join(client, "c1")
        number = tool.ask(Code.GET_CONSUMER_RUNNING_INFO, asked)
        request = of(client, Code.GET_CONSUMER_RUNNING_INFO)
        client.send(Frame(**{"code": 0, "opaque": request.opaque, "flag": Flag.ANSWER, **said}))
        answer = tool.answer(number)
        assert answer.code == said.get("code", answer.code) or answer.code == Status.SYSTEM_ERROR
        tool.done(Code.GET_BROKER_CLUSTER_INFO)


# --- nonsense ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", ["--5", "-", "", "5-", "٣-"])
def test_a_number_that_is_none_is_a_fault(number: str) -> None:
    header = b'{"code":10,"opaque":"%b"}' % number.encode()
    raw = struct.pack(">II", 4 + len(header), len(header)) + header
    with pytest.raises(FrameFault):
        Reader().receive(raw)


@pytest.mark.parametrize("born", ["²", "-", "1" * 30])
def test_a_time_that_is_none_refuses_its_send_alone(born: str) -> None:
    good, bad = sends(), sends(g=born)
    found, refused = gathered(good, bad)
    assert [request.frame for each in found for request in each.requests] == [good]
    assert [(frame, error.field) for frame, error in refused] == [(bad, "g")]


def test_no_field_is_kept_that_was_not_looked_at() -> None:
    frame = Frame(
        Code.SEND_BATCH_MESSAGE, 1, fields={"b": "t", "m": "x" * MIB}, body=batch((b"x", ""))
    )
    found, [(_, error)] = gathered(frame)
    assert (found, error.field) == ([], "m")


def test_a_batch_of_too_many_is_not_read_to_its_end() -> None:
    item = batch((b"x", ""))
    frame = Frame(
        Code.SEND_BATCH_MESSAGE,
        1,
        fields={"b": "t"},
        body=item * MESSAGES_PER_SEND_MAX + item + b"?",
    )
    found, [(_, error)] = gathered(frame)
    assert (found, error.field) == ([], "messages")


def test_a_batch_of_acknowledgements_is_bounded(tmp_path: Path) -> None:
    entry = {
        "c": "g", "t": "orders", "r": "0", "it": 60_000, "pt": 1, "q": 0, "rq": 0, "so": 0,
        "b": "/" * 1_364,
    }  # fmt: skip
    with remoting_door(tmp_path) as door, door.client() as client:
        door.create("orders")
        answer = client.call(
            Code.BATCH_ACK_MESSAGE, body={"brokerName": "b", "acks": [entry] * 500}
        )
        assert answer.code == Status.INVALID_PARAMETER
        assert "messages" in answer.remark


# --- many clients -----------------------------------------------------------------------------------


def beat(client_id: str, group: str = "g", *, topic: str = "t", version: Any = 0) -> dict[str, Any]:
    """A heartbeat of a consumer."""
    wanted = [{"topic": topic, "subString": "*", "subVersion": version}]
    return {
        "clientID": client_id,
        "consumerDataSet": [{"groupName": group, "subscriptionDataSet": wanted}],
    }


def test_members_are_notified_once_of_many_changes(tmp_path: Path) -> None:
    with remoting_door(tmp_path) as door, door.client() as one, door.client() as many:
        one.done(Code.HEART_BEAT, body=beat("one"))
        assert one.push().fields == {"consumerGroup": "g"}
        for number in range(200):
            many.done(Code.HEART_BEAT, body=beat(f"c{number}"))
        many.close()
        while (
            one.push(5).code and len(door.within(lambda: door.front.node.registry.members("g"))) > 1
        ):
            pass
        assert len(one.pushed) < 50
        door.within(door.front.node.registry.check_invariants)


def test_a_good_bye_after_a_heartbeat_is_the_last_word(tmp_path: Path) -> None:
    with remoting_door(tmp_path) as door, door.client() as client:
        hello = client.request(Code.HEART_BEAT, body=beat("c"), opaque=1)
        bye = client.request(
            Code.UNREGISTER_CLIENT, {"clientID": "c", "consumerGroup": "g"}, opaque=2
        )
        client.send(hello, bye)
        assert (client.answer(1).code, client.answer(2).code) == (0, 0)
        assert door.within(lambda: door.front.node.registry.members("g")) == []


def test_the_end_of_a_connection_looks_at_its_own_clients() -> None:
    """However many others there are: all of a network may go at once."""
    registry: Any = Registry()
    others, link = [FakeLink() for _ in range(300)], FakeLink()
    for number, other in enumerate(others):
        registry.take_heartbeat(other, read_heartbeat(beat(f"c{number}")), 0)
    registry.take_heartbeat(link, read_heartbeat(beat("mine", "mine")), 0)
    registry.take_heartbeat(link, read_heartbeat(beat("c0")), 0)  # it has come over
    registry.check_invariants()
    assert registry.remove_connection(others[0]) == set()
    assert registry.remove_connection(link) == {"g", "mine"}
    assert registry.remove_connection(link) == set()
    registry.check_invariants()
    members = registry._groups["g"]
    registry._groups["g"] = None
    assert registry.remove_connection(FakeLink()) == set()
    registry._groups["g"] = members
    assert len(registry.members("g")) == 299


def test_a_heartbeat_is_bounded(tmp_path: Path) -> None:
    """It is read in one turn, which a heartbeat as large as a frame would make a quarter of a second."""
    with remoting_door(tmp_path) as door, door.client() as client:
        for more, status in ((0, Status.SUCCESS), (1, Status.INVALID_PARAMETER)):
            body = b'{"clientID":"c"}'.ljust(HEARTBEAT_BYTES_MAX + more)
            answer = client.call(Code.HEART_BEAT, body=body)
            assert answer.code == status, answer.remark
        assert answer.remark == "body: 4194305 bytes; at most 4194304 are allowed"


def test_what_clients_want_is_bounded() -> None:
    registry: Any = Registry()
    link = FakeLink()
    wanted = [
        {"topic": f"t{number}", "subString": "x" * 16_000, "subVersion": 1}
        for number in range(1_000)
    ]
    large = beat("c")
    large["consumerDataSet"][0]["subscriptionDataSet"] = wanted
    for number in range(4):
        registry.take_heartbeat(link, read_heartbeat(large | {"clientID": f"c{number}"}), 0)
    with pytest.raises(HorologError, match="subscriptionDataSet") as refused:
        registry.take_heartbeat(link, read_heartbeat(large | {"clientID": "c4"}), 0)
    assert refused.value.code is ErrorCode.TOO_MANY_REQUESTS
    registry.check_invariants()
    registry.take_heartbeat(
        link, read_heartbeat(large | {"clientID": "c0"}), 0
    )  # who is known stays
    registry.remove_connection(link)
    registry.check_invariants()
    assert registry._subscription_bytes == 0


def test_a_group_wants_what_its_newest_member_says() -> None:
    registry: Any = Registry()
    one, two = FakeLink(), FakeLink()
    registry.take_heartbeat(one, read_heartbeat(beat("one", version=1)), 0)
    assert registry.subscription("g", "t").version == 1
    registry.take_heartbeat(two, read_heartbeat(beat("two", version=2)), 0)
    assert registry.subscription("g", "t").version == 2
    registry.remove_connection(two)
    assert registry.subscription("g", "t").version == 1
    registry.remove_connection(one)
    assert registry.subscription("g", "t") is None
    registry.check_invariants()


def test_a_new_version_of_a_subscription_is_not_news_for_the_group() -> None:
    """A client that was notified, and has other queues then, reports one; it must not be notified for it."""
    registry: Any = Registry()
    one, two = FakeLink(), FakeLink()
    assert registry.take_heartbeat(one, read_heartbeat(beat("one", version=1)), 0) == {"g"}
    assert not registry.take_heartbeat(one, read_heartbeat(beat("one", version=2)), 0)
    assert registry.subscription("g", "t").version == 2
    assert registry.take_heartbeat(two, read_heartbeat(beat("one", version=2)), 0) == {"g"}
    more = beat("one", version=3)
    topics = more["consumerDataSet"][0]["subscriptionDataSet"]
    topics.append({**topics[0], "topic": "other"})
    assert registry.take_heartbeat(two, read_heartbeat(more), 0) == {"g"}
    topics.pop()
    assert registry.take_heartbeat(two, read_heartbeat(more), 0) == {"g"}
    registry.check_invariants()


@pytest.mark.parametrize("version", ["--5", "9" * 20, 1 << 63, None, True, [1]])
def test_a_version_that_is_no_number_is_refused(version: Any) -> None:
    if version is True:
        assert read_heartbeat(beat("c", version=version))
        return
    with pytest.raises(HorologError, match="subVersion"):
        read_heartbeat(beat("c", version=version))


def test_locks_are_bounded() -> None:
    locks = QueueLocks(maximum=3)
    queues = [LockedQueue("t", "b", number) for number in range(5)]
    assert locks.lock("g", "one", queues, 0) == queues[:3]
    assert locks.lock("h", "two", queues, 0) == []
    assert locks.lock("g", "one", queues, 1) == queues[:3]
    locks.unlock("g", "one", queues[:1])
    assert locks.lock("h", "two", queues, 1) == queues[:1]
    locks.check_invariants()
    locks.sweep(100_000)
    locks.check_invariants()
    assert locks.lock("h", "two", queues, 100_000) == queues[:3]


def test_a_client_that_reads_nothing_gets_no_notices(tmp_path: Path) -> None:
    with remoting_door(tmp_path) as door, door.client() as client:
        client.done(Code.GET_BROKER_CLUSTER_INFO)

        def push_much() -> int:
            (link,) = door.front.doors["broker"]._links
            for _ in range(100):
                link.push(Code.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": "g"}, bytes(MIB))
            return link.unread_bytes

        assert door.within(push_much) <= UNREAD_BYTES_MAX + 2 * MIB


# --- routes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        ("%RETRY%new", 0),
        ("%DLQ%new", 17),
        ("%RETRY%", 17),
        ("%RETRY%TOOLS_CONSUMER", 17),
        ("%RETRY%a b", 17),
    ],
)
def test_a_new_consumer_learns_where_its_retries_will_be(
    tmp_path: Path, topic: str, code: int
) -> None:
    """Before its first heartbeat, which makes the topic: it asks again only 30 s later."""
    with remoting_door(tmp_path) as door, door.client() as client:
        answer = client.call(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
        assert answer.code == code
        client.done(Code.HEART_BEAT, body=beat("c", "new"))
        if code == 0:
            assert client.done(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}).body == answer.body
