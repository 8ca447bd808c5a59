"""Request and reply over remoting: a consumer's reply reaches the producer that waits for it, by its client id."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.support.remoting_client import RemotingClient
from tests.support.remoting_door import RemotingDoor, remoting_door

from horolog.protocol.queue_commands import ReadMessage
from horolog.protocol.remoting.codes import Code, Status
from horolog.protocol.remoting.frame import Frame
from horolog.protocol.rocketmq import properties
from horolog.protocol.rocketmq.layout import topic_and_properties
from horolog.server.remoting import replies as replies_module

ASKER = "10.0.0.1@asker"
REPLIES = "DefaultCluster_REPLY_TOPIC"
_SHORT = {
    "producerGroup": "a", "topic": "b", "defaultTopic": "c", "defaultTopicQueueNums": "d", "queueId": "e",
    "sysFlag": "f", "bornTimestamp": "g", "flag": "h", "properties": "i", "reconsumeTimes": "j", "unitMode": "k",
}  # fmt: skip


def produces(client: RemotingClient, client_id: str = ASKER, *groups: str) -> None:
    names = [{"groupName": group} for group in groups or ("askers",)]
    client.done(
        Code.HEART_BEAT,
        body={"clientID": client_id, "producerDataSet": names, "consumerDataSet": []},
    )


def texts(**given: str) -> str:
    return properties.encode(given).decode()


def reply_fields(to: str = ASKER, topic: str = REPLIES, **more: object) -> dict[str, object]:
    said = texts(
        UNIQ_KEY="0A0B0C", CORRELATION_ID="7", REPLY_TO_CLIENT=to, TTL="3000", MSG_TYPE="reply"
    )
    return {
        "producerGroup": "repliers", "topic": topic, "defaultTopic": "TBW102", "defaultTopicQueueNums": 4,
        "queueId": 0, "sysFlag": 0, "bornTimestamp": 1_700_000_000_123, "flag": 9, "properties": said,
        "reconsumeTimes": 0, "unitMode": False, **more,
    }  # fmt: skip


def short(fields: Mapping[str, object]) -> dict[str, object]:
    return {_SHORT[name]: value for name, value in fields.items()}


def stored(door: RemotingDoor, answer: Frame) -> tuple[str, dict[str, str]]:
    """Topic and properties of what an answer to a send names."""
    layout = door.submit(ReadMessage(int(answer.fields["msgId"][-16:], 16)))
    topic, text = topic_and_properties(layout)
    return topic, properties.decode(text)


def test_a_request_is_stored_with_the_cluster_whose_reply_topic_its_reply_goes_to(
    tmp_path: Path,
) -> None:
    with remoting_door(tmp_path, cluster_name="east") as door, door.client() as client:
        door.create("orders", queues=1)
        asked = {"CORRELATION_ID": "7", "REPLY_TO_CLIENT": ASKER, "TTL": "3000"}
        for given in (asked, {**asked, "CLUSTER": "west"}):
            fields = {**reply_fields(topic="orders"), "properties": texts(**given)}
            _, kept = stored(door, client.done(Code.SEND_MESSAGE_V2, short(fields), b"how much?"))
            kept.pop("UNIQ_KEY")
            assert kept == {**asked, "CLUSTER": "east", "MSG_REGION": "DefaultRegion"}


@pytest.mark.parametrize("code", [Code.SEND_REPLY_MESSAGE, Code.SEND_REPLY_MESSAGE_V2])
def test_a_reply_is_given_to_its_asker_and_kept(tmp_path: Path, code: Code) -> None:
    with remoting_door(tmp_path) as door, door.client() as asker, door.client() as replier:
        produces(asker)
        fields = reply_fields()
        is_short = code == Code.SEND_REPLY_MESSAGE_V2
        number = replier.ask(code, short(fields) if is_short else fields, b"42")
        pushed = asker.push()
        assert (pushed.code, pushed.body) == (Code.PUSH_REPLY_MESSAGE_TO_CLIENT, b"42")
        assert not pushed.is_one_way
        asker.reply(pushed)
        answer = replier.answer(number)
        assert answer.code == Status.SUCCESS
        shown = dict(pushed.fields)
        said = properties.decode(shown.pop("properties").encode())
        now = shown.pop("storeTimestamp")
        assert said.pop("PUSH_REPLY_TIME") == now
        assert said == properties.decode(str(fields["properties"]).encode())
        assert shown.pop("bornHost") == "{}:{}".format(*replier.socket.getsockname())
        assert shown.pop("storeHost") == "127.0.0.1:10911"
        texts_of = {name: str(value).lower() for name, value in fields.items()}
        del texts_of["properties"]
        assert {name: value.lower() for name, value in shown.items()} == texts_of
        topic, kept = stored(door, answer)
        assert (topic, kept["CORRELATION_ID"]) == (REPLIES, "7")
        assert answer.fields["queueOffset"] == "0"


def test_a_reply_without_a_body_is_passed_on_and_not_kept(tmp_path: Path) -> None:
    """Go's client makes such ones of any body."""
    with remoting_door(tmp_path) as door, door.client() as asker, door.client() as replier:
        produces(asker)
        number = replier.ask(Code.SEND_REPLY_MESSAGE, reply_fields(), b"")
        pushed = asker.push()
        assert pushed.body == b""
        asker.reply(pushed)
        answer = replier.answer(number)
        assert (answer.code, answer.fields["queueOffset"]) == (Status.SUCCESS, "0")
        missing = replier.call(Code.GET_TOPIC_STATS_INFO, {"topic": REPLIES})
        assert missing.code == Status.TOPIC_NOT_EXIST


def test_a_reply_that_reaches_nobody_is_refused_and_not_kept(tmp_path: Path) -> None:
    with remoting_door(tmp_path) as door, door.client() as asker, door.client() as replier:

        def refused(**given: object) -> Frame:
            answer = replier.call(
                Code.SEND_REPLY_MESSAGE_V2,
                short(reply_fields(**given)),
                b"42",  # type: ignore[arg-type]  # as asked
            )
            assert answer.code == Status.SYSTEM_ERROR
            return answer

        assert refused().remark == f"REPLY_TO_CLIENT: no producer {ASKER!r} is here"
        assert refused(properties="").remark == "properties: REPLY_TO_CLIENT is missing"
        produces(asker)
        number = replier.ask(Code.SEND_REPLY_MESSAGE_V2, short(reply_fields()), b"42")
        asker.reply(asker.push(), code=1)
        answer = replier.answer(number)
        assert (answer.code, answer.remark) == (
            Status.SYSTEM_ERROR,
            f"REPLY_TO_CLIENT: {ASKER!r} answered 1: ",
        )
        number = replier.ask(Code.SEND_REPLY_MESSAGE_V2, short(reply_fields()), b"42")
        asker.push()
        asker.close()
        answer = replier.answer(number)
        assert (answer.code, answer.remark) == (
            Status.SYSTEM_ERROR,
            f"REPLY_TO_CLIENT: {ASKER!r}: the client has gone",
        )
        assert refused().remark == f"REPLY_TO_CLIENT: no producer {ASKER!r} is here"
        assert replier.call(Code.GET_TOPIC_STATS_INFO, {"topic": REPLIES}).code == (
            Status.TOPIC_NOT_EXIST
        )


def test_a_reply_that_cannot_be_one_is_not_passed_on(tmp_path: Path) -> None:
    with remoting_door(tmp_path) as door, door.client() as asker, door.client() as replier:
        produces(asker)
        wrong: list[tuple[dict[str, object], bytes, Status, str]] = [
            ({"topic": "orders"}, b"42", Status.INVALID_PARAMETER, "topic: "),
            ({"flag": "nine"}, b"42", Status.INVALID_PARAMETER, "h: "),
            (
                {"properties": texts(REPLY_TO_CLIENT=ASKER, TRAN_MSG="true")},
                b"42",
                Status.INVALID_PARAMETER,
                "body: ",
            ),
        ]
        for given, body, status, remark in wrong:
            fields = short({**reply_fields(), **given})
            answer = replier.call(Code.SEND_REPLY_MESSAGE_V2, fields, body)
            assert (answer.code, answer.remark[: len(remark)]) == (status, remark)
        asker.done(Code.GET_BROKER_CLUSTER_INFO)
        assert asker.pushed == []


def test_a_producer_is_found_as_long_as_one_of_its_groups_is_there(tmp_path: Path) -> None:
    with remoting_door(tmp_path) as door, door.client() as asker, door.client() as again:
        registry = door.front.node.registry
        produces(asker, ASKER, "askers", "others")
        produces(asker, "somebody", "askers")
        door.within(registry.check_invariants)
        leave = {"clientID": ASKER, "producerGroup": "askers", "consumerGroup": ""}
        asker.done(Code.UNREGISTER_CLIENT, leave)
        assert door.within(lambda: registry.producer(ASKER)) is not None
        # Over a new connection, before the end of the old one is known
        produces(again, ASKER, "others")
        asker.close()
        again.done(Code.GET_BROKER_CLUSTER_INFO)
        found = door.within(lambda: registry.producer(ASKER))
        assert found is not None
        again.done(Code.UNREGISTER_CLIENT, {**leave, "producerGroup": "others"})
        assert door.within(lambda: registry.producer(ASKER)) is None
        door.within(registry.check_invariants)


def test_replies_that_wait_for_their_asker_do_not_stop_the_reading_of_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They have a bound of their own."""
    monkeypatch.setattr(replies_module, "REPLIES_BYTES_MAX", 1_500_000)
    with remoting_door(tmp_path) as door, door.client() as asker, door.client() as replier:
        produces(asker)
        intake = door.front._intake

        def reply() -> int:
            return replier.ask(Code.SEND_REPLY_MESSAGE, reply_fields(), bytes(1_000_000))

        first = reply()
        pushed = asker.push()
        assert door.within(lambda: intake.under_way) < 10_000
        refused = replier.answer(reply())
        assert "1000000 bytes of replies wait" in refused.remark
        asker.reply(pushed)
        assert replier.answer(first).code == Status.SUCCESS
        again = reply()
        asker.reply(asker.push())
        assert replier.answer(again).code == Status.SUCCESS
        door.within(intake.check_invariants)
        assert door.within(lambda: intake.under_way) == 0
        assert not any(share.polls for share in door.within(lambda: [*intake._shares.values()]))


def test_who_replies_and_goes_holds_nothing(tmp_path: Path) -> None:
    with remoting_door(tmp_path) as door, door.client() as asker:
        produces(asker)
        intake = door.front._intake
        with door.client() as replier:
            replier.ask(Code.SEND_REPLY_MESSAGE, reply_fields(), b"42")
        asker.reply(asker.push())
        asker.call(Code.GET_BROKER_CLUSTER_INFO)
        while door.within(lambda: sum(len(share.links) for share in intake._shares.values())) > 1:
            pass
        door.within(intake.check_invariants)
        assert not any(share.polls for share in door.within(lambda: [*intake._shares.values()]))
