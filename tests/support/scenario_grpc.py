"""A 5.x client as scenarios use it, by gRPC stubs."""

from __future__ import annotations

import hashlib
import uuid
from typing import Any

import grpc
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from scenario import SQL, Half, Refused, Sent, Shown

from horolog.protocol.grpc import messaging_pb2 as pb
from horolog.protocol.rocketmq import properties
from horolog.server.grpc_unary import SERVICE
from horolog.testing.broker import BrokerProcess

INVISIBLE_S = 30


class GrpcSide:
    """The requests of a 5.x client, one at a time."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._endpoint = broker.grpc_endpoint
        self._channel = grpc.insecure_channel(self._endpoint)
        self._now_ms = broker.now_ms
        host, _, port = broker.grpc_endpoint.partition(":")
        self._endpoints = pb.Endpoints(
            scheme=pb.IPv4, addresses=[pb.Address(host=host, port=int(port))]
        )
        self._headers = [("x-mq-client-id", uuid.uuid4().hex), ("x-mq-language", "PYTHON")]

    def connect(self) -> None:
        """Connect again after a crash of the broker, which keeps its ports."""
        self._channel.close()
        self._channel = grpc.insecure_channel(self._endpoint)

    def close(self) -> None:
        self._channel.close()

    def _call(self, name: str, request: Any) -> Any:
        method = self._channel.unary_unary(
            f"/{SERVICE}/{name}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=getattr(pb, f"{name}Response").FromString,
        )
        return checked(method(request, metadata=self._headers, timeout=10))

    def send(self, topic: str, messages: list[dict[str, Any]]) -> list[Sent]:
        self._call(
            "QueryRoute",
            pb.QueryRouteRequest(topic=pb.Resource(name=topic), endpoints=self._endpoints),
        )
        request = pb.SendMessageRequest(messages=[self._message(topic, m) for m in messages])
        answer = self._call("SendMessage", request)
        return [Sent(checked(entry).message_id, entry.recall_handle) for entry in answer.entries]

    def half(self, topic: str, message: dict[str, Any]) -> Half:
        made = self._message(topic, message)
        made.system_properties.message_type = pb.TRANSACTION
        answer = self._call("SendMessage", pb.SendMessageRequest(messages=[made]))
        entry = checked(answer.entries[0])
        return Half(entry.message_id, entry.transaction_id)

    def end(self, topic: str, half: Half, *, commit: bool) -> None:
        request = pb.EndTransactionRequest(
            topic=pb.Resource(name=topic),
            message_id=half.message_id,
            transaction_id=half.handle,
            resolution=pb.COMMIT if commit else pb.ROLLBACK,
            source=pb.SOURCE_CLIENT,
        )
        self._call("EndTransaction", request)

    def _message(self, topic: str, fields: dict[str, Any]) -> pb.Message:
        system = pb.SystemProperties(
            message_id=uuid.uuid4().hex.upper(),
            message_type=pb.DELAY if "due" in fields else pb.FIFO if "in" in fields else pb.NORMAL,
            keys=fields.get("keys", "").split(",") if "keys" in fields else [],
            body_encoding=pb.IDENTITY,
        )
        if "tag" in fields:
            system.tag = fields["tag"]
        if "in" in fields:
            system.message_group = fields["in"]
        if "due" in fields:
            system.delivery_timestamp.CopyFrom(_timestamp(fields["due"]))
        assert not {"level", "sec", "ms", "start"} & fields.keys(), "gRPC has no word for it"
        return pb.Message(
            topic=pb.Resource(name=topic),
            body=fields["body"].encode(),
            user_properties=fields["properties"],
            system_properties=system,
        )

    def receive(self, topic: str, group: str, filter: str) -> list[Shown]:
        found: list[Shown] = []
        while more := self._receive(topic, group, filter, 32):
            found += more
        return found

    def take(self, topic: str, group: str, most: int) -> list[Shown]:
        return self._receive(topic, group, "*", most)

    def _receive(self, topic: str, group: str, filter: str, most: int) -> list[Shown]:
        method = self._channel.unary_stream(
            f"/{SERVICE}/ReceiveMessage",
            request_serializer=pb.ReceiveMessageRequest.SerializeToString,
            response_deserializer=pb.ReceiveMessageResponse.FromString,
        )
        request = pb.ReceiveMessageRequest(
            group=pb.Resource(name=group),
            message_queue=pb.MessageQueue(topic=pb.Resource(name=topic), id=-1),
            filter_expression=pb.FilterExpression(
                type=pb.SQL if filter.startswith(SQL) else pb.TAG,
                expression=filter.removeprefix(SQL),
            ),
            batch_size=most,
            invisible_duration=Duration(seconds=INVISIBLE_S),
            long_polling_timeout=Duration(),
        )
        found: list[Shown] = []
        for frame in method(request, metadata=self._headers, timeout=10):
            if frame.WhichOneof("content") == "message":
                found.append(_shown(frame.message))
            elif frame.HasField("status") and frame.status.code != pb.MESSAGE_NOT_FOUND:
                checked(frame)
        return found

    def ack(self, topic: str, group: str, shown: list[Shown]) -> None:
        entries = [
            pb.AckMessageEntry(message_id=m.message_id, receipt_handle=m.handle) for m in shown
        ]
        request = pb.AckMessageRequest(
            group=pb.Resource(name=group), topic=pb.Resource(name=topic), entries=entries
        )
        if entries:
            self._call("AckMessage", request)

    def fail(self, topic: str, group: str, shown: Shown, delay_ms: int) -> None:
        request = pb.ChangeInvisibleDurationRequest(
            group=pb.Resource(name=group),
            topic=pb.Resource(name=topic),
            receipt_handle=shown.handle,
            message_id=shown.message_id,
            invisible_duration=Duration(seconds=delay_ms // 1_000),
        )
        self._call("ChangeInvisibleDuration", request)

    def bury(self, topic: str, group: str, shown: Shown) -> None:
        request = pb.ForwardMessageToDeadLetterQueueRequest(
            group=pb.Resource(name=group),
            topic=pb.Resource(name=topic),
            receipt_handle=shown.handle,
            message_id=shown.message_id,
            delivery_attempt=shown.attempt,
            max_delivery_attempts=shown.attempt,
        )
        self._call("ForwardMessageToDeadLetterQueue", request)

    def leave(self, topic: str, group: str) -> None:
        request = pb.NotifyClientTerminationRequest(group=pb.Resource(name=group))
        self._call("NotifyClientTermination", request)
        self._headers[0] = ("x-mq-client-id", uuid.uuid4().hex)

    def recall(self, topic: str, handle: str) -> str:
        request = pb.RecallMessageRequest(topic=pb.Resource(name=topic), recall_handle=handle)
        return str(self._call("RecallMessage", request).message_id)


def checked(answer: Any) -> Any:
    """Return an answer with status OK; raise `Refused` for any other."""
    if answer.status.code != pb.OK:
        raise Refused(answer.status.message)
    return answer


def _timestamp(at_ms: int) -> Timestamp:
    return Timestamp(seconds=at_ms // 1_000, nanos=at_ms % 1_000 * 1_000_000)


def _shown(message: pb.Message) -> Shown:
    system = message.system_properties
    assert system.body_digest.checksum == hashlib.md5(message.body).hexdigest().upper()
    due = system.delivery_timestamp
    return Shown(
        message.body.decode(),
        system.message_id,
        system.tag,
        list(system.keys),
        {
            name: value
            for name, value in message.user_properties.items()
            if not properties.is_hidden(name)
        },
        due.seconds * 1_000 + due.nanos // 1_000_000
        if system.HasField("delivery_timestamp")
        else 0,
        system.delivery_attempt,
        system.receipt_handle,
    )
