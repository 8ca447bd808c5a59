"""The 5.x front door: every RPC, and every status code that these RPCs can meet."""

from __future__ import annotations

import asyncio
import hashlib
from zlib import crc32

import grpc
import grpc.aio
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from grpc_door import ENDPOINTS, HEADERS, Door, message, sending, with_door

from horolog.errors import ErrorCode, HorologError
from horolog.limits import BODY_MAX, HEARTBEAT_NAME_MAX, MAX_DELAY_MS
from horolog.protocol.commands import DescribeBroker
from horolog.protocol.grpc import messaging_pb2 as pb
from horolog.protocol.grpc.status import CODES, status_of
from horolog.protocol.rocketmq.recall_handle import (
    decode_recall_handle,
    encode_recall_handle,
)
from horolog.server.grpc_unary import SERVICE

DIGEST = pb.Digest(type=pb.MD5, checksum=hashlib.md5(b"another").hexdigest().upper())
REFUSED = [
    ("blank topic", lambda d: message(" "), pb.ILLEGAL_TOPIC),
    ("long topic", lambda d: message("t" * 128), pb.ILLEGAL_TOPIC),
    ("odd topic", lambda d: message("a b"), pb.ILLEGAL_TOPIC),
    ("system topic", lambda d: message("TBW102"), pb.ILLEGAL_TOPIC),
    ("unknown topic", lambda d: message("nowhere"), pb.TOPIC_NOT_FOUND),
    ("blank tag", lambda d: message(tag=" "), pb.ILLEGAL_MESSAGE_TAG),
    ("bar in tag", lambda d: message(tag="a|b"), pb.ILLEGAL_MESSAGE_TAG),
    ("blank key", lambda d: message(keys=[" "]), pb.ILLEGAL_MESSAGE_KEY),
    ("blank within a key", lambda d: message(keys=["a b"]), pb.ILLEGAL_MESSAGE_KEY),
    ("wide blank within a key", lambda d: message(keys=["a\u3000b"]), pb.ILLEGAL_MESSAGE_KEY),
    ("wrong digest", lambda d: message(body_digest=DIGEST), pb.MESSAGE_CORRUPTED),
    ("born before 1970", lambda d: message(born_timestamp=Timestamp(seconds=-1)), pb.BAD_REQUEST),
    ("born nanos", lambda d: message(born_timestamp=Timestamp(nanos=-1)), pb.BAD_REQUEST),
    (
        "nanos of a due time",
        lambda d: message(delivery_timestamp=Timestamp(seconds=9, nanos=1 << 30)),
        pb.ILLEGAL_DELIVERY_TIME,
    ),
    ("control in key", lambda d: message(keys=["a\x01"]), pb.ILLEGAL_MESSAGE_KEY),
    ("blank group", lambda d: message(message_group=" "), pb.ILLEGAL_MESSAGE_GROUP),
    ("long group", lambda d: message(message_group="g" * 64), pb.ILLEGAL_MESSAGE_GROUP),
    ("reserved", lambda d: message(user={"KEYS": "x"}), pb.ILLEGAL_MESSAGE_PROPERTY_KEY),
    ("control value", lambda d: message(user={"k": "\x02"}), pb.ILLEGAL_MESSAGE_PROPERTY_KEY),
    ("129 properties", lambda d: message(user={f"k{i}": "v" for i in range(129)}), 43101),
    ("properties", lambda d: message(user={"k": "v" * 16_384}), pb.MESSAGE_PROPERTIES_TOO_LARGE),
    ("blank id", lambda d: message(message_id=" "), pb.ILLEGAL_MESSAGE_ID),
    ("empty body", lambda d: message(body=b""), pb.MESSAGE_BODY_EMPTY),
    ("large body", lambda d: message(body=bytes(BODY_MAX + 1)), pb.MESSAGE_BODY_TOO_LARGE),
    (
        "too late",
        lambda d: message(delivery_timestamp=d.due(MAX_DELAY_MS + 60_000)),
        pb.ILLEGAL_DELIVERY_TIME,
    ),
    (
        "nonsense time",
        lambda d: message(delivery_timestamp=Timestamp(seconds=-5)),
        pb.ILLEGAL_DELIVERY_TIME,
    ),
    (
        "absurd time",
        lambda d: message(delivery_timestamp=Timestamp(seconds=1 << 60)),
        pb.ILLEGAL_DELIVERY_TIME,
    ),
    ("normal to delay", lambda d: message("delay"), pb.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
    (
        "delay to normal",
        lambda d: message("normal", delivery_timestamp=d.due(10)),
        pb.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
    ),
    (
        "fifo without group",
        lambda d: message(message_type=pb.FIFO),
        pb.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
    ),
    (
        "fifo to normal",
        lambda d: message("normal", message_group="g"),
        pb.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
    ),
    (
        "group without due time to delay",
        lambda d: message("delay", message_group="g"),
        pb.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
    ),
    (
        "group declared as delay, without due time",
        lambda d: message(message_type=pb.DELAY, message_group="g"),
        pb.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
    ),
    (
        "transaction to normal",
        lambda d: message("normal", message_type=pb.TRANSACTION),
        pb.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
    ),
    ("lite", lambda d: message(message_type=pb.LITE), pb.NOT_IMPLEMENTED),
    ("lite topic", lambda d: message(lite_topic="desk"), pb.NOT_IMPLEMENTED),
    ("normal with a priority", lambda d: message(priority=0), pb.NOT_IMPLEMENTED),
    (
        "transaction with a priority",
        lambda d: message(message_type=pb.TRANSACTION, priority=3),
        pb.NOT_IMPLEMENTED,
    ),
    (
        "priority with a due time",
        lambda d: message(message_type=pb.PRIORITY, delivery_timestamp=d.due(10)),
        pb.NOT_IMPLEMENTED,
    ),
    (
        "fifo and due time",
        lambda d: message("delay", message_type=pb.FIFO, delivery_timestamp=d.due(10)),
        pb.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
    ),
    (
        "delay without due time",
        lambda d: message(message_type=pb.DELAY),
        pb.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
    ),
    ("unknown type", lambda d: message(message_type=99), pb.BAD_REQUEST),
    (
        "group as a property",
        lambda d: message(user={"__SHARDINGKEY": "g"}),
        pb.ILLEGAL_MESSAGE_PROPERTY_KEY,
    ),
    (
        "another group as a property",
        lambda d: message(message_group="a", user={"__SHARDINGKEY": "b"}),
        pb.ILLEGAL_MESSAGE_PROPERTY_KEY,
    ),
]


def test_every_refusal_of_a_send_has_its_code_and_changes_nothing(tmp_path) -> None:
    """P11: bad input gets a clear error and changes nothing."""

    async def story(door: Door) -> None:
        before = await door.engine.submit(DescribeBroker())
        for what, make, code in REFUSED:
            answer = await door.call("SendMessage", sending(make(door)))
            assert answer.status.code == code, f"{what}: {answer.status}"
            assert answer.status.message, what
            assert answer.entries[0].status.code == code, what
        after = await door.engine.submit(DescribeBroker())
        assert (after.log_end, after.pending) == (before.log_end, before.pending)

    with_door(tmp_path, story)


def test_limits_themselves_are_allowed(tmp_path) -> None:
    async def story(door: Door) -> None:
        for made in (
            message(body=bytes(BODY_MAX)),
            message(user={f"k{i}": "v" for i in range(128)}),
            message(user={"k": "v" * (16_384 - 1)}),
            message(delivery_timestamp=door.due(MAX_DELAY_MS)),
            message(delivery_timestamp=door.due(-5_000)),
            message(message_group="g" * 63),
            message(message_group="g", delivery_timestamp=door.due(10)),
            message("delay", message_group="g", delivery_timestamp=door.due(10)),
        ):
            answer = await door.call("SendMessage", sending(made))
            assert answer.status.code == pb.OK, answer.status

    with_door(tmp_path, story)


def test_requests_of_several_messages(tmp_path) -> None:
    async def story(door: Door) -> None:
        none = await door.call("SendMessage", sending())
        assert none.status.code == pb.MESSAGE_CORRUPTED
        two = await door.call("SendMessage", sending(message("mixed"), message("normal")))
        assert two.status.code == pb.MESSAGE_CORRUPTED
        some = await door.call(
            "SendMessage", sending(message(), message(body=b""), message(message_id="id-2"))
        )
        assert some.status.code == pb.MULTIPLE_RESULTS
        assert [e.status.code for e in some.entries] == [pb.OK, pb.MESSAGE_BODY_EMPTY, pb.OK]
        assert [e.message_id for e in some.entries] == ["id-1", "id-1", "id-2"]

    with_door(tmp_path, story)


def test_client_id_is_required_everywhere(tmp_path) -> None:
    async def story(door: Door) -> None:
        for name in ("QueryRoute", "Heartbeat", "SendMessage", "AckMessage", "RecallMessage"):
            answer = await door.call(name, getattr(pb, f"{name}Request")(), headers=[])
            assert answer.status.code == pb.CLIENT_ID_REQUIRED
            long = [("x-mq-client-id", "c" * (HEARTBEAT_NAME_MAX + 1))]
            answer = await door.call(name, getattr(pb, f"{name}Request")(), headers=long)
            assert answer.status.code == pb.BAD_REQUEST
            assert "x-mq-client-id: 1025 characters" in answer.status.message
        frames = await door.receive(headers=[])
        assert frames[0].status.code == pb.CLIENT_ID_REQUIRED

    with_door(tmp_path, story)


def test_route_assignment_and_heartbeat(tmp_path) -> None:
    async def story(door: Door) -> None:
        topic, group = pb.Resource(name="delay"), pb.Resource(name="g")
        found = await door.call(
            "QueryRoute", pb.QueryRouteRequest(topic=topic, endpoints=ENDPOINTS)
        )
        assert [q.id for q in found.message_queues] == [0, 1]
        assert found.message_queues[0].broker.endpoints == ENDPOINTS
        assert list(found.message_queues[0].accept_message_types) == [pb.DELAY]
        unusable = await door.call("QueryRoute", pb.QueryRouteRequest(topic=topic))
        assert unusable.status.code == pb.ILLEGAL_ACCESS_POINT
        missing = pb.QueryRouteRequest(topic=pb.Resource(name="no"), endpoints=ENDPOINTS)
        assert (await door.call("QueryRoute", missing)).status.code == pb.TOPIC_NOT_FOUND
        assigned = await door.call(
            "QueryAssignment",
            pb.QueryAssignmentRequest(topic=topic, group=group, endpoints=ENDPOINTS),
        )
        assert [a.message_queue.id for a in assigned.assignments] == [-1]
        stranger = await door.call("Heartbeat", pb.HeartbeatRequest())
        assert stranger.status.code == pb.UNRECOGNIZED_CLIENT_TYPE
        known = await door.call("Heartbeat", pb.HeartbeatRequest(client_type=pb.PRODUCER))
        assert known.status.code == pb.OK
        bye = await door.call("NotifyClientTermination", pb.NotifyClientTerminationRequest())
        assert bye.status.code == pb.OK

    with_door(tmp_path, story)


def test_telemetry_answers_settings(tmp_path) -> None:
    async def story(door: Door) -> None:
        method = door.channel.stream_stream(
            f"/{SERVICE}/Telemetry",
            request_serializer=pb.TelemetryCommand.SerializeToString,
            response_deserializer=pb.TelemetryCommand.FromString,
        )
        stream = method(metadata=HEADERS)
        await stream.write(
            pb.TelemetryCommand(
                settings=pb.Settings(publishing=pb.Publishing(topics=[pb.Resource(name="t")]))
            )
        )
        answer = await stream.read()
        assert answer.status.code == pb.OK
        assert answer.settings.publishing.max_body_size == BODY_MAX
        assert answer.settings.backoff_policy.WhichOneof("strategy") == "exponential_backoff"
        await stream.write(
            pb.TelemetryCommand(
                settings=pb.Settings(
                    client_type=pb.PUSH_CONSUMER,
                    subscription=pb.Subscription(group=pb.Resource(name="bad name")),
                )
            )
        )
        assert (await stream.read()).status.code == pb.ILLEGAL_CONSUMER_GROUP
        await stream.write(
            pb.TelemetryCommand(
                settings=pb.Settings(
                    client_type=pb.PUSH_CONSUMER,
                    subscription=pb.Subscription(group=pb.Resource(name="g")),
                )
            )
        )
        push = (await stream.read()).settings
        assert push.subscription.receive_batch_size == 32
        assert push.subscription.long_polling_timeout.seconds == 20
        assert push.backoff_policy.WhichOneof("strategy") == "customized_backoff"
        await stream.write(pb.TelemetryCommand(settings=pb.Settings()))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stream.read()
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT

    with_door(tmp_path, story)


def test_receive_fields_ack_and_handles(tmp_path) -> None:
    async def story(door: Door) -> None:
        made = message(tag="TagA", keys=["k1", "k2"], user={"color": "red"}, born_host="me")
        await door.call("SendMessage", sending(made))
        frames = await door.receive()
        assert frames[0].status.code == pb.OK
        assert frames[-1].HasField("delivery_timestamp")
        got = frames[1].message
        system = got.system_properties
        assert (got.body, dict(got.user_properties)) == (b"body", {"color": "red"})
        assert (system.tag, list(system.keys)) == ("TagA", ["k1", "k2"])
        assert (system.message_id, system.born_host) == ("id-1", "me")
        assert (system.body_encoding, system.message_type) == (pb.IDENTITY, pb.NORMAL)
        assert (system.queue_offset, system.delivery_attempt) == (0, 1)
        assert system.body_digest.checksum == "841A2D689AD86BD1611447453C22C6FC"
        entry = pb.AckMessageEntry(message_id="id-1", receipt_handle=system.receipt_handle)
        bad = pb.AckMessageEntry(message_id="id-1", receipt_handle="nonsense")
        resources = {"group": pb.Resource(name="g"), "topic": pb.Resource(name="mixed")}
        answer = await door.call(
            "AckMessage", pb.AckMessageRequest(entries=[entry, bad], **resources)
        )
        assert answer.status.code == pb.MULTIPLE_RESULTS
        assert [e.status.code for e in answer.entries] == [pb.OK, pb.INVALID_RECEIPT_HANDLE]
        empty = await door.call("AckMessage", pb.AckMessageRequest(**resources))
        assert empty.status.code == pb.BAD_REQUEST
        nothing = await door.receive()
        assert nothing[0].status.code == pb.MESSAGE_NOT_FOUND

    with_door(tmp_path, story)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"invisible_duration": Duration(nanos=1 << 30)}, pb.ILLEGAL_INVISIBLE_TIME),
        ({"invisible_duration": Duration(seconds=60, nanos=-5)}, pb.ILLEGAL_INVISIBLE_TIME),
        ({"topic": "no"}, pb.TOPIC_NOT_FOUND),
        ({"topic": "a b"}, pb.ILLEGAL_TOPIC),
        ({"group": ""}, pb.ILLEGAL_CONSUMER_GROUP),
        ({"group": "CID_RMQ_SYS_x"}, pb.ILLEGAL_CONSUMER_GROUP),
        ({"queue": 7}, pb.BAD_REQUEST),
        ({"queue": -2}, pb.BAD_REQUEST),
        ({"filter_expression": pb.FilterExpression(type=pb.SQL)}, pb.ILLEGAL_FILTER_EXPRESSION),
        ({"filter_expression": pb.FilterExpression(expression="||")}, 40010),
        ({"long_polling_timeout": Duration(seconds=-1)}, pb.ILLEGAL_POLLING_TIME),
    ],
)
def test_refusals_of_a_receive(tmp_path, fields, code) -> None:
    async def story(door: Door) -> None:
        frames = await door.receive(**fields)
        assert [frame.status.code for frame in frames] == [code]
        assert frames[0].status.message

    with_door(tmp_path, story)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (9, "the invisibleTime is too small. min is 10000 ms"),
        (0, "the invisibleTime is too small. min is 10000 ms"),
        (-5, "the invisibleTime is too small. min is 10000 ms"),
        (43_201, "the invisibleTime is too large. max is 43200000 ms"),
        (1 << 62, "the invisibleTime is too large. max is 43200000 ms"),
    ],
)
def test_a_lease_out_of_bounds_is_refused_in_rocketmqs_words(tmp_path, seconds, words) -> None:
    """Clients and test suites compare them."""

    async def story(door: Door) -> None:
        frames = await door.receive(invisible_duration=Duration(seconds=seconds))
        assert [frame.status.code for frame in frames] == [pb.ILLEGAL_INVISIBLE_TIME]
        assert words in frames[0].status.message
        await door.call("SendMessage", sending(message()))
        system = (await door.receive())[1].message.system_properties
        change = pb.ChangeInvisibleDurationRequest(
            group=pb.Resource(name="g"),
            topic=pb.Resource(name="mixed"),
            receipt_handle=system.receipt_handle,
            invisible_duration=Duration(seconds=seconds),
        )
        status = (await door.call("ChangeInvisibleDuration", change)).status
        if seconds in (0, 9):  # a change may make it visible at once
            assert status.code == pb.OK
        else:
            assert status.code == pb.ILLEGAL_INVISIBLE_TIME
            assert words.replace("10000", "0") in status.message

    with_door(tmp_path, story)


def test_digests_in_the_forms_of_official_clients(tmp_path) -> None:
    body = b"33"  # whose CRC-32 has a leading zero
    padded = f"{crc32(body):08X}"
    assert padded.startswith("0")
    good = [
        (pb.CRC32, padded),
        (pb.CRC32, padded.lstrip("0")),
        (pb.CRC32, str(crc32(body))),
        (pb.MD5, hashlib.md5(body).hexdigest().upper()),
        (pb.SHA1, hashlib.sha1(body).hexdigest().upper()),
        (pb.DIGEST_TYPE_UNSPECIFIED, ""),
    ]

    async def story(door: Door) -> None:
        for type_, checksum in good:
            digest = pb.Digest(type=type_, checksum=checksum)
            made = message(body=body, body_digest=digest)
            answer = await door.call("SendMessage", sending(made))
            assert answer.status.code == pb.OK, (type_, checksum)
            spoiled = pb.Digest(type=type_, checksum=checksum[:-1] + "x")
            answer = await door.call(
                "SendMessage", sending(message(body=body, body_digest=spoiled))
            )
            assert answer.status.code == pb.MESSAGE_CORRUPTED, (type_, checksum)
            assert "body_digest" in answer.status.message

    with_door(tmp_path, story)


def test_a_poll_is_answered_before_its_deadline(tmp_path) -> None:
    async def story(door: Door) -> None:
        frames = await door.receive(timeout_s=1.0, long_polling_timeout=Duration(seconds=20))
        assert frames[0].status.code == pb.MESSAGE_NOT_FOUND

    with_door(tmp_path, story)


def test_a_poll_whose_client_left_is_forgotten(tmp_path) -> None:
    async def story(door: Door) -> None:
        calls = [
            asyncio.ensure_future(door.receive(long_polling_timeout=Duration(seconds=20)))
            for _ in range(50)
        ]
        async with asyncio.timeout(10):
            while (await door.engine.submit(DescribeBroker())).parked_polls < 50:
                pass
            for call in calls:
                call.cancel()
            while (await door.engine.submit(DescribeBroker())).parked_polls:
                pass

    with_door(tmp_path, story)


def test_recall_on_the_wire(tmp_path) -> None:
    """P8 on the wire: OK, 40401 NOT_FOUND, 40000 ALREADY_DELIVERED; handles of five and six fields."""

    async def story(door: Door) -> None:
        async def recall(handle: str, topic: str = "delay") -> pb.Status:
            request = pb.RecallMessageRequest(topic=pb.Resource(name=topic), recall_handle=handle)
            return (await door.call("RecallMessage", request)).status

        handles = []
        for i in range(3):
            made = message("delay", message_id=f"m{i}", delivery_timestamp=door.due(60_000))
            handles.append((await door.call("SendMessage", sending(made))).entries[0].recall_handle)
        five = encode_recall_handle(decode_recall_handle(handles[1])._replace(origin=7))
        assert decode_recall_handle(five).origin == 7
        assert (await recall(handles[0])).code == pb.OK
        again = await recall(handles[0])
        assert (again.code, again.message.split(":")[0]) == (pb.MESSAGE_NOT_FOUND, "NOT_FOUND")
        await door.engine.advance(61_000)
        late = await recall(handles[1])
        assert (late.code, late.message.split(":")[0]) == (pb.BAD_REQUEST, "ALREADY_DELIVERED")
        for bad, topic in (("", "delay"), ("%%%", "delay"), (handles[2], "mixed")):
            assert (await recall(bad, topic)).code == pb.BAD_REQUEST

    with_door(tmp_path, story)


def test_what_is_not_there_says_so_in_the_protocols_own_way(tmp_path) -> None:
    async def story(door: Door) -> None:
        for name in (
            "UpdateOffset",
            "GetOffset",
            "QueryOffset",
            "SyncLiteSubscription",
        ):
            answer = await door.call(name, getattr(pb, f"{name}Request")())
            assert answer.status.code == pb.NOT_IMPLEMENTED
        pull = door.channel.unary_stream(
            f"/{SERVICE}/PullMessage",
            request_serializer=pb.PullMessageRequest.SerializeToString,
            response_deserializer=pb.PullMessageResponse.FromString,
        )
        frames = [f async for f in pull(pb.PullMessageRequest(), metadata=HEADERS)]
        assert [f.status.code for f in frames] == [pb.NOT_IMPLEMENTED]

    with_door(tmp_path, story)


def test_malformed_protobuf_is_an_error_of_that_call_alone(tmp_path) -> None:
    async def story(door: Door) -> None:
        for garbage in (b"\xff" * 50, b"\x0a\xff\xff\xff\xff\x0f"):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await door.call("SendMessage", garbage)
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        answer = await door.call("SendMessage", sending(message()))
        assert answer.status.code == pb.OK

    with_door(tmp_path, story)


def test_every_code_of_a_client_error_is_mapped() -> None:
    for code in ErrorCode:
        if not HorologError(code, "x").fatal:
            assert code in CODES
    assert status_of(HorologError(ErrorCode.DAMAGED, "x")).code == pb.INTERNAL_SERVER_ERROR
