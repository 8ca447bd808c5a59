"""The scenarios of 5.x clients with the official client of Java 5.2.0."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest
from drivers import Driver, java_grpc
from grpc_scenarios import GrpcScenarios
from remoting_client import RemotingClient
from transaction_scenarios import GrpcTransactions

from horolog.protocol.remoting.codes import Code, Status
from horolog.testing.broker import BrokerProcess

pytestmark = [pytest.mark.process, pytest.mark.clients]


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    with java_grpc("5.2.0", tmp_path_factory.mktemp("client")) as started:
        yield started


class TestJava520(GrpcScenarios, GrpcTransactions):
    """The newest."""

    def test_a_push_consumer_waits_as_its_group_says(
        self, driver: Driver, running: BrokerProcess
    ) -> None:
        """Its own pauses would be 1 s and 5 s."""
        policy = {"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": [1_600, 600]}}
        client = RemotingClient(running.broker_address)
        config = {"groupName": "paused", "groupRetryPolicy": policy}
        answer = client.call(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, config)
        assert answer.code == Status.SUCCESS
        client.close()
        self.producer(driver, running, "paused", "normal")
        driver.ask("push", topic="paused", group="paused", filter="*", **self.at(running, "paused"))
        self.send(driver, "paused", [{"body": "fail 3 times"}])
        seen = driver.wait("paused", lambda events: len(events) >= 4)
        times = [event["at_ms"] for event in seen]
        pauses = [after - before for before, after in pairwise(times)]
        assert all(pause >= least for pause, least in zip(pauses, (1_600, 600, 600), strict=True))
        assert max(pauses) < 5_000, pauses
        driver.start("close", name="paused")
