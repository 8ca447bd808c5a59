"""What the official Python client does, unmodified; runs in its own environment (.venv-client).

    python official.py SCENARIO ENDPOINT NOW_S

Says what happened in one line of JSON each; `wait()` prints {"wait": …} and goes on when the test has advanced
the broker's clock and written a line.
"""

from __future__ import annotations

import json
import os
import sys
import threading

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

SCENARIO, ENDPOINT, NOW_S = sys.argv[1], sys.argv[2], int(sys.argv[3])


_saying = threading.Lock()  # push consumers call from many threads


def say(**fields) -> None:
    with _saying:
        sys.stdout.write(json.dumps(fields) + "\n")
        sys.stdout.flush()


def wait(why: str) -> None:
    say(wait=why)
    if not sys.stdin.readline():
        os._exit(3)


def configuration(secret: str = "") -> ClientConfiguration:
    return ClientConfiguration(ENDPOINT, Credentials("app", secret) if secret else Credentials())


def said_of(attempt) -> str:
    try:
        attempt()
    except Exception as error:
        return str(error)
    return ""


def producer(topic: str) -> Producer:
    made = Producer(configuration(), [topic])
    made.startup()
    return made


def consumer(topic: str, expression: str = "*") -> SimpleConsumer:
    made = SimpleConsumer(
        configuration(),
        f"group-{SCENARIO}",
        {topic: FilterExpression(expression)},
        await_duration=2,
    )
    made.startup()
    return made


def message(topic: str, body: str, *, tag=None, key=None, due_s=None) -> Message:
    made = Message()
    made.topic = topic
    made.body = body.encode()
    if tag:
        made.tag = tag
    if key:
        made.keys = key
    if due_s:
        made.delivery_timestamp = due_s
    made.add_property("origin", "test")
    return made


def receive_all(simple: SimpleConsumer, want: int) -> list[Message]:
    got: list[Message] = []
    for _ in range(40):
        got += simple.receive(32, 60) or []
        if len(got) >= want:
            break
    return got


def normal() -> None:
    out, simple = producer("normal"), consumer("normal", "TagA || TagB")
    for i in range(12):
        receipt = out.send(
            message("normal", f"body-{i}", tag=["TagA", "TagB", "TagC"][i % 3], key=f"k{i}")
        )
        say(sent=receipt.message_id)
    got = receive_all(simple, 8)
    for m in got:
        say(
            received=m.body.decode(),
            tag=m.tag,
            keys=list(m.keys),
            properties=dict(m.properties),
            id=m.message_id,
            attempt=m.delivery_attempt,
        )
        simple.ack(m)
    wait("leases would be over")
    say(again=len(simple.receive(32, 60) or []))
    simple.shutdown()
    out.shutdown()


def delayed() -> None:
    out, simple = producer("delay"), consumer("delay")
    for i in range(5):
        receipt = out.send(message("delay", f"late-{i}", due_s=NOW_S + 3_600 + i))
        say(handle=receipt.recall_handle)
    say(early=len(simple.receive(32, 60) or []))
    wait("an hour and five seconds")
    for m in receive_all(simple, 5):
        say(received=m.body.decode(), due=m.delivery_timestamp)
        simple.ack(m)
    simple.shutdown()
    out.shutdown()


def change() -> None:
    out, simple = producer("normal"), consumer("normal")
    out.send(message("normal", "retry me"))
    first = receive_all(simple, 1)[0]
    say(attempt=first.delivery_attempt)
    simple.change_invisible_duration(first, 20)
    say(hidden=len(simple.receive(32, 60) or []))
    wait("21 seconds")
    second = receive_all(simple, 1)[0]
    say(attempt=second.delivery_attempt, body=second.body.decode())
    simple.ack(second)
    simple.shutdown()
    out.shutdown()


def recall() -> None:
    out, simple = producer("delay"), consumer("delay")
    kept = out.send(message("delay", "kept", due_s=NOW_S + 3_600))
    gone = out.send(message("delay", "gone", due_s=NOW_S + 3_600))
    say(recalled=out.recall_message("delay", gone.recall_handle) == gone.message_id)
    for handle in (gone.recall_handle, kept.recall_handle):
        if handle is kept.recall_handle:
            wait("an hour")
            for m in receive_all(simple, 1):
                say(received=m.body.decode())
                simple.ack(m)
        try:
            say(returned=out.recall_message("delay", handle))
        except Exception as error:
            say(refused=str(error))
    simple.shutdown()
    out.shutdown()


class Listener(MessageListener):
    """Fails the first delivery of one message, takes everything else."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self.seen: list[str] = []

    def consume(self, message: Message) -> ConsumeResult:
        body = message.body.decode()
        say(pushed=body, attempt=message.delivery_attempt)
        if body == "fail once" and message.delivery_attempt == 1:
            return ConsumeResult.FAILURE
        self.seen.append(body)
        if len(self.seen) == 6:
            self.done.set()
        return ConsumeResult.SUCCESS


def access() -> None:
    out = Producer(configuration("secret-1"), ["mixed"])
    out.startup()
    out.send(message("mixed", "allowed"))
    simple = SimpleConsumer(
        configuration("secret-1"), "my-group", {"mixed": FilterExpression("*")}, await_duration=2
    )
    simple.startup()
    for m in receive_all(simple, 1):
        simple.ack(m)
        say(received=m.body.decode())
    say(denied=said_of(lambda: out.send(message("normal", "denied"))))
    wrong = Producer(configuration("secret-2"), ["mixed"])
    say(wrong=said_of(lambda: (wrong.startup(), wrong.send(message("mixed", "wrong")))))
    simple.shutdown()
    out.shutdown()


class Checker(TransactionChecker):
    """Says of a transaction what the first word of the body says."""

    def __init__(self) -> None:
        self.done = threading.Semaphore(0)

    def check(self, message: Message) -> TransactionResolution:
        body = message.body.decode()
        say(checked=body)
        self.done.release()
        return TransactionResolution.Value(body.split()[0])


def transactions() -> None:
    checker = Checker()
    out = Producer(configuration(), ["transaction"], checker)
    out.startup()
    simple = consumer("transaction")
    for body, end in (("COMMIT a", "commit"), ("ROLLBACK b", "rollback"), ("COMMIT c", "")):
        transaction = out.begin_transaction()
        out.send(message("transaction", body), transaction)
        if end:
            getattr(transaction, end)()
    for m in receive_all(simple, 1):
        say(received=m.body.decode())
        simple.ack(m)
    wait("six seconds")
    assert checker.done.acquire(timeout=30)
    for m in receive_all(simple, 1):
        say(late=m.body.decode())
        simple.ack(m)
    say(more=len(simple.receive(32, 60) or []))
    simple.shutdown()
    out.shutdown()


def push() -> None:
    listener = Listener()
    pushed = PushConsumer(configuration(), "group-push", listener, {"mixed": FilterExpression()})
    pushed.startup()
    out = producer("mixed")
    for i in range(3):
        out.send(message("mixed", f"now-{i}"))
    for i in range(2):
        out.send(message("mixed", f"late-{i}", due_s=NOW_S + 60))
    out.send(message("mixed", "fail once"))
    wait("a minute, then ten seconds at a time until all came")
    say(complete=listener.done.wait(60))
    pushed.shutdown()
    out.shutdown()


SCENARIOS = (normal, delayed, change, recall, access, push, transactions)
{scenario.__name__: scenario for scenario in SCENARIOS}[SCENARIO]()
say(end=True)
os._exit(0)  # the client's threads do not all end
