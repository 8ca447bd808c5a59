"""The scenarios of 5.x clients with the official client of Java 5.2.0."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest
from conformance import Conformance
from drivers import Driver, java_grpc
from grpc_scenarios import GrpcScenarios
from remoting_client import put_group

from horolog.testing.broker import BrokerProcess

pytestmark = [pytest.mark.process, pytest.mark.clients]


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    with java_grpc("5.2.0", tmp_path_factory.mktemp("client")) as started:
        yield started


@pytest.fixture
def other_driver(driver: Driver) -> Driver:
    """Clients of a process have nothing in common."""
    return driver


class TestJava520(Conformance, GrpcScenarios):
    """The newest."""

    client = "java-5.2.0"

    def test_a_push_consumer_waits_as_its_group_says(
        self, driver: Driver, running: BrokerProcess
    ) -> None:
        """Its own pauses would be 1 s and 5 s."""
        policy = {"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": [1_600, 600]}}
        put_group(running.broker_address, "paused", groupRetryPolicy=policy)
        self.producer(driver, running, "paused", "normal")
        driver.ask("push", topic="paused", group="paused", filter="*", **self.at(running, "paused"))
        self.send(driver, "paused", [{"body": "fail 3 times"}])
        seen = driver.wait("paused", lambda events: len(events) >= 4)
        times = [event["at_ms"] for event in seen]
        pauses = [after - before for before, after in pairwise(times)]
        assert all(pause >= least for pause, least in zip(pauses, (1_600, 600, 600), strict=True))
        assert max(pauses) < 5_000, pauses
        driver.start("close", name="paused")

    def test_a_push_consumer_in_order_fails_and_gives_up(
        self, driver: Driver, running: BrokerProcess
    ) -> None:
        """It tries again by itself, while its group waits; what it gives up lets the group go on."""
        policy = {"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": [300]}}
        settings = {"consumeMessageOrderly": True, "retryMaxTimes": 2, "groupRetryPolicy": policy}
        put_group(running.broker_address, "ordered", **settings)
        self.producer(driver, running, "ordered", "fifo")
        name = {"topic": "ordered", "group": "ordered", "filter": "*"}
        driver.ask("push", **name, **self.at(running, "ordered"))
        bodies = ["fail 1 a", "b1", "a2", "fail 9 b", "b3", "a3"]
        groups = ["a", "b", "a", "b", "b", "a"]
        messages = [{"body": b, "group": g} for b, g in zip(bodies, groups, strict=True)]
        self.send(driver, "ordered", messages)
        driver.wait("ordered", lambda seen: len(seen) >= 9)
        driver.wait("ordered", lambda _: self.is_idle(running, "ordered"))
        seen = [event["body"] for event in driver.events("ordered")]
        of_a = [body for body in seen if "a" in body.removeprefix("fail")]
        assert of_a == ["fail 1 a", "fail 1 a", "a2", "a3"]
        assert [body for body in seen if "b" in body] == ["b1", *["fail 9 b"] * 3, "b3"]
        letters = running.admin.get("/v1/groups/ordered/dead-letters")
        assert letters["waiting"] == 1
        driver.start("close", name="ordered")
