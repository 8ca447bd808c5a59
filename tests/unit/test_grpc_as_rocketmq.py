"""What the public suites for 5.x clients compare, as RocketMQ's proxy has it."""

from __future__ import annotations

from pathlib import Path

from tests.support.grpc_door import ENDPOINTS, Door, message, sending, with_door

from horolog.protocol.grpc import messaging_pb2 as pb


def test_an_empty_text_is_none(tmp_path: Path) -> None:
    """As in RocketMQ: some clients always send tag and message group."""

    async def story(door: Door) -> None:
        for topic in ("normal", "mixed"):
            made = message(topic, tag="", message_group="", keys=["", "k", ""])
            (entry,) = (await door.call("SendMessage", sending(made))).entries
            assert entry.status.code == pb.OK, entry.status
            got = (await door.receive(topic=topic))[1].message.system_properties
            assert (got.HasField("tag"), got.HasField("message_group")) == (False, False)
            assert (list(got.keys), got.message_type) == (["k"], pb.NORMAL)

    with_door(tmp_path, story)


def test_what_official_clients_show_of_a_message(tmp_path: Path) -> None:
    """The id as transaction id too, and group and trace among the properties, which may be sent back."""

    async def story(door: Door) -> None:
        made = message("fifo", message_group="g", trace_context="t", user={"color": "red"})
        for _ in range(2):
            (entry,) = (await door.call("SendMessage", sending(made))).entries
            assert entry.status.code == pb.OK, entry.status
            assert entry.transaction_id == entry.message_id == made.system_properties.message_id
            got = (await door.receive(topic="fifo"))[1].message
            assert dict(got.user_properties) == {
                "color": "red",
                "__SHARDINGKEY": "g",
                "TRACE_CONTEXT": "t",
            }
            made = message(
                "fifo",
                message_group="g",
                trace_context="t",
                message_id="id-2",
                user={**got.user_properties, "__transactionId__": "of another message"},
            )
        late = message("delay", message_id="later", delivery_timestamp=door.due(1_000))
        bad = message("delay", message_id="never")
        answer = await door.call("SendMessage", sending(late, bad))
        assert [each.transaction_id for each in answer.entries] == ["later", ""]

    with_door(tmp_path, story)


def test_an_ack_names_its_code(tmp_path: Path) -> None:
    """Clients show the sentence of the whole answer, and the suites look for the name in it."""

    async def story(door: Door) -> None:
        topic, group = pb.Resource(name="mixed"), pb.Resource(name="g")
        made = message()
        assert (await door.call("SendMessage", sending(made))).status.code == pb.OK
        got = (await door.receive())[1].message.system_properties
        good = pb.AckMessageEntry(message_id="id-1", receipt_handle=got.receipt_handle)
        bad = pb.AckMessageEntry(message_id="id-1", receipt_handle="nonsense")
        for entries, name in (([bad], "INVALID_RECEIPT_HANDLE"), ([good, bad], "MULTIPLE_RESULTS")):
            request = pb.AckMessageRequest(topic=topic, group=group, entries=entries)
            status = (await door.call("AckMessage", request)).status
            assert pb.Code.Name(status.code) == name
            assert status.message.startswith(f"{name}: ")

    with_door(tmp_path, story)


def test_an_unknown_topic_has_rocketmqs_words(tmp_path: Path) -> None:
    async def story(door: Door) -> None:
        request = pb.QueryRouteRequest(topic=pb.Resource(name="nowhere"), endpoints=ENDPOINTS)
        status = (await door.call("QueryRoute", request)).status
        assert status.code == pb.TOPIC_NOT_FOUND
        words = "CODE: 17  DESC: No topic route info in name server for the topic: nowhere"
        assert words in status.message

    with_door(tmp_path, story)
