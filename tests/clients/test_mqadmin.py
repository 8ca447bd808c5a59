"""mqadmin of RocketMQ 5.5.0 against the broker: what its commands print is right."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import orjson
import pytest
from drivers import Driver, java_remoting
from remoting_client import RemotingClient
from remoting_driver import RemotingDriver, bodies

from horolog.protocol.remoting.codes import Code
from horolog.testing.broker import BrokerProcess

pytestmark = [pytest.mark.process, pytest.mark.clients]
COUNT = 10
COMMITS_S = 5
"""A client commits what it consumed so often."""


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    with java_remoting("5.5.0", tmp_path_factory.mktemp("client")) as started:
        yield started


def rows(printed: str) -> list[list[str]]:
    """Lines of a table, as their words; its heading begins with #."""
    return [line.split() for line in printed.splitlines() if line and line[0] not in "#\t "]


class TestMqadmin(RemotingDriver):
    """All commands in one JVM, on a broker with ten messages that a group has consumed."""

    @pytest.fixture(scope="class")
    @classmethod
    def sent(cls, driver: Driver, running: BrokerProcess) -> list[dict[str, Any]]:
        made = cls()
        made.producer(driver, running, "orders")
        sent = made.send(
            driver,
            "orders",
            [{"body": f"m{i}", "tag": "T", "keys": [f"k{i}"]} for i in range(COUNT)],
        )
        made.push(driver, running, "orders", "in", group="g")
        driver.wait("in", lambda seen: len(seen) == COUNT)
        return sent

    @pytest.fixture
    def admin(
        self, driver: Driver, running: BrokerProcess, sent: list[dict[str, Any]]
    ) -> Callable[..., str]:
        """Run one command; what it printed."""

        def run(*words: str) -> str:
            at = {"namesrv": running.namesrv_address}
            words_given = [*words, "-n", running.namesrv_address]
            printed = str(driver.ask("mqadmin", words=words_given, **at))
            assert "Exception" not in printed, printed
            return printed

        return run

    def test_cluster_list(self, admin: Callable[..., str], running: BrokerProcess) -> None:
        [row] = rows(admin("clusterList"))
        assert row[:4] == ["DefaultCluster", "broker-a", "0", running.broker_address]
        assert row[4].startswith("horolog-")

    def test_topic_list_and_route(self, admin: Callable[..., str], running: BrokerProcess) -> None:
        assert {"orders", "%RETRY%g"} <= {row[0] for row in rows(admin("topicList"))}
        assert ["DefaultCluster", "orders", "g"] in rows(admin("topicList", "-c"))
        route = admin("topicRoute", "-t", "orders")
        assert f'0:"{running.broker_address}"' in route
        assert '"readQueueNums":2' in route

    def test_topic_status(self, admin: Callable[..., str], sent: list[dict[str, Any]]) -> None:
        found = [row for row in rows(admin("topicStatus", "-t", "orders")) if row[0] == "broker-a"]
        ends = {int(row[1]): int(row[3]) for row in found}
        assert ends == Counter(receipt["queue"] for receipt in sent)
        assert {row[2] for row in found} == {"0"}

    def test_update_and_delete_topic(
        self, admin: Callable[..., str], running: BrokerProcess
    ) -> None:
        words = ("-c", "DefaultCluster", "-t", "made", "-r", "3", "-w", "3")
        printed = admin("updateTopic", *words, "-a", "+message.type=DELAY")
        assert f"create topic to {running.broker_address} success." in printed
        found = [row for row in rows(admin("topicStatus", "-t", "made")) if row[0] == "broker-a"]
        assert [row[1:4] for row in found] == [[str(queue), "0", "0"] for queue in range(3)]
        topic = running.admin.get("/v1/topics/made")
        assert (topic["type"], topic["queues"]) == ("delay", 3)
        admin("deleteTopic", "-c", "DefaultCluster", "-t", "made")
        assert "made" not in {row[0] for row in rows(admin("topicList"))}

    def test_update_sub_group_sets_the_retry_policy(
        self, admin: Callable[..., str], running: BrokerProcess
    ) -> None:
        table = '"exponentialRetryPolicy":{"initial":3000,"max":60000,"multiplier":3}'
        policy = f'{{"type":"EXPONENTIAL",{table}}}'
        words = ("-b", running.broker_address, "-g", "paused", "-r", "5", "-p", policy)
        assert "success" in admin("updateSubGroup", *words)
        client = RemotingClient(running.broker_address)
        answer = client.call(Code.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "paused"})
        client.close()
        config = orjson.loads(answer.body)
        assert config["groupRetryPolicy"] == orjson.loads(policy)
        assert config["retryMaxTimes"] == 5

    def test_consumer_progress(
        self, driver: Driver, admin: Callable[..., str], running: BrokerProcess
    ) -> None:
        def queues() -> list[list[str]]:
            printed = admin("consumerProgress", "-g", "g")
            return [row for row in rows(printed) if row[0] == "orders"]

        def committed() -> bool:
            return sum(int(row[4]) for row in queues()) == COUNT

        driver.wait("in", lambda _: committed(), timeout_s=8 * COMMITS_S)
        assert all(row[3] == row[4] and row[5] == "0" for row in queues())
        [group] = [row for row in rows(admin("consumerProgress")) if row[0] == "g"]
        assert group[1:5] == ["1", "V5_5_0", "PUSH", "CLUSTERING"]
        assert group[-1] == "0"

    def test_connections(self, admin: Callable[..., str]) -> None:
        printed = admin("consumerConnection", "-g", "g")
        assert re.search(r"@in +127\.0\.0\.1:\d+ +JAVA +V5_5_0", printed)
        assert re.search(r"^orders +\*", printed, re.MULTILINE)
        printed = admin("producerConnection", "-g", "out-orders", "-t", "orders")
        assert re.search(r"@out-orders +127\.0\.0\.1:\d+ +JAVA", printed)

    def test_messages_by_id_and_key(
        self, admin: Callable[..., str], sent: list[dict[str, Any]]
    ) -> None:
        third = sent[3]
        for command, name in (("queryMsgById", "offset_id"), ("queryMsgByUniqueKey", "id")):
            printed = admin(command, "-t", "orders", "-i", third[name])
            fields = dict(re.findall(r"^([A-Za-z ]+): +(.+)$", printed, re.MULTILINE))
            assert (fields["Topic"], fields["Tags"], fields["Keys"]) == ("orders", "[T]", "[k3]")
            assert int(fields["Queue Offset"]) == third["offset"]
            assert "consumerGroup=g, trackType=CONSUMED" in printed
        [row] = rows(admin("queryMsgByKey", "-t", "orders", "-k", "k7"))
        assert row[:3] == [sent[7]["id"], str(sent[7]["queue"]), str(sent[7]["offset"])]

    def test_broker_status_and_settings(
        self, admin: Callable[..., str], running: BrokerProcess
    ) -> None:
        printed = admin("brokerStatus", "-b", running.broker_address)
        assert re.search(rf"^msgPutTotalTodayNow +: {COUNT}$", printed, re.MULTILINE)
        printed = admin("getBrokerConfig", "-b", running.broker_address)
        assert re.search(r"^messageDelayLevel += +1s 5s 10s", printed, re.MULTILINE)

    def test_reset_offset_by_time_gives_a_running_consumer_all_again(
        self, driver: Driver, admin: Callable[..., str], running: BrokerProcess
    ) -> None:
        before_ms = running.now_ms() - 3_600_000
        words = ("-g", "g", "-t", "orders", "-s", str(before_ms))
        found = [row for row in rows(admin("resetOffsetByTime", *words)) if row[0] == "broker-a"]
        assert found == [["broker-a", "0", "0"], ["broker-a", "1", "0"]]
        seen = driver.wait("in", lambda events: len(events) >= 2 * COUNT)
        driver.quiet(1)
        assert bodies(seen) == sorted(2 * [f"m{i}" for i in range(COUNT)])
