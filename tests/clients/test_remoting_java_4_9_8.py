"""The scenarios of 4.x clients with the official client of Java 4.9.8."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from conformance import Conformance
from drivers import Driver, java_remoting
from official import Remoting
from remoting_java_scenarios import JavaScenarios
from remoting_retry_scenarios import DeadLetterScenarios

from horolog.testing.broker import BrokerProcess

pytestmark = [pytest.mark.process, pytest.mark.clients]


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    with java_remoting("4.9.8", tmp_path_factory.mktemp("client")) as started:
        yield started


@pytest.fixture
def other_driver(driver: Driver) -> Driver:
    """Clients with instance names of their own have nothing in common."""
    return driver


class TestJava498(Conformance, JavaScenarios, DeadLetterScenarios):
    """The last of 4.x; later ones refuse delays in batches themselves."""

    client = "java-4.9.8"
    kind = Remoting

    def test_items_of_a_batch_have_due_times_of_their_own(
        self, driver: Driver, still: BrokerProcess
    ) -> None:
        self.producer(driver, still, "items", queues=1)
        name = self.push(driver, still, "items")
        batch = [
            {"body": f"{seconds}", "reserved": {"TIMER_DELAY_SEC": str(seconds)} if seconds else {}}
            for seconds in (0, 30, 10, 0, 20)
        ]
        self.send(driver, "items", batch, how="batch")
        self.exactly(driver, ["0", "0"], name)
        for count, seconds in enumerate((10, 20, 30), 3):
            still.advance(9_999)
            self.none_yet(driver, name, count - 1)
            still.advance(1)
            seen = driver.wait(name, lambda found, count=count: len(found) >= count)
            assert seen[-1]["body"] == str(seconds)
