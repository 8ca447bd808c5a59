"""The C++ core of the 4.x clients (PyPI `rocketmq`), told by lines what to do; runs in its own environment.

{"id": 7, "do": "send", …} is answered by {"id": 7, "gave": …} or {"id": 7, "refused": "Class: text"}; what a client does
by itself is told by {"by": "its name", "event": …}.  Ends when its input ends.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from rocketmq.client import Message, Producer, PullConsumer, PushConsumer, RecvMessage
from rocketmq.exceptions import RocketMQException
from rocketmq.ffi import MessageModel

CONNECTING_S = 0.1
CONNECTING_TRIES = 20

_writing = threading.Lock()  # consumers call from the client's own threads
_clients: dict[str, Any] = {}
_out = os.fdopen(os.dup(1), "w", encoding="utf-8")
os.dup2(2, 1)  # the library prints


class FailedOnPurpose(Exception):
    """Makes the client ask for the message again."""


def write(line: dict[str, Any]) -> None:
    with _writing:
        _out.write(json.dumps(line) + "\n")
        _out.flush()


def text(value: bytes | None) -> str:
    return (value or b"").decode()


def fields_of(message: RecvMessage) -> dict[str, Any]:
    return {
        "body": text(message.body),
        "topic": message.topic,
        "tag": text(message.tags) or None,
        "keys": text(message.keys).split(),
        "id": message.id,
        "queue": message.queue_id,
        "offset": message.queue_offset,
        "retries": message.reconsume_times,
        "level": message.delay_time_level,
        "born_ms": message.born_timestamp,
        "properties": {name: text(message.get_property(name)) for name in ("a", "origin")},
    }


def producer(asked: dict[str, Any]) -> bool:
    made = Producer(asked["group"])
    made.set_namesrv_addr(asked["namesrv"])
    if "key" in asked:
        made.set_session_credentials(asked["key"], asked.get("secret", "secret-1"), "")
    made.start()
    _clients[asked["name"]] = made
    return True


def composed(topic: str, fields: dict[str, Any]) -> Message:
    made = Message(topic)
    made.set_body(fields["body"] * fields.get("times", 1))
    if "tag" in fields:
        made.set_tags(fields["tag"])
    if "keys" in fields:
        made.set_keys(" ".join(fields["keys"]))
    for name, value in (fields.get("properties", {}) | fields.get("reserved", {})).items():
        made.set_property(name, value)
    if "level" in fields:
        made.set_delay_time_level(fields["level"])
    return made


def receipt(sent: Any) -> dict[str, Any]:
    return {"status": sent.status.name, "id": sent.msg_id, "offset": sent.offset}


def connected(send: Callable[[], Any]) -> Any:
    """Send; again if it met the client's own timer while that was connecting to the broker.

    The client then tries three times within 3 ms, and says that the topic has no route.
    """
    for _ in range(CONNECTING_TRIES):
        try:
            return send()
        except RocketMQException as error:
            if "No route info" not in str(error):
                raise
        threading.Event().wait(CONNECTING_S)
    return send()


def send(asked: dict[str, Any]) -> list[Any]:
    out = _clients[asked["by"]]
    messages = [composed(asked["topic"], fields) for fields in asked["messages"]]
    how = asked.get("how", "sync")
    if how == "batch":
        return [receipt(connected(lambda: out.send_batch(messages)))]
    if how == "oneway":
        for message in messages:
            out.send_oneway(message)
        return []
    if how == "queue":
        queue = asked["queue"]
        return [receipt(connected(partial(out.send_orderly, m, queue))) for m in messages]
    return [receipt(connected(partial(out.send_sync, message))) for message in messages]


def push(asked: dict[str, Any]) -> bool:
    """A push consumer that fails each message whose body begins with "fail N" in its first N deliveries."""
    name = asked["name"]
    made = PushConsumer(
        asked["group"],
        orderly="orderly" in asked,
        message_model=MessageModel[asked.get("model", "CLUSTERING")],
    )
    made.set_namesrv_addr(asked["namesrv"])
    made.set_instance_name(name)
    if "key" in asked:
        made.set_session_credentials(asked["key"], asked.get("secret", "secret-1"), "")
    made.set_thread_count(4)

    def taken(message: RecvMessage) -> None:
        fields = fields_of(message)
        write({"by": name, "event": "received", "at_ms": time.time_ns() // 1_000_000, **fields})
        word, _, rest = fields["body"].partition(" ")
        if word == "fail" and fields["retries"] < int(rest.split()[0]):
            raise FailedOnPurpose(fields["body"])

    made.subscribe(asked["topic"], taken, asked["filter"])
    made.start()
    _clients[name] = made
    return True


def pull_all(asked: dict[str, Any]) -> list[dict[str, Any]]:
    """What no call before this one has read of any queue of a topic; the class keeps where it is."""
    name = asked["name"]
    if name not in _clients:
        made = PullConsumer(asked["group"])
        made.set_namesrv_addr(asked["namesrv"])
        made.start()
        _clients[name] = made
    return [fields_of(message) for message in _clients[name].pull(asked["topic"])]


def close(asked: dict[str, Any]) -> bool:
    _clients[asked["name"]].shutdown()
    return True


VERBS = {"producer": producer, "send": send, "push": push, "pull_all": pull_all, "close": close}


def answer(asked: dict[str, Any]) -> None:
    try:
        write({"id": asked["id"], "gave": VERBS[asked["do"]](asked)})
    except Exception as error:
        write({"id": asked["id"], "refused": f"{type(error).__name__}: {error}"})


for line in sys.stdin:
    threading.Thread(target=answer, args=(json.loads(line),), daemon=True).start()
os._exit(0)
