"""A 4.x client as scenarios use it, by frames of the remoting protocol."""

from __future__ import annotations

import contextlib
import uuid
from typing import Any

import orjson
from remoting_client import RemotingClient
from remoting_requests import layouts
from remoting_sends import item, stored
from scenario import SQL, Half, Refused, Sent, Shown

from horolog.protocol.remoting.codes import Code, Status
from horolog.protocol.rocketmq import layout, properties
from horolog.testing.broker import BrokerProcess

INVISIBLE_S = 30


class RemotingSide:
    """The requests of a 4.x client.

    As real clients do, a pull continues where the last one ended, and the lowest offset that is not
    done is committed.
    """

    def __init__(self, broker: BrokerProcess) -> None:
        self._address = broker.broker_address
        self._client = RemotingClient(self._address)
        self._id = f"127.0.0.1@{uuid.uuid4().hex}"
        self._next: dict[tuple[str, str, int], int] = {}  # by group, topic and queue
        # Offsets that are not done, by group, topic and queue
        self._open: dict[tuple[str, str, int], set[int]] = {}

    def connect(self) -> None:
        """Connect again after a crash; the broker keeps its ports, and the client its offsets."""
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
            # If nothing has ever failed, the topic does not exist
            with contextlib.suppress(Refused):
                found += self._pull_all(retry, group, "*")
        return found

    def take(self, topic: str, group: str, most: int) -> list[Shown]:
        """Pop as an orderly consumer does."""
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
        for message in layouts(answer.body):
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
                for message in layouts(answer.body):
                    shown = self._shown(message, place)
                    # Compare tags as clients do, because the broker compares hashes
                    if is_sql or filter == "*" or shown.tag in wanted:
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
