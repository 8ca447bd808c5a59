"""Every kind of bad input over gRPC: its own code and a sentence; docs/reference/refusals.md has the same table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import grpc
from google.protobuf.duration_pb2 import Duration
from tests.support.grpc_door import ENDPOINTS, HEADERS, Door, message, sending, with_door
from tests.support.refusals import differences

from horolog.protocol.commands import ChangeTopic, CreateTopic, TopicType
from horolog.protocol.grpc import messaging_pb2 as pb
from horolog.protocol.topic_commands import TopicSettings

LONG_TOPIC, LONG_GROUP = "t" * 128, "g" * 121
HOUR_S = 3_600


class Case(NamedTuple):
    """What is sent, and in words what is wrong with it."""

    call: str
    wrong: str
    request: Callable[[Door], Any]
    headers: Any = HEADERS


def resource(name: str) -> pb.Resource:
    return pb.Resource(name=name)


def send(wrong: str, topic: str = "mixed", body: bytes = b"x", **system: Any) -> Case:
    return Case("SendMessage", wrong, lambda _: sending(message(topic, body, **system)))


def route(wrong: str, topic: str, endpoints: pb.Endpoints = ENDPOINTS) -> Case:
    request = pb.QueryRouteRequest(topic=resource(topic), endpoints=endpoints)
    return Case("QueryRoute", wrong, lambda _: request)


def assign(wrong: str, topic: str = "mixed", group: str = "g") -> Case:
    request = pb.QueryAssignmentRequest(
        topic=resource(topic), group=resource(group), endpoints=ENDPOINTS
    )
    return Case("QueryAssignment", wrong, lambda _: request)


def receive(
    wrong: str, topic: str = "mixed", group: str = "g", queue: int = -1, **fields: Any
) -> Case:
    request = pb.ReceiveMessageRequest(
        group=resource(group),
        message_queue=pb.MessageQueue(topic=resource(topic), id=queue),
        **{"invisible_duration": Duration(seconds=30), "batch_size": 1, **fields},
    )
    return Case("ReceiveMessage", wrong, lambda _: request)


def expression(text: str, kind: Any) -> pb.FilterExpression:
    return pb.FilterExpression(expression=text, type=kind)


def ack(wrong: str, *handles: str, topic: str = "mixed", group: str = "g") -> Case:
    entries = [pb.AckMessageEntry(message_id="m", receipt_handle=handle) for handle in handles]
    request = pb.AckMessageRequest(topic=resource(topic), group=resource(group), entries=entries)
    return Case("AckMessage", wrong, lambda _: request)


def change(wrong: str, handle: str = "?", **duration: int) -> Case:
    request = pb.ChangeInvisibleDurationRequest(
        topic=resource("mixed"),
        group=resource("g"),
        receipt_handle=handle,
        invisible_duration=Duration(**duration),
    )
    return Case("ChangeInvisibleDuration", wrong, lambda _: request)


def recall(wrong: str, handle: str, topic: str = "mixed") -> Case:
    request = pb.RecallMessageRequest(topic=resource(topic), recall_handle=handle)
    return Case("RecallMessage", wrong, lambda _: request)


CASES = [
    Case(
        "Heartbeat",
        "no client id",
        lambda _: pb.HeartbeatRequest(client_type=pb.PRODUCER),
        HEADERS[1:],
    ),
    Case("Heartbeat", "a client that has said nothing of itself", lambda _: pb.HeartbeatRequest()),
    Case(
        "Heartbeat",
        "a consumer without a group",
        lambda _: pb.HeartbeatRequest(client_type=pb.SIMPLE_CONSUMER),
    ),
    Case(
        "Heartbeat",
        "a group with a blank",
        lambda _: pb.HeartbeatRequest(client_type=pb.PUSH_CONSUMER, group=resource("a b")),
    ),
    route("no endpoints", "mixed", pb.Endpoints()),
    route("a blank topic", " "),
    route("a topic of 128 characters", LONG_TOPIC),
    route("a topic with a blank", "a b"),
    route("a system topic", "TBW102"),
    route("an unknown topic", "unknown"),
    assign("a blank group", group=""),
    assign("a group of 121 characters", group=LONG_GROUP),
    assign("a group with a dot", group="a.b"),
    assign("a system group", group="CID_RMQ_SYS_x"),
    assign("an unknown topic", topic="unknown"),
    assign("a topic that cannot be read", topic="write-only"),
    Case("SendMessage", "no message", lambda _: sending()),
    Case("SendMessage", "two topics", lambda _: sending(message("mixed"), message("normal"))),
    send("a blank topic", topic=""),
    send("an unknown topic", topic="unknown"),
    send("a topic that cannot be written", topic="read-only"),
    send("an empty body", body=b""),
    send("a body of 4 MiB and a byte", body=bytes((4 << 20) + 1)),
    send("129 user properties", user={f"p{number}": "v" for number in range(129)}),
    send("16,385 bytes of user properties", user={"p": "v" * 16_384}),
    send("a user property with a reserved name", user={"TAGS": "v"}),
    send("a control character in a user property", user={"p": "\x01"}),
    send("a blank tag", tag=" "),
    send("a tag with a bar", tag="a|b"),
    send("a control character in a tag", tag="a\tb"),
    send("a blank key", keys=[" "]),
    send("a control character in a key", keys=["a\nb"]),
    send("a key with a blank", keys=["a b"]),
    send("a blank message id", message_id=" "),
    send("a blank message group", message_group=" "),
    send("a message group of 64 bytes", message_group="g" * 64),
    send("a control character in a message group", message_group="a\x02b"),
    Case(
        "SendMessage",
        "a delivery in eleven years",
        lambda door: sending(message(delivery_timestamp=door.due(11 * 366 * 86_400_000))),
    ),
    Case(
        "SendMessage",
        "a scheduled message to a topic of normal ones",
        lambda door: sending(message("normal", delivery_timestamp=door.due(60_000))),
    ),
    send("a normal message to a topic of scheduled ones", topic="delay"),
    send("a message group to a topic of normal ones", topic="normal", message_group="g"),
    send("the type DELAY and no delivery time", message_type=pb.DELAY),
    send("the type LITE", message_type=pb.LITE),
    send("the type PRIORITY", message_type=pb.PRIORITY),
    send("a lite topic", lite_topic="desk"),
    send("a priority", priority=3),
    send(
        "a digest of another body",
        body_digest=pb.Digest(type=pb.CRC32, checksum="0"),
    ),
    send(
        "a recovery duration of more than an hour",
        message_type=pb.TRANSACTION,
        orphaned_transaction_recovery_duration=Duration(seconds=HOUR_S + 1),
    ),
    receive("a blank topic", topic=""),
    receive("an unknown topic", topic="unknown"),
    receive("a topic that cannot be read", topic="write-only"),
    receive("a blank group", group=""),
    receive("a queue that the topic has not", queue=99),
    receive("tags without a tag", filter_expression=expression("||", pb.TAG)),
    receive("a condition that is none", filter_expression=expression("a >", pb.SQL)),
    receive("an unknown type of filter", filter_expression=expression("a", 9)),
    receive("an invisible time of 9 s", invisible_duration=Duration(seconds=9)),
    receive(
        "an invisible time of more than 12 h", invisible_duration=Duration(seconds=12 * HOUR_S + 1)
    ),
    receive("a negative number of messages", batch_size=-1),
    receive("a negative polling time", long_polling_timeout=Duration(seconds=-1)),
    ack("no entry"),
    ack("a blank group", "?", group=""),
    ack("a handle that is none", "?"),
    change("a negative invisible time", seconds=-1),
    change("an invisible time of more than 12 h", seconds=12 * HOUR_S + 1),
    change("a handle that is none", seconds=30),
    Case(
        "ForwardMessageToDeadLetterQueue",
        "a handle that is none",
        lambda _: pb.ForwardMessageToDeadLetterQueueRequest(
            topic=resource("mixed"), group=resource("g"), receipt_handle="?"
        ),
    ),
    recall("a blank handle", ""),
    recall("a handle that is none", "?"),
    recall(
        "an unknown message of a topic of normal ones", "djEgbm9ybWFsIGJyb2tlci1hIDIgbQ==", "normal"
    ),
    recall("the handle of another topic", "djEgbm9ybWFsIGJyb2tlci1hIDIgbQ==", "mixed"),
    Case(
        "EndTransaction",
        "a blank transaction id",
        lambda _: pb.EndTransactionRequest(topic=resource("mixed"), message_id="m"),
    ),
    *(
        Case(name, "whatever is asked", lambda _, name=name: getattr(pb, f"{name}Request")())
        for name in (
            "PullMessage",
            "UpdateOffset",
            "GetOffset",
            "QueryOffset",
            "SyncLiteSubscription",
        )
    ),
]


def test_each_has_its_code_and_a_sentence(tmp_path: Path) -> None:
    made: list[tuple[str, ...]] = []

    async def story(door: Door) -> None:
        for name, perm in (("read-only", 4), ("write-only", 2)):
            await door.engine.submit(CreateTopic(name, TopicType.MIXED, 1))
            await door.engine.submit(ChangeTopic(name, settings=TopicSettings(perm=perm)))
        for case in CASES:
            try:
                answer = await door.call(case.call, case.request(door), case.headers)
            except grpc.aio.AioRpcError as error:
                made.append((case.call, case.wrong, str(error.code()), error.details() or ""))
                continue
            status = answer.status
            for entry in getattr(answer, "entries", ()):
                assert entry.status.code == status.code
            named = f"`{pb.Code.Name(status.code)}` {status.code}"
            made.append((f"`{case.call}`", case.wrong, named, status.message))

    with_door(tmp_path, story)
    found = differences("gRPC", made)
    assert not found, found
