"""Consumer groups over remoting, as admin tools see and change them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.remoting_client import RemotingClient
from tests.support.remoting_door import RemotingDoor, remoting_door
from tests.support.remoting_requests import pulling
from tests.support.sent import send

from horolog.protocol.queue_commands import CommitOffsets, FindGroup, GetOffsets
from horolog.protocol.remoting import object_keys
from horolog.protocol.remoting.codes import Code, Status
from horolog.server.remoting.pulled import PulledOffsets

JAVA = {  # what mqadmin 5.5 sends for `updateSubGroup -g workers -o true -r 3`
    "attributes": {},
    "brokerId": 0,
    "consumeBroadcastEnable": False,
    "consumeEnable": True,
    "consumeFromMinEnable": False,
    "consumeMessageOrderly": True,
    "consumeTimeoutMinute": 15,
    "groupName": "workers",
    "groupRetryPolicy": {"type": "CUSTOMIZED"},
    "groupSysFlag": 0,
    "notifyConsumerIdsChangedEnable": True,
    "retryMaxTimes": 3,
    "retryQueueNums": 1,
    "whichBrokerWhenConsumeSlowly": 1,
}


def with_progress(door: RemotingDoor, group: str = "workers", topic: str = "orders") -> None:
    """Three messages in queue 0 of two, of which one is consumed."""
    door.create(topic, queues=2)
    for number in range(6):
        send(door, topic, b"%d" % number)
    door.submit(CommitOffsets(group, topic, {0: 1, 1: 3}))


def rows(body: bytes, name: str = "offsetTable") -> list[tuple[dict[str, Any], Any]]:
    return object_keys.rows(object_keys.read(body)[name])


def test_settings_come_back_as_they_were_given(tmp_path: Path) -> None:
    with remoting_door(tmp_path) as door, door.client() as client:
        client.done(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=JAVA)
        assert client.json(Code.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "workers"}) == JAVA
        found = client.json(Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        assert found["subscriptionGroupTable"] == {"workers": JAVA}
        assert found["forbiddenTable"] == {}
        settings = door.submit(FindGroup("workers")).settings
        assert (settings.orderly, settings.retry_max, settings.broadcast_enable) == (True, 3, False)


def test_a_group_that_made_itself_has_the_usual_settings(tmp_path: Path) -> None:
    with remoting_door(tmp_path) as door, door.client() as client:
        with_progress(door)
        found = client.json(Code.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "workers"})
        assert found["retryMaxTimes"] == 16
        assert found["groupRetryPolicy"] == {"type": "CUSTOMIZED"}
        assert found.keys() == JAVA.keys() - {"attributes"}


def test_attributes_of_a_group_are_changed_one_by_one(tmp_path: Path) -> None:
    with remoting_door(tmp_path) as door, door.client() as client:
        for changes, now in (
            ({"+priority.factor": "2", "+lite.sub.model": "Shared"}, {"priority.factor": "2"}),
            (None, {"priority.factor": "2"}),
            ({"-lite.sub.model": "", "priority.factor": "3"}, {"priority.factor": "3"}),
            ({"-priority.factor": ""}, {}),
        ):
            body = {"groupName": "g", "attributes": changes}
            client.done(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)
            found = client.json(Code.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "g"})["attributes"]
            assert found.items() >= now.items()
        assert found == {}


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (b"{", Status.INVALID_PARAMETER, "body: no JSON object"),
        ({}, Status.INVALID_PARAMETER, "groupName: a name is needed"),
        ({"groupName": 7}, Status.INVALID_PARAMETER, "groupName: a name is needed"),
        ({"groupName": "a b"}, Status.INVALID_PARAMETER, "consumer group 'a b' has characters"),
        ({"groupName": "TOOLS_CONSUMER"}, Status.INVALID_PARAMETER, "consumer group 'TOOLS_CON"),
        ({"groupName": "g", "consumeEnable": "yes"}, Status.INVALID_PARAMETER, "consumeEnable: 'y"),
        ({"groupName": "g", "retryMaxTimes": "1"}, Status.INVALID_PARAMETER, "retryMaxTimes: '1'"),
        ({"groupName": "g", "retryMaxTimes": True}, Status.INVALID_PARAMETER, "retryMaxTimes: T"),
        ({"groupName": "g", "retryMaxTimes": -2}, Status.INVALID_PARAMETER, "retry_max: -2; -1 to"),
        ({"groupName": "g", "retryQueueNums": -1}, Status.INVALID_PARAMETER, "retry_queues: -1; 0"),
        ({"groupName": "g", "x": "y" * 65_536}, Status.INVALID_PARAMETER, "attributes: "),
        (
            {"groupName": "g", "attributes": {"+nosuch": "1"}},
            Status.INVALID_PARAMETER,
            "attributes: 'nosuch' is not known; there are lite.bind.topic",
        ),
        (
            {"groupName": "g", "brokerId": "x"},
            Status.INVALID_PARAMETER,
            "brokerId: 'x' is no number",
        ),
        (
            {"groupName": "g", "groupSysFlag": 1 << 31},
            Status.INVALID_PARAMETER,
            "groupSysFlag: 214",
        ),
        ({"groupName": "g", "consumeFromMinEnable": 1}, Status.INVALID_PARAMETER, "consumeFromMin"),
        ({"groupName": "g", "subscriptionDataSet": "x"}, Status.INVALID_PARAMETER, "subscription"),
        (
            {"groupName": "g", "subscriptionDataSet": [{"topic": "t", "version": "x"}]},
            Status.INVALID_PARAMETER,
            "subscriptionDataSet.version: 'x' is no number",
        ),
        ({"groupName": "g", "attributes": "x"}, Status.INVALID_PARAMETER, "attributes: 'x' is no"),
    ],
)
def test_what_is_wrong_with_a_group_is_named_and_nothing_is_made(
    tmp_path: Path, body: object, status: int, message: str
) -> None:
    """Java's tools could read no group at all after one with a value of the wrong type."""
    with remoting_door(tmp_path) as door, door.client() as client:
        answer = client.call(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)
        assert (answer.code, answer.remark[: len(message)]) == (status, message)
        assert not client.json(Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)["subscriptionGroupTable"]


@pytest.mark.parametrize(
    ("code", "field"),
    [
        (Code.GET_SUBSCRIPTIONGROUP_CONFIG, "group"),
        (Code.GET_CONSUME_STATS, "consumerGroup"),
        (Code.QUERY_TOPICS_BY_CONSUMER, "group"),
        (Code.CLONE_GROUP_OFFSET, "srcGroup"),
    ],
)
def test_an_unknown_group_is_distinguished_from_an_illegal_one(
    tmp_path: Path, code: Code, field: str
) -> None:
    with remoting_door(tmp_path) as door, door.client() as client:
        asked = {"destGroup": "other", "topic": ""}
        unknown = client.call(code, asked | {field: "nobody"})
        assert (unknown.code, unknown.remark) == (
            Status.SUBSCRIPTION_GROUP_NOT_EXIST,
            "consumer group 'nobody' does not exist",
        )
        assert client.call(code, asked | {field: "a b"}).code == Status.INVALID_PARAMETER
        assert client.call(code, asked).remark == f"{field}: missing"


def test_several_groups_are_made_at_once(tmp_path: Path) -> None:
    with remoting_door(tmp_path) as door, door.client() as client:
        code = Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST
        client.done(code, body={"groupConfigList": [JAVA, JAVA | {"groupName": "others"}]})
        found = client.json(Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)["subscriptionGroupTable"]
        assert list(found) == ["others", "workers"]
        for body, message in (
            ({}, "groupConfigList: a list of JSON objects is needed"),
            ({"groupConfigList": [{"groupName": "c"}, {}]}, "groupName: a name is needed"),
            (
                {
                    "groupConfigList": [
                        {"groupName": "c"},
                        {"groupName": "d", "attributes": {"+x": "1"}},
                    ]
                },
                "attributes: 'x' is not known",
            ),
            (
                {"groupConfigList": [{"groupName": "c"}, {"groupName": "a b"}]},
                "consumer group 'a b'",
            ),
        ):
            answer = client.call(code, body=body)
            assert (answer.code, answer.remark[: len(message)]) == (
                Status.INVALID_PARAMETER,
                message,
            )
        again = client.json(Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)["subscriptionGroupTable"]
        assert again == found


def test_a_deleted_group_is_forgotten(tmp_path: Path) -> None:
    with remoting_door(tmp_path) as door, door.client() as client:
        with_progress(door)
        client.done(Code.DELETE_SUBSCRIPTIONGROUP, {"groupName": "workers", "cleanOffset": True})
        assert not client.json(Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)["subscriptionGroupTable"]
        assert door.submit(GetOffsets("workers", "orders")) == {}


def test_a_group_deleted_without_its_offsets_goes_on_where_it_was(tmp_path: Path) -> None:
    with remoting_door(tmp_path) as door, door.client() as client:
        with_progress(door)
        client.done(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=JAVA)
        client.done(
            Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=JAVA | {"groupName": "never-came"}
        )
        for group in ("workers", "never-came"):
            client.done(Code.DELETE_SUBSCRIPTIONGROUP, {"groupName": group, "cleanOffset": "false"})
        assert door.submit(GetOffsets("workers", "orders")) == {0: 1, 1: 3}
        found = client.json(Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)["subscriptionGroupTable"]
        assert list(found) == ["workers"]
        assert found["workers"]["retryMaxTimes"] == 16, "its settings are forgotten"


@pytest.mark.parametrize("offsets_too", ["true", "false"])
def test_a_group_that_is_not_there_is_deleted_as_well(tmp_path: Path, offsets_too: str) -> None:
    with remoting_door(tmp_path) as door, door.client() as client:
        asked = {"groupName": "nobody", "cleanOffset": offsets_too}
        client.done(Code.DELETE_SUBSCRIPTIONGROUP, asked)
        wrong = client.call(Code.DELETE_SUBSCRIPTIONGROUP, {"groupName": "a b"})
        assert wrong.code == Status.INVALID_PARAMETER
        assert client.call(Code.DELETE_SUBSCRIPTIONGROUP).remark == "groupName: missing"


def test_progress_says_what_is_consumed_and_when_it_was_stored(tmp_path: Path) -> None:
    with remoting_door(tmp_path) as door, door.client() as client:
        with_progress(door)
        now_ms = door.engine.clock.wall_ms()
        found = client.done(Code.GET_CONSUME_STATS, {"consumerGroup": "workers"})
        key = {"brokerName": "broker-a", "queueId": 0, "topic": "orders"}
        wrapper = {
            "brokerOffset": 3,
            "consumerOffset": 1,
            "lastTimestamp": now_ms,
            "pullOffset": 1,
        }
        assert rows(found.body) == [
            (key, wrapper),
            (key | {"queueId": 1}, wrapper | {"consumerOffset": 3, "pullOffset": 3}),
        ]
        for asked in (
            {"topic": "orders"},
            {"topicList": "orders;"},
            {"topicList": "orders;orders"},
        ):
            again = client.done(Code.GET_CONSUME_STATS, {"consumerGroup": "workers"} | asked)
            assert again.body == found.body
        answer = client.call(Code.GET_CONSUME_STATS, {"consumerGroup": "workers", "topic": "no"})
        assert answer.code == Status.TOPIC_NOT_EXIST


@pytest.mark.parametrize(
    "code", [Code.GET_CONSUME_STATS, Code.GET_BROKER_CONSUME_STATS, Code.GET_ALL_CONSUMER_OFFSET]
)
def test_progress_that_is_too_much_for_an_answer_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: Code
) -> None:
    monkeypatch.setattr("horolog.server.remoting.groups.UNREAD_BYTES_MAX", 20)
    with remoting_door(tmp_path) as door, door.client() as client:
        with_progress(door)
        answer = client.call(code, {"consumerGroup": "workers"})
        assert answer.code == Status.INVALID_PARAMETER
        assert "the answer would have more than 20 bytes; " in answer.remark


def test_what_consumers_have_pulled_and_not_consumed_is_in_flight(tmp_path: Path) -> None:
    with remoting_door(tmp_path) as door, door.client() as client:
        with_progress(door)

        def pulled() -> list[int]:
            asked = {"consumerGroup": "workers", "topic": "orders"}
            body = client.done(Code.GET_CONSUME_STATS, asked).body
            return [row["pullOffset"] for _, row in rows(body)]

        client.done(
            Code.PULL_MESSAGE, pulling(consumerGroup="workers", queueOffset=1, maxMsgNums=1)
        )
        assert pulled() == [2, 3]
        client.done(Code.PULL_MESSAGE, pulling(consumerGroup="workers", queueOffset=2))
        assert pulled() == [3, 3]
        found = object_keys.read(client.done(Code.GET_BROKER_CONSUME_STATS).body)
        assert (found["totalDiff"], found["totalInflightDiff"]) == (2, 2)
        reset = {"topic": "orders", "group": "workers", "queueId": 0, "offset": 1, "timestamp": 0}
        client.done(Code.INVOKE_BROKER_TO_RESET_OFFSET, reset)
        assert pulled() == [1, 3]


def test_how_much_is_remembered_of_pulls_is_bounded() -> None:
    pulled = PulledOffsets(3)
    for queue in (0, 1, 2, 0, 3):
        pulled.record("g", "t", queue, queue + 10)
    assert [pulled.of("g", "t", queue) for queue in range(4)] == [0, 11, 12, 13]
    pulled.record("h", "t", 0, 7)
    pulled.forget("g", "other")
    pulled.forget("g")
    assert [pulled.of("g", "t", 3), pulled.of("h", "t", 0)] == [0, 7]


def test_what_all_groups_are_after_is_summed(tmp_path: Path) -> None:
    with remoting_door(tmp_path) as door, door.client() as client:
        with_progress(door)
        answer = client.done(Code.GET_BROKER_CONSUME_STATS, {"isOrder": False})
        found = object_keys.read(answer.body)
        assert (found["totalDiff"], found["totalInflightDiff"]) == (2, 0)
        assert found["brokerAddr"].endswith(str(door.broker[1]))
        [(group, tables)] = found["consumeStatsList"][0].items()
        assert (group, len(tables), len(object_keys.rows(tables[0]["offsetTable"]))) == (
            "workers",
            1,
            2,
        )
        orderly = object_keys.read(client.done(Code.GET_BROKER_CONSUME_STATS, {"isOrder": 1}).body)
        assert orderly["consumeStatsList"] == []


@pytest.mark.parametrize(
    "code", [Code.GET_BROKER_CONSUME_STATS, Code.GET_CONSUME_STATS, Code.GET_ALL_CONSUMER_OFFSET]
)
def test_a_topic_that_is_deleted_meanwhile_fails_no_question_about_all(
    tmp_path: Path, code: Code
) -> None:
    topics = [f"t{number:02}" for number in range(40)]
    with remoting_door(tmp_path) as door, door.client() as client, door.client() as tool:
        for topic in topics:
            door.create(topic, queues=1)
            door.submit(CommitOffsets("workers", topic, {0: 0}))
        asked = client.ask(code, {"consumerGroup": "workers"})
        for topic in reversed(topics[1:]):
            tool.done(Code.DELETE_TOPIC_IN_BROKER, {"topic": topic})
        answer = client.answer(asked)
        assert (answer.code, answer.remark) == (Status.SUCCESS, "")
        assert b"t00" in answer.body


def test_time_spans_say_how_old_the_next_message_is(tmp_path: Path) -> None:
    with remoting_door(tmp_path) as door, door.client() as client:
        with_progress(door)
        stored_ms = door.engine.clock.wall_ms()
        door.advance(5_000)
        asked = {"topic": "orders", "group": "workers"}
        spans = client.json(Code.QUERY_CONSUME_TIME_SPAN, asked)["consumeTimeSpanSet"]
        assert spans[0] == {
            "consumeTimeStamp": stored_ms,
            "delayTime": 5_000,
            "maxTimeStamp": stored_ms,
            "messageQueue": {"brokerName": "broker-a", "queueId": 0, "topic": "orders"},
            "minTimeStamp": stored_ms,
        }
        assert spans[1]["delayTime"] == 0


def test_who_takes_from_a_topic_and_what_a_group_takes_from(tmp_path: Path) -> None:
    with remoting_door(tmp_path) as door, door.client() as client:
        with_progress(door)
        door.create("quiet")
        assert client.json(Code.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": "orders"}) == {
            "groupList": ["workers"]
        }
        assert client.json(Code.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": "quiet"}) == {"groupList": []}
        found = client.json(Code.QUERY_TOPICS_BY_CONSUMER, {"group": "workers"})
        assert found["topicList"] == ["orders"]
        assert client.json(Code.GET_ALL_CONSUMER_OFFSET) == {
            "offsetTable": {"orders@workers": {"0": 1, "1": 3}}
        }


def test_a_group_goes_on_where_another_one_is(tmp_path: Path) -> None:
    with remoting_door(tmp_path) as door, door.client() as client:
        with_progress(door)
        asked = {"srcGroup": "workers", "destGroup": "others", "topic": "orders"}
        client.done(Code.CLONE_GROUP_OFFSET, asked)
        assert door.submit(GetOffsets("others", "orders")) == {0: 1, 1: 3}


def test_a_group_has_a_retry_topic_for_tools_before_there_is_anything_in_it(tmp_path: Path) -> None:
    with remoting_door(tmp_path) as door, door.client() as client:
        client.done(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=JAVA)
        names = client.json(Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        assert names == {"topicList": ["%RETRY%workers"]}
        route = client.json(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "%RETRY%workers"})
        assert route["queueDatas"][0]["readQueueNums"] == 1
        answer = client.call(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "%DLQ%workers"})
        assert answer.code == Status.TOPIC_NOT_EXIST


def _reset(client: RemotingClient, **fields: object) -> dict[int, int]:
    asked = {"topic": "orders", "group": "workers", "timestamp": 0, "isForce": True, **fields}
    found = rows(client.done(Code.INVOKE_BROKER_TO_RESET_OFFSET, asked).body)
    return {key["queueId"]: offset for key, offset in found}


def test_a_group_is_set_to_a_time_or_an_offset(tmp_path: Path) -> None:
    with remoting_door(tmp_path) as door, door.client() as client:
        with_progress(door)
        first_ms = door.engine.clock.wall_ms()
        door.advance(60_000)
        send(door, "orders", b"later")
        later_ms = door.engine.clock.wall_ms()
        ends = _reset(client, timestamp=-1)
        assert sorted(ends.values()) == [3, 4]
        assert door.submit(GetOffsets("workers", "orders")) == ends
        assert _reset(client, timestamp=later_ms) == {0: 3, 1: 3}
        assert _reset(client, timestamp=first_ms, queueId=1) == {1: 0}
        assert _reset(client, offset=2, queueId=0) == {0: 2}
        assert door.submit(GetOffsets("workers", "orders")) == {0: 2, 1: 0}
        # Without force it only goes back.
        assert _reset(client, timestamp=later_ms, isForce=False) == {0: 2, 1: 0}


@pytest.mark.parametrize(
    ("fields", "status", "message"),
    [
        ({"topic": "nothing"}, Status.TOPIC_NOT_EXIST, "topic 'nothing' does not exist"),
        ({"group": "nobody"}, Status.SUBSCRIPTION_GROUP_NOT_EXIST, "consumer group 'nobody' does"),
        ({"timestamp": ""}, Status.INVALID_PARAMETER, "timestamp: missing"),
        ({"timestamp": "noon"}, Status.INVALID_PARAMETER, "timestamp: 'noon' is no number"),
        ({"queueId": 2}, Status.INVALID_PARAMETER, "queueId: 2; -1 to 1 are allowed"),
        ({"queueId": 0, "offset": 4}, Status.INVALID_PARAMETER, "offset: 4; 0 to 3 are allowed"),
        ({"isForce": "perhaps"}, Status.INVALID_PARAMETER, "isForce: 'perhaps' is neither"),
    ],
)
def test_a_reset_that_is_refused_changes_nothing(
    tmp_path: Path, fields: dict[str, object], status: int, message: str
) -> None:
    with remoting_door(tmp_path) as door, door.client() as client:
        with_progress(door)
        asked = {"topic": "orders", "group": "workers", "timestamp": 0, **fields}
        answer = client.call(Code.INVOKE_BROKER_TO_RESET_OFFSET, asked)
        assert (answer.code, answer.remark[: len(message)]) == (status, message)
        assert door.submit(GetOffsets("workers", "orders")) == {0: 1, 1: 3}
