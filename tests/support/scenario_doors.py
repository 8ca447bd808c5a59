"""The two doors as scenarios use them: gRPC by the stubs of a 5.x client, remoting by the frames of a 4.x client."""

from __future__ import annotations

import contextlib
import hashlib
import struct
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import orjson
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from remoting_client import RemotingClient
from remoting_sends import item, stored
from scenario import SQL, Half, Refused, Sent, Shown, Side

from horolog.protocol.grpc import messaging_pb2 as pb
from horolog.protocol.remoting.codes import Code, Status
from horolog.protocol.rocketmq import layout, properties
from horolog.server.grpc_front import SERVICE
from horolog.testing.broker import BrokerProcess

INVISIBLE_S = 30


class GrpcSide:
    """What a 5.x client asks, one request each."""

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
        """After a crash of the broker; it keeps its ports."""
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
    """An answer that went well."""
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


class RemotingSide:
    """What a 4.x client asks: a pull goes on where the last one ended, and the lowest offset that is not done is
    committed, as clients do.
    """

    def __init__(self, broker: BrokerProcess) -> None:
        self._address = broker.broker_address
        self._client = RemotingClient(self._address)
        self._id = f"127.0.0.1@{uuid.uuid4().hex}"
        self._next: dict[tuple[str, str, int], int] = {}  # by group, topic and queue
        self._open: dict[tuple[str, str, int], set[int]] = {}  # offsets that are not done

    def connect(self) -> None:
        """After a crash of the broker; it keeps its ports, and the client its offsets."""
        self._client.close()
        self._client = RemotingClient(self._address)

    def close(self) -> None:
        self._client.close()

    def _call(self, code: Code, fields: dict[str, Any], body: bytes = b"") -> Any:
        answer = self._client.call(code, fields, body)
        if answer.code != Status.SUCCESS:
            raise Refused(answer.remark)
        return answer

    def send(self, topic: str, messages: list[dict[str, Any]]) -> list[Sent]:
        fields = {
            "a": "senders", "b": topic, "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1_700_000_000_000,
            "h": 0, "i": "", "j": 0, "k": False, "m": len(messages) > 1, "n": "broker-a",
        }  # fmt: skip
        named = [(m["body"].encode(), self._properties(m)) for m in messages]
        if len(messages) == 1:
            [(body, message_properties)] = named
            answer = self._call(
                Code.SEND_MESSAGE_V2, fields | {"i": stored(message_properties)}, body
            )
        else:
            items = b"".join(item(message_properties, body) for body, message_properties in named)
            answer = self._call(Code.SEND_BATCH_MESSAGE, fields, items)
        assert len(answer.fields["msgId"].split(",")) == len(messages)
        handles = answer.fields.get("recallHandle", "").split(",")
        handles += [""] * (len(messages) - len(handles))
        return [Sent(t["UNIQ_KEY"], h) for (_, t), h in zip(named, handles, strict=True)]

    def half(self, topic: str, message: dict[str, Any]) -> Half:
        named = self._properties(message) | {"TRAN_MSG": "true", "PGROUP": "senders"}
        fields = {
            "a": "senders", "b": topic, "c": "TBW102", "d": 4, "e": 0, "f": 4, "g": 1_700_000_000_000,
            "h": 0, "i": stored(named), "j": 0, "k": False, "m": False, "n": "broker-a",
        }  # fmt: skip
        answer = self._call(Code.SEND_MESSAGE_V2, fields, message["body"].encode())
        return Half(named["UNIQ_KEY"], answer.fields)

    def end(self, topic: str, half: Half, *, commit: bool) -> None:
        fields = {
            "topic": topic, "producerGroup": "senders", "msgId": half.message_id,
            "commitLogOffset": int(half.handle["msgId"][16:], 16),
            "tranStateTableOffset": half.handle["queueOffset"],
            "commitOrRollback": 8 if commit else 12, "fromTransactionCheck": False,
        }  # fmt: skip
        self._call(Code.END_TRANSACTION, fields)

    @staticmethod
    def _properties(fields: dict[str, Any]) -> dict[str, str]:
        named = {"UNIQ_KEY": uuid.uuid4().hex.upper(), **fields["properties"]}
        names = {"tag": "TAGS", "level": "DELAY", "sec": "TIMER_DELAY_SEC", "ms": "TIMER_DELAY_MS"}
        names |= {"due": "TIMER_DELIVER_MS", "start": "__STARTDELIVERTIME", "in": "__SHARDINGKEY"}
        named |= {name: str(fields[word]) for word, name in names.items() if word in fields}
        if "keys" in fields:
            named["KEYS"] = fields["keys"].replace(",", " ")
        return named

    def receive(self, topic: str, group: str, filter: str) -> list[Shown]:
        retry = f"%RETRY%{group}"
        self._beat(group, {topic: filter, retry: "*"})
        found = self._pull_all(topic, group, filter)
        if not topic.startswith("%"):
            with contextlib.suppress(Refused):  # nothing ever failed: the topic may not be there
                found += self._pull_all(retry, group, "*")
        return found

    def take(self, topic: str, group: str, most: int) -> list[Shown]:
        """As an orderly consumer pops."""
        answer = self._client.call(
            Code.POP_MESSAGE,
            {
                "consumerGroup": group, "topic": topic, "queueId": -1, "maxMsgNums": most,
                "invisibleTime": INVISIBLE_S * 1_000, "pollTime": 0, "bornTime": 0, "initMode": 0,
                "expType": "TAG", "exp": "*", "order": True,
            },
        )  # fmt: skip
        if answer.code not in (Status.SUCCESS, Status.PULL_NOT_FOUND):
            raise Refused(answer.remark)
        found = []
        for message in _layouts(answer.body):
            handle = properties.decode(message.properties)["POP_CK"]
            found.append(self._shown(message, (group, topic, 0))._replace(handle=handle))
        return found

    def _popped(self, code: Code, topic: str, group: str, shown: Shown, **more: int) -> None:
        words = shown.handle.split(" ")
        fields = {"consumerGroup": group, "topic": topic, "queueId": words[6], "offset": words[7]}
        self._call(code, {**fields, "extraInfo": shown.handle, **more})

    def _beat(self, group: str, subscriptions: dict[str, str]) -> None:
        body = {
            "clientID": self._id,
            "producerDataSet": [],
            "consumerDataSet": [
                {
                    "groupName": group,
                    "consumeType": "CONSUME_PASSIVELY",
                    "messageModel": "CLUSTERING",
                    "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
                    "subscriptionDataSet": [
                        {
                            "topic": topic,
                            "subString": text.removeprefix(SQL),
                            "expressionType": "SQL92" if text.startswith(SQL) else "TAG",
                        }
                        for topic, text in subscriptions.items()
                    ],
                }
            ],
        }
        answer = self._client.call(Code.HEART_BEAT, {}, body)
        if answer.code != Status.SUCCESS:
            raise Refused(answer.remark)

    def _queues(self, topic: str) -> int:
        answer = self._client.call(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
        if answer.code != Status.SUCCESS:
            raise Refused(answer.remark)
        return int(orjson.loads(answer.body)["queueDatas"][0]["readQueueNums"])

    def _pull_all(self, topic: str, group: str, filter: str) -> list[Shown]:
        is_sql, expression = filter.startswith(SQL), filter.removeprefix(SQL)
        wanted = {tag.strip() for tag in filter.split("||")}
        found: list[Shown] = []
        for queue in range(self._queues(topic)):
            place = group, topic, queue
            offset = self._next.get(place)
            offset = self._committed(place) if offset is None else offset
            while True:
                answer = self._client.call(
                    Code.PULL_MESSAGE,
                    {
                        "consumerGroup": group, "topic": topic, "queueId": queue,
                        "queueOffset": offset, "maxMsgNums": 32, "sysFlag": 4, "commitOffset": 0,
                        "suspendTimeoutMillis": 0, "subscription": expression, "subVersion": 0,
                        "expressionType": "SQL92" if is_sql else "TAG",
                    },
                )  # fmt: skip
                offset = int(answer.fields["nextBeginOffset"]) if answer.fields else offset
                if answer.code == Status.PULL_NOT_FOUND:
                    break
                if answer.code not in (Status.SUCCESS, Status.PULL_RETRY_IMMEDIATELY):
                    raise Refused(answer.remark)
                for message in _layouts(answer.body):
                    shown = self._shown(message, place)
                    if (
                        is_sql or filter == "*" or shown.tag in wanted
                    ):  # as clients do: the broker compares hashes
                        found.append(shown)
                        self._open.setdefault(place, set()).add(message.queue_offset)
            self._next[place] = offset
        return found

    @staticmethod
    def _shown(message: layout.Stored, place: tuple[str, str, int]) -> Shown:
        decoded = properties.decode(message.properties)
        return Shown(
            message.body.decode(),
            decoded["UNIQ_KEY"],
            decoded.get("TAGS", ""),
            decoded.get("KEYS", "").split(),
            {name: value for name, value in decoded.items() if not properties.is_hidden(name)},
            int(decoded.get("TIMER_DELIVER_MS", 0)),
            message.reconsume_times + 1,
            (place, message),
        )

    def _committed(self, place: tuple[str, str, int]) -> int:
        group, topic, queue = place
        answer = self._client.call(
            Code.QUERY_CONSUMER_OFFSET,
            {"consumerGroup": group, "topic": topic, "queueId": queue},
        )
        return int(answer.fields["offset"]) if answer.code == Status.SUCCESS else 0

    def _done(self, shown: Shown) -> None:
        place, message = shown.handle
        self._open[place].discard(message.queue_offset)
        group, topic, queue = place
        self._call(
            Code.UPDATE_CONSUMER_OFFSET,
            {
                "consumerGroup": group, "topic": topic, "queueId": queue,
                "commitOffset": min(self._open[place], default=self._next[place]),
            },
        )  # fmt: skip

    def ack(self, topic: str, group: str, shown: list[Shown]) -> None:
        for message in shown:
            if isinstance(message.handle, str):
                self._popped(Code.ACK_MESSAGE, topic, group, message)
            else:
                self._done(message)

    def fail(self, topic: str, group: str, shown: Shown, delay_ms: int) -> None:
        assert delay_ms in (0, 10_000), "level 3, or as the group says"
        if isinstance(shown.handle, str):
            assert delay_ms
            code = Code.CHANGE_MESSAGE_INVISIBLETIME
            self._popped(code, topic, group, shown, invisibleTime=delay_ms)
        else:
            self._back(group, shown, 3 if delay_ms else 0)

    def bury(self, topic: str, group: str, shown: Shown) -> None:
        self._back(group, shown, -1)

    def _back(self, group: str, shown: Shown, level: int) -> None:
        (_, topic, _), message = shown.handle
        self._call(
            Code.CONSUMER_SEND_MSG_BACK,
            {
                "offset": message.position, "group": group, "delayLevel": level, "originTopic": topic,
                "originMsgId": shown.message_id, "unitMode": False, "maxReconsumeTimes": 16,
            },
        )  # fmt: skip
        self._done(shown)

    def leave(self, topic: str, group: str) -> None:
        fields = {"clientID": self._id, "producerGroup": "", "consumerGroup": group}
        self._call(Code.UNREGISTER_CLIENT, fields)
        self._next.clear()
        self._open.clear()

    def recall(self, topic: str, handle: str) -> str:
        answer = self._call(
            Code.RECALL_MESSAGE, {"producerGroup": "s", "topic": topic, "recallHandle": handle}
        )
        return str(answer.fields["msgId"])


def _layouts(body: bytes) -> list[layout.Stored]:
    found, at = [], 0
    while at < len(body):
        (size,) = struct.unpack_from(">I", body, at)
        found.append(layout.decode(body[at : at + size]))
        at += size
    return found


SIDES: dict[str, type[GrpcSide | RemotingSide]] = {"grpc": GrpcSide, "remoting": RemotingSide}


@contextmanager
def sides(broker: BrokerProcess, sender: str, receiver: str) -> Iterator[tuple[Side, Side]]:
    """A client that sends, and one that receives."""
    out, into = SIDES[sender](broker), SIDES[receiver](broker)
    try:
        yield out, into
    finally:
        out.close()
        into.close()
