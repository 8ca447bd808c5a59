"""The scenarios of 4.x clients with the official client of Java 5.5.0."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from conformance import Conformance
from drivers import Driver, Refused, java_remoting
from official import Remoting
from remoting_driver import bodies
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

    def test_consumers_that_pop_share_a_topic_and_retry(
        self, driver: Driver, running: BrokerProcess
    ) -> None:
        """The broker says that the group pops: each member takes from all queues, by lease.

        The client wants a message that it failed on again after ten seconds; its first failure of
        "fail 1 …" stands in the reconsume times of the second delivery.
        """
        self.producer(driver, running, "popped", queues=4)
        self._take_by(driver, running, "popped", "POP")
        names = [
            self.push(driver, running, "popped", name, assigned=True) for name in ("pop-1", "pop-2")
        ]
        again = ["fail 1 x", "fail 1 y"]
        wanted: list[str] = []

        def send_more(*more: str) -> None:
            messages = [{"body": body, "tag": "T", "keys": ["k"]} for body in more]
            self.send(driver, "popped", messages)
            wanted.extend(more)

        send_more(*again)
        for name in names:
            driver.wait(name, bool, lambda: send_more(f"m{len(wanted)}"))
        seen = self.exactly(driver, wanted + again, *names)
        assert all("POP_CK" in event["properties"] for event in seen)
        assert {(event["topic"], event["tag"], *event["keys"]) for event in seen} == {
            ("popped", "T", "k")
        }
        retried = [event["body"] for event in seen if event["retries"] == 1]
        assert Counter(retried) == Counter(again)
        progress = "/v1/topics/popped/groups/group-popped"
        driver.wait(names[0], lambda _: running.admin.get(progress)["waiting"] == 0)

    def test_a_group_that_pops_is_told_to_pull(
        self, driver: Driver, running: BrokerProcess
    ) -> None:
        """And back: with neither is a message lost, or consumed twice."""
        self.producer(driver, running, "turned", queues=4)
        name = self.push(driver, running, "turned", assigned=True)
        wanted: list[str] = []
        for turn, mode in enumerate(("PULL", "POP", "PULL", "POP")):
            self._take_by(driver, running, "turned", mode)
            more = [f"{mode}{turn}-{i}" for i in range(20)]
            self.send(driver, "turned", [{"body": body} for body in more])
            wanted += more
            seen = self.exactly(driver, wanted, name)
        assert bodies(seen) == sorted(wanted)

    @staticmethod
    def _take_by(driver: Driver, broker: BrokerProcess, topic: str, mode: str) -> None:
        words = ["setConsumeMode", "-b", broker.broker_address, "-t", topic]
        words += ["-g", f"group-{topic}", "-m", mode, "-q", "0", "-n", broker.namesrv_address]
        printed = driver.ask("mqadmin", words=words, namesrv=broker.namesrv_address)
        assert "success" in printed, printed
