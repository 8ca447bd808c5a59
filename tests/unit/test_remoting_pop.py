"""Pop consumers over remoting: handles as Java clients take them apart, leases, batches, who consumes what."""

from __future__ import annotations

import threading
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.support.remoting_client import DEADLINE_S, RemotingClient
from tests.support.remoting_door import RemotingDoor, remoting_door
from tests.support.remoting_requests import layouts, popping, sending

from horolog.errors import ErrorCode, HorologError
from horolog.protocol.commands import CreateTopic, TopicType
from horolog.protocol.remoting.assignment import share
from horolog.protocol.remoting.codes import Code, Status
from horolog.protocol.remoting.frame import Flag, Frame
from horolog.protocol.rocketmq import layout, properties
from horolog.protocol.topic_commands import TopicSettings
from horolog.server.door import Door
from horolog.server.remoting import link as link_module
from horolog.server.remoting.link import RemotingLink
from horolog.server.remoting.request import Request

MINUTE = 60_000


@pytest.fixture
def door(tmp_path: Path) -> Iterator[RemotingDoor]:
    with remoting_door(tmp_path) as made:
        made.create("orders", queues=2)
        yield made


@pytest.fixture
def client(door: RemotingDoor) -> Iterator[RemotingClient]:
    with door.client() as made:
        yield made


def send(client: RemotingClient, *names: str, queue: int = 0, tag: str = "TagA") -> None:
    for name in names:
        known = {"UNIQ_KEY": name, "TAGS": tag}
        client.done(Code.SEND_MESSAGE_V2, sending(e=queue, properties=known), name.encode())


def pop(client: RemotingClient, **fields: Any) -> list[layout.Stored]:
    answer = client.call(Code.POP_MESSAGE, popping(**fields))
    assert answer.code in (Status.SUCCESS, Status.PULL_NOT_FOUND, Status.POLLING_TIMEOUT)
    assert {"popTime", "invisibleTime", "reviveQid", "restNum"} <= answer.fields.keys()
    return layouts(answer.body)


def pop_ck(message: layout.Stored) -> str:
    return properties.decode(message.properties)["POP_CK"]


def test_a_tag_with_the_hash_of_another_is_not_popped_for_it(client: RemotingClient) -> None:
    for name, tag in ("one", "Aa"), ("two", "BB"), ("three", "Aa"), ("four", "C"):
        send(client, name, tag=tag)
    assert [message.body for message in pop(client, exp="Aa")] == [b"one", b"three"]
    both = pop(client, exp=" BB||C ", consumerGroup="other")
    assert [message.body for message in both] == [b"two", b"four"]


def of(message: layout.Stored, extra: str = "", **fields: Any) -> dict[str, Any]:
    """What a Java client says of a message that it was given."""
    text = extra or pop_ck(message)
    words = text.split(" ")
    return {
        "consumerGroup": "g", "topic": message.topic, "queueId": words[6], "offset": words[7],
        "extraInfo": text, **fields,
    }  # fmt: skip


def test_popped_messages_are_leased(door, client) -> None:
    send(client, "A1", "A2")
    send(client, "B1", queue=1)
    answer = client.done(Code.POP_MESSAGE, popping())
    found = layouts(answer.body)
    assert sorted(message.body for message in found) == [b"A1", b"A2", b"B1"]
    now = door.within(door.engine.clock.wall_ms)
    for message in found:
        words = pop_ck(message).split(" ")
        assert len(words) == 8
        assert int(words[1]) == int(answer.fields["popTime"]) == now
        assert int(words[2]) == int(answer.fields["invisibleTime"]) == MINUTE
        assert words[4:6] == ["0", "broker-a"]
        assert (int(words[6]), int(words[7])) == (message.queue_id, message.queue_offset)
    starts = dict(entry.split(" ")[1:] for entry in answer.fields["startOffsetInfo"].split(";"))
    listed = dict(entry.split(" ")[1:] for entry in answer.fields["msgOffsetInfo"].split(";"))
    assert (starts, listed) == ({"0": "0", "1": "0"}, {"0": "0,1", "1": "0"})
    assert pop(client) == []


def test_what_is_not_acknowledged_comes_again(door, client) -> None:
    send(client, "A1", "A2")
    first, second = pop(client)
    assert first.reconsume_times == 0
    client.done(Code.ACK_MESSAGE, of(first))
    client.done(Code.ACK_MESSAGE, of(first))
    door.advance(MINUTE)
    (again,) = pop(client)
    assert (again.body, again.reconsume_times) == (b"A2", 1)
    stale = client.call(Code.ACK_MESSAGE, of(second))
    assert stale.code == Status.INVALID_PARAMETER
    client.done(Code.ACK_MESSAGE, of(again))
    door.advance(MINUTE)
    assert pop(client) == []


def test_the_handle_that_a_client_makes_after_a_change(door, client) -> None:
    send(client, "A1")
    (message,) = pop(client)
    old = pop_ck(message).split(" ")
    changed = client.done(
        Code.CHANGE_MESSAGE_INVISIBLETIME, of(message, invisibleTime=10_000)
    ).fields
    made = [old[7], changed["popTime"], changed["invisibleTime"], changed["reviveQid"], *old[4:]]
    assert client.call(Code.ACK_MESSAGE, of(message)).code == Status.INVALID_PARAMETER
    door.advance(9_999)
    assert pop(client) == []
    client.done(Code.ACK_MESSAGE, of(message, " ".join(made)))
    door.advance(MINUTE)
    assert pop(client) == []


def test_a_message_that_is_wanted_again_at_once(door, client) -> None:
    send(client, "A1")
    (message,) = pop(client)
    client.done(Code.CHANGE_MESSAGE_INVISIBLETIME, of(message, invisibleTime=0))
    door.advance(1_000)
    (again,) = pop(client)
    assert again.reconsume_times == 1


def test_a_handle_outlives_the_broker_it_is_from(tmp_path: Path) -> None:
    with remoting_door(tmp_path) as door, door.client() as client:
        door.create("orders", queues=1)
        send(client, "A1", "A2")
        first, second = pop(client)
    with remoting_door(tmp_path) as door, door.client() as client:
        client.done(Code.ACK_MESSAGE, of(first))
        door.advance(MINUTE)
        assert [message.body for message in pop(client)] == [second.body]


def test_many_are_acknowledged_together(door, client) -> None:
    send(client, "A1", "A2", "A3")
    acks = []
    for message in pop(client)[:2]:
        so, pt, it, rq, retry, _, queue, offset = pop_ck(message).split(" ")
        bit = int(offset) - int(so)
        packed = b64encode((1 << bit).to_bytes(bit // 8 + 1, "little")).decode()
        acks.append(
            {
                "c": "g", "t": "orders", "r": retry, "so": int(so), "q": int(queue),
                "rq": int(rq), "pt": int(pt), "it": int(it), "b": packed,
            }
        )  # fmt: skip
    client.done(Code.BATCH_ACK_MESSAGE, body={"brokerName": "broker-a", "acks": acks})
    door.advance(MINUTE)
    assert [message.body for message in pop(client)] == [b"A3"]
    for wrong in ({}, {"acks": [1]}, {"acks": [{**acks[0], "b": "x"}]}, {"acks": [{"c": "g"}]}):
        refused = client.call(Code.BATCH_ACK_MESSAGE, body=wrong)
        assert refused.code == Status.INVALID_PARAMETER


def test_a_pop_waits_for_a_message(door, client) -> None:
    waiting = client.ask(Code.POP_MESSAGE, popping(pollTime=15_000))
    with door.client() as producer:
        send(producer, "A1")
    answer = client.answer(waiting)
    assert [message.body for message in layouts(answer.body)] == [b"A1"]
    assert client.call(Code.POP_MESSAGE, popping(pollTime=50)).code == Status.POLLING_TIMEOUT
    assert client.call(Code.POP_MESSAGE, popping()).code == Status.PULL_NOT_FOUND


def popped_again(door: RemotingDoor, *names: bytes) -> None:
    """Others get them within a second of simulated time, and not at the end of the lease."""
    with door.client() as other:
        for _ in range(5):
            if found := pop(other):
                assert [message.body for message in found] == list(names)
                assert [message.reconsume_times for message in found] == [1] * len(names)
                return
            door.advance(500)
    raise AssertionError("nobody gave them back")


def test_a_pop_whose_client_leaves_before_its_answer_is_returned(door, client) -> None:
    """In order it waits for the disk, and its client goes meanwhile: the messages came a minute later."""
    send(client, "A1", "A2")
    answered = threading.Event()
    fields = {name: str(value) for name, value in popping(order="true").items()}
    frame = Frame(Code.POP_MESSAGE, 1, Flag(0), fields)

    class Lost(Request):
        def answer(self, *_: Any) -> bool:
            self.link.is_lost = True
            taken = super().answer(*_)
            answered.set()
            return taken

    door.within(lambda: door.front._pop.pop(Lost(RemotingLink(None, None), frame)))
    assert answered.wait(DEADLINE_S)
    popped_again(door, b"A1", b"A2")


def test_a_pop_whose_answer_is_refused_is_returned(door, client, monkeypatch) -> None:
    """Its client leaves too many answers unread: it heard "too many", and nobody had the messages for a minute."""
    send(client, "A1")
    monkeypatch.setattr(Door, "admit_answer", lambda *_: False)
    monkeypatch.setattr(link_module, "UNREAD_SMALL", 0)
    assert client.call(Code.POP_MESSAGE, popping()).code == Status.SYSTEM_BUSY
    monkeypatch.undo()
    popped_again(door, b"A1")


def test_only_what_a_filter_matches(door, client) -> None:
    send(client, "A1")
    send(client, "B1", tag="TagB")
    assert [message.body for message in pop(client, exp="TagB || TagC")] == [b"B1"]


def test_whether_there_is_something(door, client) -> None:
    send(client, "A1")
    (message,) = pop(client)
    asked = {"consumerGroup": "g", "topic": "orders", "queueId": -1, "pollTime": 0, "bornTime": 0}
    assert client.done(Code.NOTIFICATION, asked).fields["hasMsg"] == "false"
    send(client, "A2")
    assert client.done(Code.NOTIFICATION, asked).fields["hasMsg"] == "true"
    new = asked | {"consumerGroup": "new"}
    assert client.done(Code.NOTIFICATION, new).fields["hasMsg"] == "true"
    door.create("empty")
    empty = client.done(Code.NOTIFICATION, new | {"topic": "empty"})
    assert empty.fields["hasMsg"] == "false"
    client.done(Code.ACK_MESSAGE, of(message))


def test_the_number_of_waiting_pops_of_a_group_and_a_queue(door, client) -> None:
    def waiting(**fields: Any) -> str:
        asked = {"consumerGroup": "g", "topic": "orders", "queueId": -1} | fields
        return client.done(Code.POLLING_INFO, asked).fields["pollingNum"]

    assert waiting() == "0"
    with door.client() as other:
        for poller, group in ((client, "g"), (other, "g"), (other, "h")):
            poller.ask(Code.POP_MESSAGE, popping(consumerGroup=group, pollTime=20_000))
            poller.done(Code.POLLING_INFO, popping())  # so that it has been heard
        assert (waiting(), waiting(consumerGroup="h"), waiting(queueId=0)) == ("2", "1", "0")
    assert waiting(consumerGroup="nobody") == "0"


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"maxMsgNums": 33}, Status.INVALID_PARAMETER),
        ({"attemptId": "a" * 256, "pollTime": 9_000}, Status.INVALID_PARAMETER),
        ({"invisibleTime": 0}, Status.INVALID_PARAMETER),
        ({"queueId": 2}, Status.INVALID_PARAMETER),
        ({"topic": "nowhere"}, Status.TOPIC_NOT_EXIST),
        ({"expType": "SQL92", "exp": "a ="}, Status.SUBSCRIPTION_PARSE_FAILED),
    ],
)
def test_what_is_refused(door, client, fields: dict[str, Any], status: Status) -> None:
    answer = client.call(Code.POP_MESSAGE, popping(**fields))
    assert (answer.code, bool(answer.remark)) == (status, True)


# --- in order -------------------------------------------------------------------------------------


def send_steps(client: RemotingClient, names: str) -> None:
    """Messages "a1 b1 a2": of the message groups a, b and a."""
    for name in names.split():
        known = {"UNIQ_KEY": name, "__SHARDINGKEY": name[0]}
        client.done(Code.SEND_MESSAGE_V2, sending(e=0, properties=known), name.encode())


def bodies(found: list[layout.Stored]) -> str:
    return " ".join(message.body.decode() for message in found)


def test_pops_in_order(door, client) -> None:
    """An ack lets the message group go on, a change keeps it where it is."""
    send_steps(client, "a1 b1 a2 a3 b2")
    first = pop(client, order="true", maxMsgNums=2)
    assert bodies(first) == "a1 b1"
    assert pop(client, order="true") == []
    a1, b1 = first
    client.done(Code.CHANGE_MESSAGE_INVISIBLETIME, of(a1, invisibleTime=10_000))
    client.done(Code.ACK_MESSAGE, of(b1))
    assert bodies(pop(client, order="true")) == "b2"
    door.advance(10_000)
    answer = client.done(Code.POP_MESSAGE, popping(order="true", maxMsgNums=1))
    (again,) = layouts(answer.body)
    assert (again.body, again.reconsume_times) == (b"a1", 1)
    assert answer.fields["orderCountInfo"] == "0 qo0%0 1"
    assert pop(client, order="true") == []
    client.done(Code.ACK_MESSAGE, of(again))
    assert bodies(pop(client, order="true")) == "a2 a3"


def test_a_pop_in_order_that_comes_again(door, client) -> None:
    send_steps(client, "a1 a2 b1")
    lost = pop(client, order="true", maxMsgNums=2, attemptId="one")
    assert bodies(lost) == "a1 a2"
    again = pop(client, order="true", maxMsgNums=2, attemptId="one")
    assert bodies(again) == "a1 a2"
    assert [message.reconsume_times for message in again] == [0, 0]
    assert client.call(Code.ACK_MESSAGE, of(lost[0])).code == Status.INVALID_PARAMETER
    client.done(Code.ACK_MESSAGE, of(again[0]))


def test_how_many_more_there_are(door, client) -> None:
    send(client, "A1", "A2", "A3")
    send(client, "B1", queue=1)
    for rest in (3, 2, 1, 0):
        answer = client.done(Code.POP_MESSAGE, popping(maxMsgNums=1))
        assert answer.fields["restNum"] == str(rest)


# --- who consumes what ------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["AVG", "AVG_BY_CIRCLE"])
@pytest.mark.parametrize("queues", [1, 2, 5, 8])
@pytest.mark.parametrize("count", [1, 2, 3, 9])
def test_each_queue_has_one_client(strategy: str, queues: int, count: int) -> None:
    clients = [f"c{at}" for at in range(count)]
    shares = [share(strategy, queues, each, clients[::-1]) for each in clients]
    assert sorted(queue for each in shares for queue in each) == list(range(queues))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_the_worked_example() -> None:
    shares = {name: [share(name, 5, c, "cab") for c in "abc"] for name in ("AVG", "AVG_BY_CIRCLE")}
    assert shares == {
        "AVG": [[0, 1], [2, 3], [4]],
        "AVG_BY_CIRCLE": [[0, 3], [1, 4], [2]],
    }
    with pytest.raises(HorologError) as error:
        share("MACHINE_ROOM", 5, "a", "abc")
    assert error.value.code is ErrorCode.BAD_REQUEST


def test_assignments_and_modes(door, client) -> None:
    wanted = {
        "topic": "orders", "consumerGroup": "g", "clientId": "c1", "strategyName": "AVG",
        "messageModel": "CLUSTERING",
    }  # fmt: skip
    subscription = {"topic": "orders", "subString": "*", "subVersion": 1}
    consumer = {"groupName": "g", "subscriptionDataSet": [subscription]}
    client.done(Code.HEART_BEAT, body={"clientID": "c1", "consumerDataSet": [consumer]})

    def assigned(**more: Any) -> list[tuple[int, str]]:
        answer: Frame = client.done(Code.QUERY_ASSIGNMENT, body={**wanted, **more})
        found = orjson.loads(answer.body)["messageQueueAssignments"]
        return [(each["messageQueue"]["queueId"], each["mode"]) for each in found]

    assert assigned() == [(0, "PULL"), (1, "PULL")]
    assert assigned(clientId="stranger") == []
    door.submit(CreateTopic("partly", TopicType.MIXED, 2, TopicSettings(read_queues=1)))
    for model in ("CLUSTERING", "BROADCASTING"):
        assert assigned(topic="partly", messageModel=model) == [(0, "PULL")], "as in its route"
    mode = {"topic": "orders", "consumerGroup": "g", "mode": "POP", "popShareQueueNum": 0}
    client.done(Code.SET_MESSAGE_REQUEST_MODE, body=mode)
    assert assigned() == [(-1, "POP")]
    assert assigned(topic="%RETRY%g") == [(0, "PULL")]
    wrong = client.call(Code.SET_MESSAGE_REQUEST_MODE, body={**mode, "mode": "PUSH"})
    assert (wrong.code, wrong.remark[:5]) == (Status.INVALID_PARAMETER, "mode:")
    config = {"groupName": "g", "retryMaxTimes": 3}
    client.done(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=config)
    assert assigned() == [(-1, "POP")], "settings of the group are not its modes"
    configs = {"groupConfigList": [{**config, "retryMaxTimes": 4}]}
    client.done(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, body=configs)
    assert assigned() == [(-1, "POP")]
    kept = client.done(Code.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "g"})
    assert orjson.loads(kept.body)["retryMaxTimes"] == 4


def test_without_room_for_a_lease_a_pop_says_that_it_is_full(
    door: RemotingDoor, client: RemotingClient
) -> None:
    """Java clients take it for a queue of polls that is full, and ask again later."""

    def few() -> None:
        door.engine.broker.shard.ready.leases_max = 2

    door.within(few)
    send(client, "one", "two", "three")
    first, _ = pop(client)
    refused = client.call(Code.POP_MESSAGE, popping())
    assert (refused.code, "2 messages are leased" in refused.remark) == (Status.POLLING_FULL, True)
    client.done(Code.ACK_MESSAGE, of(first))
    assert [message.body for message in pop(client)] == [b"three"]
