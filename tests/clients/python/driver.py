"""The official 5.x client of Python, told by lines what to do; runs in its own environment (.venv-client).

{"id": 7, "do": "send", …} is answered by {"id": 7, "gave": …} or {"id": 7, "refused": "Class: text"}; what a client does
by itself is told by {"by": "its name", "event": …}.  Ends when its input ends.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
from collections import Counter
from typing import Any

from rocketmq import (
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
    SimpleConsumer,
    TransactionChecker,
    TransactionResolution,
)
from rocketmq.grpc_protocol import FilterType

_loop = asyncio.new_event_loop()
_writing = threading.Lock()  # consumers call from the client's own threads
_clients: dict[str, Any] = {}
_held: dict[str, Message] = {}
_out = os.fdopen(os.dup(1), "w", encoding="utf-8")
os.dup2(2, 1)  # libraries print


def write(line: dict[str, Any]) -> None:
    with _writing:
        _out.write(json.dumps(line) + "\n")
        _out.flush()


def fields_of(message: Message) -> dict[str, Any]:
    due_s = message.delivery_timestamp
    return {
        "body": message.body.decode(),
        "id": message.message_id,
        "topic": message.topic,
        "tag": message.tag or None,
        "keys": list(message.keys),
        "properties": dict(message.properties),
        "due_ms": due_s * 1_000 if due_s else None,
        "attempt": message.delivery_attempt,
    }


def configuration(asked: dict[str, Any]) -> ClientConfiguration:
    who = Credentials(asked["key"], asked["secret"]) if "key" in asked else Credentials()
    # Three seconds by default, after which it does not start; a machine that has much to do needs more.
    return ClientConfiguration(asked["endpoint"], who, request_timeout=20)


def subscription(asked: dict[str, Any]) -> dict[str, FilterExpression]:
    kind = FilterType.SQL if asked.get("sql") else FilterType.TAG
    return {asked["topic"]: FilterExpression(asked["filter"], kind)}


def started(asked: dict[str, Any], made: Any) -> bool:
    made.startup()
    _clients[asked["name"]] = made
    return True


class Checker(TransactionChecker):
    """Says of a transaction what the first word of its body says."""

    def __init__(self, name: str) -> None:
        self._name = name

    def check(self, message: Message) -> TransactionResolution:
        fields = fields_of(message)
        write({"by": self._name, "event": "checked", **fields})
        return TransactionResolution.Value(fields["body"].split()[0])


class Listener(MessageListener):
    """Fails each message whose body begins with "fail N" N times."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._seen: Counter[str] = Counter()

    def consume(self, message: Message) -> ConsumeResult:
        fields = fields_of(message)
        at_ms = time.time_ns() // 1_000_000
        write({"by": self._name, "event": "received", "at_ms": at_ms, **fields})
        word, _, rest = fields["body"].partition(" ")
        self._seen[fields["id"]] += 1
        if word == "fail" and self._seen[fields["id"]] <= int(rest.split()[0]):
            return ConsumeResult.FAILURE
        return ConsumeResult.SUCCESS


def producer(asked: dict[str, Any]) -> bool:
    checker = Checker(asked["name"]) if "checks" in asked else None
    made = Producer(configuration(asked), [asked["topic"]], checker, tls_enable=asked["tls"])
    return started(asked, made)


def composed(topic: str, fields: dict[str, Any]) -> Message:
    made = Message()
    made.topic = topic
    made.body = fields["body"].encode()
    if "tag" in fields:
        made.tag = fields["tag"]
    if "keys" in fields:
        Message.keys.fset(made, *fields["keys"])  # a setter of several, which "=" cannot call
    if "group" in fields:
        made.message_group = fields["group"]
    if "due_ms" in fields:
        made.delivery_timestamp = fields["due_ms"] // 1_000  # this client knows whole seconds
    for name, value in fields.get("properties", {}).items():
        made.add_property(name, value)
    return made


def send(asked: dict[str, Any]) -> list[dict[str, Any]]:
    out, messages = _clients[asked["by"]], asked["messages"]
    receipts = [out.send(composed(asked["topic"], fields)) for fields in messages]
    return [{"id": each.message_id, "handle": each.recall_handle} for each in receipts]


def transaction(asked: dict[str, Any]) -> str:
    """A message whose transaction ends as `end` says; "": it does not."""
    out = _clients[asked["by"]]
    begun = out.begin_transaction()
    receipt = out.send(composed(asked["topic"], asked["message"]), begun)
    if asked["end"]:
        getattr(begun, asked["end"])()
    return receipt.message_id


def recall(asked: dict[str, Any]) -> str:
    answer = _clients[asked["by"]].recall_message(asked["topic"], asked["handle"])
    return answer if isinstance(answer, str) else answer.message_id


def simple(asked: dict[str, Any]) -> bool:
    made = SimpleConsumer(
        configuration(asked),
        asked["group"],
        subscription(asked),
        await_duration=max(1, asked["await_ms"] // 1_000),
        tls_enable=asked["tls"],
    )
    return started(asked, made)


def receive(asked: dict[str, Any]) -> list[dict[str, Any]]:
    gave = []
    for message in _clients[asked["by"]].receive(asked["max"], asked["invisible_ms"] // 1_000):
        token = f"{message.message_id}/{message.delivery_attempt}"
        _held[token] = message
        gave.append({**fields_of(message), "token": token})
    return gave


def ack(asked: dict[str, Any]) -> bool:
    _clients[asked["by"]].ack(_held[asked["token"]])
    return True


def change(asked: dict[str, Any]) -> bool:
    made, message = _clients[asked["by"]], _held[asked["token"]]
    made.change_invisible_duration(message, asked["invisible_ms"] // 1_000)
    return True


def push(asked: dict[str, Any]) -> bool:
    listener = Listener(asked["name"])
    made = PushConsumer(
        configuration(asked),
        asked["group"],
        listener,
        subscription(asked),
        tls_enable=asked["tls"],
    )
    return started(asked, made)


def close(asked: dict[str, Any]) -> bool:
    _clients.pop(asked["name"]).shutdown()
    return True


VERBS = {
    made.__name__: made
    for made in (producer, send, transaction, recall, simple, receive, ack, change, push, close)
}


def answer(asked: dict[str, Any]) -> None:
    # As in a main thread: without a loop, calls of grpc.aio, which the client makes here, fail now and then
    asyncio.set_event_loop(_loop)
    try:
        write({"id": asked["id"], "gave": VERBS[asked["do"]](asked)})
    except Exception as error:
        write({"id": asked["id"], "refused": f"{type(error).__name__}: {error}"})


for line in sys.stdin:
    threading.Thread(target=answer, args=(json.loads(line),), daemon=True).start()
os._exit(0)  # the client's threads do not all end
