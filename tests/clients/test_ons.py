"""Alibaba Cloud's client over remoting, with credentials and, as its instances have it, a namespace.

It is what applications use today that schedule to a time of their own: `setStartDeliverTime`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from access_files import access_file
from conformance import STORY, TRANSACTION_MS
from drivers import Driver, java

from horolog.admin.client import AdminClient
from horolog.testing.broker import BrokerProcess

pytestmark = [pytest.mark.process, pytest.mark.clients]
INSTANCE = "MQ_INST_1234_abcd"
TOPICS = {
    "ons-mixed": "mixed",
    "ons-fifo": "fifo",
    "ons-trades": "transaction",
    "ons-many": "normal",
}
DAY_MS = 86_400_000
ACCESS = f"""
[identities.app]
secret = "secret-1"
topics = {{ "{INSTANCE}%ons-*" = "PUB|SUB" }}
groups = {{ "{INSTANCE}%GID_*" = "SUB" }}

[identities.operator]
secret = "secret-2"
token = "of-the-operator"
admin = true
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that looks at credentials, and whose clock stands still."""
    path = access_file(tmp_path_factory.mktemp("access"), ACCESS)
    with BrokerProcess(arguments=[f"--access={path}"]) as started:
        for name, kind in TOPICS.items():
            fields = {"name": f"{INSTANCE}%{name}", "type": kind, "queues": 2}
            operator(started).post("/v1/topics", fields)
        yield started


@pytest.fixture(scope="module")
def client(broker: BrokerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    with java("ons-1.8.8", "horolog.ons.Driver", tmp_path_factory.mktemp("client")) as started:
        started.ask("produce", properties=properties(broker))
        yield started


def operator(broker: BrokerProcess) -> AdminClient:
    return AdminClient(broker.admin_url.replace("//", "//:of-the-operator@"))


def advance(broker: BrokerProcess, by_ms: int) -> None:
    operator(broker).advance(by_ms)


def now_ms(broker: BrokerProcess) -> int:
    return int(operator(broker).get("/v1/clock")["wall_ms"])


def properties(broker: BrokerProcess, **more: str) -> dict[str, str]:
    return {
        "NAMESRV_ADDR": broker.namesrv_address,
        "INSTANCE_ID": INSTANCE,
        "AccessKey": "app",
        "SecretKey": "secret-1",
        "CheckImmunityTimeInSeconds": str(TRANSACTION_MS // 1_000),
        **more,
    }


def consume(
    client: Driver, broker: BrokerProcess, how: str, topic: str, filter: str, **more: str
) -> None:
    asked = {"how": how, "topic": topic, "filter": filter}
    client.ask("consume", properties=properties(broker, **more), **asked)


def bodies(messages: list[dict[str, Any]]) -> list[str]:
    return sorted(message["body"] for message in messages)


def test_a_message_is_delivered_at_its_start_deliver_time(
    client: Driver, broker: BrokerProcess
) -> None:
    at_ms = now_ms(broker) + 39 * DAY_MS
    for body, how, more in (
        ("sent", "sync", {}),
        ("async", "async", {}),
        ("oneway", "oneway", {}),
        ("fail", "sync", {"tag": "b"}),
        ("not for tags", "sync", {"tag": "c"}),
        ("of the past", "sync", {"deliver_at_ms": 1}),
        ("due", "sync", {"deliver_at_ms": at_ms}),
    ):
        client.ask("send", how=how, topic="ons-mixed", body=body, **more)
    consume(client, broker, "push", "ons-mixed", "a || b")
    consume(client, broker, "sql", "ons-mixed", "TAGS = 'c' AND OrderId > 16")
    first = client.wait("push", lambda seen: len(seen) >= 5)
    assert bodies(first) == sorted(["sent", "async", "oneway", "fail", "of the past"])
    [failed] = [message for message in first if message["body"] == "fail"]
    assert (failed["tag"], failed["key"], failed["order_id"]) == ("b", "key-1", "17")
    assert failed["topic"] == "ons-mixed"
    again = client.wait("push", lambda seen: len(seen) >= 6, lambda: advance(broker, 10_000))[5]
    assert (again["body"], again["retries"], again["id"]) == ("fail", 1, failed["id"])
    advance(broker, at_ms - now_ms(broker) - 1)
    client.quiet(0.5)
    assert len(client.events("push")) == 6
    advance(broker, 1)
    due = client.wait("push", lambda seen: len(seen) >= 7)[6]
    assert (due["body"], due["deliver_at_ms"]) == ("due", at_ms)
    assert bodies(client.wait("sql", bool)) == ["not for tags"]


def test_an_order_consumer_keeps_the_order_when_one_fails(
    client: Driver, broker: BrokerProcess
) -> None:
    steps = ["step 0", "step 1", "fail", "step 3"]
    for step in steps:
        client.ask("send", how="order", topic="ons-fifo", body=step)
    consume(client, broker, "order", "ons-fifo", "*", suspendTimeMillis="100")
    seen = client.wait("order", lambda events: len(events) >= 5)
    assert [event["body"] for event in seen] == ["step 0", "step 1", "fail", "fail", "step 3"]
    assert {event["group"] for event in seen} == {"order-17"}


def test_transactions_end_as_the_application_or_its_checker_says(
    client: Driver, broker: BrokerProcess
) -> None:
    for body, end in STORY:
        client.ask("transaction", topic="ons-trades", body=body, end=end)
    asked = client.wait(
        "checks", lambda seen: len(seen) >= 2, lambda: advance(broker, TRANSACTION_MS)
    )
    assert bodies(asked)[:2] == ["COMMIT c", "ROLLBACK d"]
    view = f"/v1/topics/{INSTANCE}%25ons-trades"
    client.wait("checks", lambda _: not operator(broker).get(view)["open_transactions"])
    assert sum(operator(broker).get(view)["queue_offsets"]) == 2


def test_batches_and_a_pull_consumer_get_everything(client: Driver, broker: BrokerProcess) -> None:
    for number in range(20):
        client.ask("send", how="sync", topic="ons-many", body=str(number))
    more = {"ConsumeMessageBatchMaxSize": "8", "batchConsumeMaxAwaitDurationInSeconds": "1"}
    consume(client, broker, "batch", "ons-many", "*", **more)
    pulled: list[dict[str, Any]] = []
    for _ in range(20):
        asked = properties(broker, autoCommit="false")
        pulled += client.ask("pull", topic="ons-many", properties=asked)
        if len(pulled) >= 20:
            break
    assert bodies(pulled) == sorted(map(str, range(20)))
    client.wait("batch", lambda seen: sum(event["count"] for event in seen) >= 20)
    assert sum(event["count"] for event in client.events("batch")) == 20
