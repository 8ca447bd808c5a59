"""Official clients with credentials: right and wrong secrets, and topics that are allowed and denied."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from drivers import Driver, Refused, cpp, java_grpc, java_remoting, node
from remoting_driver import bodies

from horolog.admin.client import AdminClient
from horolog.testing.broker import BrokerProcess

pytestmark = [pytest.mark.process, pytest.mark.clients]
ACCESS = """
[identities.app]
secret = "secret-1"
topics = { "mine-*" = "PUB|SUB", "%RETRY%*" = "DENY" }
groups = { "my-*" = "SUB" }

[identities.operator]
secret = "secret-2"
token = "of-the-operator"
admin = true
"""


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    path = tmp_path_factory.mktemp("access") / "access.toml"
    path.write_text(ACCESS)
    path.chmod(0o600)
    with BrokerProcess(clock="system", flush="os", arguments=[f"--access={path}"]) as broker:
        yield broker


def create(broker: BrokerProcess, *topics: str) -> None:
    admin = AdminClient(broker.admin_url.replace("//", "//:of-the-operator@"))
    for topic in topics:
        admin.post("/v1/topics", {"name": topic, "type": "mixed", "queues": 2})


class Grpc:
    """What 5.x clients must see."""

    forbidden = "has no permission to access Topic:other-"

    def at(self, broker: BrokerProcess, secret: str = "secret-1") -> dict[str, Any]:
        where = {"endpoint": broker.grpc_endpoint, "tls": False}
        return {**where, "key": "app", "secret": secret}

    def test_only_the_right_secret_and_granted_topics(
        self, driver: Driver, guarded: BrokerProcess, tmp_path: Path
    ) -> None:
        mine, other = f"mine-{tmp_path.name}", f"other-{tmp_path.name}"
        create(guarded, mine, other)
        at = self.at(guarded)
        driver.ask("producer", name="out", topic=mine, **at)
        driver.ask("send", by="out", topic=mine, messages=[{"body": "allowed"}])
        driver.ask(
            "simple", name="in", topic=mine, group="my-group", filter="*", await_ms=1_000, **at
        )
        got: list[dict[str, Any]] = []
        for _ in range(20):
            got += driver.ask("receive", by="in", max=32, invisible_ms=30_000)
            if got:
                break
        assert bodies(got) == ["allowed"]
        driver.ask("ack", by="in", token=got[0]["token"])
        driver.ask(
            "push", name="push", topic=mine, group="my-push", filter="*", await_ms=1_000, **at
        )
        driver.ask("send", by="out", topic=mine, messages=[{"body": "pushed"}])
        driver.wait("push", lambda events: "pushed" in bodies(events))
        with pytest.raises(Refused, match=self.forbidden):
            driver.ask("send", by="out", topic=other, messages=[{"body": "denied"}])
        with pytest.raises(Refused):  # it asks for a route, and says only that it cannot start
            driver.ask("producer", name="wrong", topic=mine, **self.at(guarded, "secret-2"))


class TestJava520(Grpc):
    """5.x."""

    @pytest.fixture(scope="class")
    @classmethod
    def driver(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
        with java_grpc("5.2.0", tmp_path_factory.mktemp("client")) as started:
            yield started


class TestNode(Grpc):
    """5.x."""

    @pytest.fixture(scope="class")
    @classmethod
    def driver(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
        with node(tmp_path_factory.mktemp("client")) as started:
            yield started


class Remoting:
    """What 4.x clients must see."""

    def test_only_the_right_secret_and_granted_topics(
        self, drivers: Iterator[Driver], guarded: BrokerProcess, tmp_path: Path
    ) -> None:
        mine, other = f"mine-{tmp_path.name}", f"other-{tmp_path.name}"
        create(guarded, mine, other)
        at = {"namesrv": guarded.namesrv_address, "key": "app"}
        driver = next(drivers)
        driver.ask("producer", name="out", group="any", **at)
        messages = [{"body": "allowed"}, {"body": "long" * 2_000}]
        driver.ask("send", by="out", topic=mine, messages=messages)
        driver.ask(
            "send", by="out", topic=mine, messages=[{"body": "b1"}, {"body": "b2"}], how="batch"
        )
        more = {"from": "CONSUME_FROM_FIRST_OFFSET"}
        driver.ask("push", name="in", topic=mine, group="my-group", filter="*", **more, **at)
        driver.wait("in", lambda events: len(events) >= 4)
        assert bodies(driver.events("in")) == ["allowed", "b1", "b2", "long" * 2_000]
        with pytest.raises(Refused):
            driver.ask("send", by="out", topic=other, messages=[{"body": "denied"}])
        wrong = next(drivers)
        wrong.ask("producer", name="wrong", group="any", secret="secret-2", **at)
        with pytest.raises(Refused):
            wrong.ask("send", by="wrong", topic=mine, messages=[{"body": "wrong"}])
        admin = AdminClient(guarded.admin_url.replace("//", "//:of-the-operator@"))
        assert admin.get(f"/v1/topics/{other}")["queue_offsets"] == [0, 0]
        assert sum(admin.get(f"/v1/topics/{mine}")["queue_offsets"]) == 4


class TestJava498(Remoting):
    """4.x."""

    @pytest.fixture
    def drivers(self, tmp_path: Path) -> Iterator[Iterator[Driver]]:
        with (
            java_remoting("4.9.8", tmp_path / "a") as first,
            java_remoting("4.9.8", tmp_path / "b") as second,
        ):
            yield iter((first, second))


class TestJava550(Remoting):
    """5.x over remoting, with binary headers; and mqadmin."""

    @pytest.fixture
    def drivers(self, tmp_path: Path) -> Iterator[Iterator[Driver]]:
        binary = "-Drocketmq.serialize.type=ROCKETMQ"
        with (
            java_remoting("5.5.0", tmp_path / "a", binary) as first,
            java_remoting("5.5.0", tmp_path / "b", binary) as second,
        ):
            yield iter((first, second))

    def test_mqadmin_reads_its_keys_from_a_file(
        self, guarded: BrokerProcess, tmp_path: Path
    ) -> None:
        (tmp_path / "conf").mkdir()
        tools = tmp_path / "conf" / "tools.yml"
        option = f"-Drocketmq.home.dir={tmp_path}"
        words = ["clusterList", "-n", guarded.namesrv_address]
        for secret, said in (("secret-2", guarded.broker_address), ("secret-3", "check signature")):
            tools.write_text(f"accessKey: operator\nsecretKey: {secret}\n")
            with java_remoting("5.5.0", tmp_path / secret, option) as driver:
                printed = driver.ask("mqadmin", words=words, namesrv=guarded.namesrv_address)
                assert said in printed + driver.stderr(), printed


class TestCpp(Remoting):
    """4.x."""

    @pytest.fixture
    def drivers(self, tmp_path: Path) -> Iterator[Iterator[Driver]]:
        with cpp(tmp_path / "a") as first, cpp(tmp_path / "b") as second:
            yield iter((first, second))
