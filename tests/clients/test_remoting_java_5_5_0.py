"""The scenarios of 4.x clients with the official client of Java 5.5.0."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from conformance import Conformance
from drivers import Driver, Refused, java_remoting
from official import Remoting
from remoting_java_scenarios import JavaScenarios
from remoting_retry_scenarios import DeadLetterScenarios

from horolog.testing.broker import BrokerProcess

pytestmark = [pytest.mark.process, pytest.mark.clients]


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    binary = "-Drocketmq.serialize.type=ROCKETMQ"  # its JSON has test_mqadmin.py, and 4.9.8
    with java_remoting("5.5.0", tmp_path_factory.mktemp("client"), binary) as started:
        yield started


@pytest.fixture
def other_driver(driver: Driver) -> Driver:
    """Clients with instance names of their own have nothing in common."""
    return driver


class TestJava550(Conformance, JavaScenarios, DeadLetterScenarios):
    """The newest."""

    client = "java-5.5.0"
    kind = Remoting

    def test_the_setters_of_5_x_and_a_recall(self, driver: Driver, still: BrokerProcess) -> None:
        self.producer(driver, still, "setters")
        name = self.push(driver, still, "setters")
        at_ms = still.now_ms() + 20_000
        fields = {"setDelayTimeMs": 20_000, "setDelayTimeSec": 20, "setDeliverTimeMs": at_ms}
        messages = [{"body": setter, setter: value} for setter, value in fields.items()]
        gone = {"body": "gone", "setDeliverTimeMs": at_ms}
        *_, receipt = self.send(driver, "setters", [*messages, gone])
        recall = {"by": "out-setters", "topic": "setters", "handle": receipt["handle"]}
        assert driver.ask("recall", **recall) == receipt["id"]
        still.advance(19_999)
        self.none_yet(driver, name)
        still.advance(1)
        self.exactly(driver, list(fields), name)
        with pytest.raises(Refused, match="NOT_FOUND"):
            driver.ask("recall", **recall)

    def test_a_message_that_cancels_another_one(self, driver: Driver, still: BrokerProcess) -> None:
        """As RocketMQ's own example of timers does it."""
        self.producer(driver, still, "cancels")
        name = self.push(driver, still, "cancels")
        at_ms = still.now_ms() + 20_000
        orders = [{"body": body, "setDeliverTimeMs": at_ms} for body in ("paid", "unpaid")]
        paid, _ = self.send(driver, "cancels", orders)
        cancel = {
            "body": "x",
            "setDeliverTimeMs": at_ms,
            "reserved": {"TIMER_DEL_UNIQKEY": paid["id"]},
        }
        (answer,) = self.send(driver, "cancels", [cancel])
        assert answer["status"] == "SEND_OK"
        still.advance(20_000)
        self.exactly(driver, ["unpaid"], name)
