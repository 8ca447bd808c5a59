"""The scenarios of 5.x clients with the official client of Go."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from conformance import Conformance
from drivers import Driver, Refused, go5
from grpc_scenarios import GrpcScenarios, bodies

from horolog.admin.client import AdminClient
from horolog.testing.broker import BrokerProcess

pytestmark = [pytest.mark.process, pytest.mark.clients]


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    with go5(tmp_path_factory.mktemp("client")) as started:
        yield started


@pytest.fixture
def other_driver(driver: Driver) -> Driver:
    """Clients of a process have nothing in common."""
    return driver


class TestGo(Conformance, GrpcScenarios):
    """Plaintext; TLS, its default, is one of the behaviours."""

    client = "go"

    def test_a_consumer_without_a_right_to_its_group_is_refused_with_the_reason(
        self, driver: Driver, guarded: BrokerProcess
    ) -> None:
        """The client begins when settings have come, and not before."""
        admin = AdminClient(guarded.admin_url.replace("//", "//:of-the-operator@"))
        admin.post("/v1/topics", {"name": "suite-told", "type": "mixed", "queues": 2})
        asked = {"topic": "suite-told", "group": "of-others", "filter": "*"}
        at = self.at(guarded, "told") | {"key": "app", "secret": "secret-1"}
        for kind in ("simple", "push"):
            with pytest.raises(Refused, match="no permission to access Group:of-others"):
                driver.ask(kind, **asked, **at)

    def test_a_consumer_of_lite_topics_learns_that_there_are_none(
        self, driver: Driver, running: BrokerProcess
    ) -> None:
        """Else it would take the messages of the topic that they were to be in."""
        self.producer(driver, running, "lite", "normal")
        self.send(driver, "lite", [{"body": "not lite"}])
        with pytest.raises(Refused, match="lite topics are not supported"):
            driver.ask("lite", topic="lite", group="lite", **self.at(running, "lite"))

    def test_a_topic_that_is_made_later_is_found(
        self, driver: Driver, running: BrokerProcess
    ) -> None:
        self.producer(driver, running, "first", "normal")
        self.simple(driver, running, "first")
        driver.ask("push", topic="first", group="later", filter="*", **self.at(running, "later"))
        by = {"by": "out-first", "topic": "second", "messages": [{"body": "x"}]}
        with pytest.raises(
            Refused, match="No topic route info in name server for the topic: second"
        ):
            driver.ask("send", **by)
        running.create_topic("second", type="normal", queues=2)
        for name in ("in-first", "later"):
            driver.ask("subscribe", by=name, topic="second", filter="*")
        [receipt] = driver.ask("send", **by)
        [event] = driver.wait("later", bool)
        assert (event["topic"], event["id"]) == ("second", receipt["id"])
        [got] = self.receive_all(driver, "first", 1)  # it asks for one of its topics at a time
        assert (got["topic"], got["id"]) == ("second", receipt["id"])
        self.ack(driver, "first", [got])
        driver.start("close", name="later")

    def test_clients_go_on_when_the_broker_is_killed_and_comes_again(
        self, driver: Driver, running: BrokerProcess
    ) -> None:
        """Nothing is lost, and what is due meanwhile comes once and not early."""
        self.producer(driver, running, "killed", "mixed")
        self.simple(driver, running, "killed")
        driver.ask("push", topic="killed", group="killed", filter="*", **self.at(running, "killed"))
        base_ms = running.now_ms() + 3_000
        due = {f"late-{i}": base_ms + 20 * i for i in range(100)}
        now = [{"body": f"now-{i}"} for i in range(100)]
        late = [{"body": body, "due_ms": at_ms} for body, at_ms in due.items()]
        self.send(driver, "killed", now + late, **{"async": True})
        driver.wait("killed", lambda seen: len(seen) >= len(now))
        driver.wait("killed", lambda _: self.is_idle(running, "killed"))
        running.kill()
        running.restart()
        after = [{"body": f"after-{i}"} for i in range(100)]
        self.send(driver, "killed", after)
        wanted = bodies(now + late + after)
        driver.wait("killed", lambda seen: len(seen) >= len(wanted))
        driver.quiet(1)
        seen = driver.events("killed")
        assert bodies(seen) == wanted
        assert not [event for event in seen if event["at_ms"] < due.get(event["body"], 0)]
        got: list[dict[str, Any]] = []
        while len(got) < len(wanted):
            got += self.receive_all(driver, "killed", 1)
        assert bodies(got) == wanted
        self.ack(driver, "killed", got)
        driver.start("close", name="killed")

    def test_ten_thousand_messages_of_one_second_come_once(
        self, driver: Driver, running: BrokerProcess
    ) -> None:
        self.producer(driver, running, "many", "delay")
        driver.ask("push", topic="many", group="many", filter="*", **self.at(running, "many"))
        due_ms = running.now_ms() + 12_000
        wanted = [f"{i}" for i in range(10_000)]
        for first in range(0, len(wanted), 500):
            part = wanted[first : first + 500]
            messages = [{"body": body, "due_ms": due_ms + int(body) % 1_000} for body in part]
            self.send(driver, "many", messages, **{"async": True})
        driver.wait("many", lambda seen: len(seen) >= len(wanted))
        driver.wait("many", lambda _: self.is_idle(running, "many"))
        driver.quiet(1)
        seen = driver.events("many")
        assert bodies(seen) == sorted(wanted)
        assert not [e for e in seen if e["at_ms"] < due_ms + int(e["body"]) % 1_000]
        driver.start("close", name="many")

    def test_a_client_that_is_closed_is_not_there_any_more(
        self, driver: Driver, running: BrokerProcess
    ) -> None:
        """Its connection, and its Telemetry stream, stay open as long as its process lives."""
        self.producer(driver, running, "closed", "normal")
        self.simple(driver, running, "closed")

        def there() -> int:
            return sum(
                "closed" in each["topics"] for each in running.admin.get("/v1/clients")["clients"]
            )

        assert there() == 2
        for name in ("out-closed", "in-closed"):
            driver.ask("close", name=name)
        assert there() == 0
