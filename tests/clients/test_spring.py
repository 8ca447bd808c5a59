"""An application with RocketMQ's starter for Spring Boot: what its guide shows, told by properties where the broker is.

The starter's clients speak TLS unless told otherwise, and its listeners always do: so does this application.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from access_files import access_file
from conformance import STORY, TRANSACTION_MS
from drivers import Driver, java
from remoting_client import put_group

from horolog.admin.client import AdminClient
from horolog.testing.broker import BrokerProcess

pytestmark = [pytest.mark.process, pytest.mark.clients]
INVISIBLE_MS = 30_000
PUSH_GROUP = "/v1/topics/spring-push/groups/spring-push"
TOPICS = {
    "spring-normal": "normal",
    "spring-push": "mixed",
    "spring-fifo": "fifo",
    "spring-trades": "transaction",
}
ACCESS = """
[identities.app]
secret = "secret-1"
topics = { "spring-*" = "PUB|SUB" }
groups = { "spring-*" = "SUB" }

[identities.operator]
secret = "secret-2"
token = "of-the-operator"
admin = true
"""


def spring(broker: BrokerProcess, home: Path, **more: str) -> Driver:
    """The application, with what it would have in its application.properties."""
    credentials = {"access-key": "app", "secret-key": more.get("secret", "")} if more else {}
    properties = {
        "spring.main.banner-mode": "off",
        "rocketmq.producer.topic": "spring-normal",
        "rocketmq.simple-consumer.topic": "spring-normal",
        "rocketmq.simple-consumer.consumer-group": "spring-simple",
        "rocketmq.simple-consumer.tag": "*",
        "rocketmq.simple-consumer.await-duration": "1",
    }
    for part in ("producer", "simple-consumer", "push-consumer"):
        properties[f"rocketmq.{part}.endpoints"] = broker.grpc_endpoint
        properties |= {f"rocketmq.{part}.{name}": value for name, value in credentials.items()}
    options = [f"-D{name}={value}" for name, value in properties.items()]
    return java("spring-2.3.1", "horolog.spring.Application", home, *options)


@pytest.fixture(scope="module")
def app(still: BrokerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    for name, kind in TOPICS.items():
        still.create_topic(name, type=kind, queues=2)
    put_group(still.broker_address, "spring-steps", consumeMessageOrderly=True)
    with spring(still, tmp_path_factory.mktemp("app")) as started:
        yield started


def bodies(messages: list[dict[str, Any]]) -> list[str]:
    return sorted(message["body"] for message in messages)


def receive_all(app: Driver, want: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for _ in range(20):
        found += app.ask("receive", max=16, invisible_ms=INVISIBLE_MS)
        if len(found) >= want:
            break
    for message in found:
        app.ask("ack", token=message["token"])
    return found


def test_the_template_sends_and_receives(app: Driver, still: BrokerProcess) -> None:
    for how in ("normal", "message", "async"):
        topic = "spring-normal:a-tag" if how == "message" else "spring-normal"
        app.ask("send", how=how, topic=topic, body=how)
    got = receive_all(app, 3)
    assert bodies(got) == ["async", "message", "normal"]
    [whole] = [message for message in got if message["body"] == "message"]
    assert (whole["tag"], whole["properties"]["OrderId"]) == ("a-tag", "17")
    still.advance(INVISIBLE_MS + 1_000)
    assert not app.ask("receive", max=16, invisible_ms=INVISIBLE_MS)


def test_a_delayed_message_is_pushed_when_it_is_due_and_a_failed_one_again(
    app: Driver, still: BrokerProcess
) -> None:
    delay_s = 40 * 24 * 3_600
    app.ask("send", how="delay", topic="spring-push", body="late", delay_s=delay_s)
    app.ask("send", how="normal", topic="spring-push", body="fail once")
    app.wait("push", lambda seen: len(seen) >= 2, lambda: still.advance(1_000))
    app.wait("push", lambda _: not still.admin.get(PUSH_GROUP)["waiting"])  # no ack is under way
    assert bodies(app.events("push")) == ["fail once"] * 2
    still.advance(delay_s * 1_000)
    app.wait("push", lambda seen: len(seen) >= 3)
    app.quiet(0.5)
    assert Counter(bodies(app.events("push"))) == {"fail once": 2, "late": 1}


def test_a_message_group_keeps_its_order_when_one_fails(app: Driver, still: BrokerProcess) -> None:
    steps = ["step 0", "fail", "step 2", "step 3"]
    for step in steps:
        app.ask("send", how="fifo", topic="spring-fifo:step", body=step, group="order-17")
    app.ask("send", how="fifo", topic="spring-fifo:other", body="not asked for", group="order-17")
    app.wait("steps", lambda seen: len(seen) >= 5, lambda: still.advance(1_000))
    app.quiet(0.5)
    seen = [event["body"] for event in app.events("steps")]
    assert seen == ["step 0", "fail", "fail", "step 2", "step 3"]


def test_transactions_end_as_the_application_or_its_listener_says(
    app: Driver, still: BrokerProcess
) -> None:
    topic = "spring-trades"
    for body, end in STORY:
        app.ask("transaction", topic=topic, body=body, end=end)
    still.advance(TRANSACTION_MS)
    asked = app.wait("template", lambda events: len(events) >= 2)
    assert bodies(asked) == ["COMMIT c", "ROLLBACK d"]
    view = f"/v1/topics/{topic}"
    app.wait("template", lambda _: not still.admin.get(view)["open_transactions"])
    assert sum(still.admin.get(view)["queue_offsets"]) == 2


def test_credentials_come_from_properties(tmp_path: Path) -> None:
    path = access_file(tmp_path / "access", ACCESS)
    with BrokerProcess(clock="system", flush="os", arguments=[f"--access={path}"]) as guarded:
        admin = AdminClient(guarded.admin_url.replace("//", "//:of-the-operator@"))
        for name, kind in TOPICS.items():
            admin.post("/v1/topics", {"name": name, "type": kind, "queues": 2})
        with spring(guarded, tmp_path / "app", secret="secret-1") as app:
            app.ask("send", how="normal", topic="spring-normal", body="allowed")
            assert bodies(receive_all(app, 1)) == ["allowed"]
            app.ask("send", how="normal", topic="spring-push", body="pushed")
            app.wait("push", lambda seen: bodies(seen) == ["pushed"])
