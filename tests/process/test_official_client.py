"""The official 5.x Python client, unmodified, against a real broker: send, receive, ack, change, recall, push."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from horolog.testing.broker import BrokerProcess

pytestmark = pytest.mark.process
ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".venv-client" / "bin" / "python"
SCRIPT = Path(__file__).parent / "clients" / "official.py"


class Client:
    """One scenario in the client's own environment; killed after two minutes whatever it does."""

    def __init__(self, broker: BrokerProcess, scenario: str, home: Path) -> None:
        assert PYTHON.exists(), "the client's environment is missing: make setup"
        self._broker = broker
        self._popen = subprocess.Popen(
            [
                str(PYTHON),
                str(SCRIPT),
                scenario,
                broker.grpc_endpoint,
                str(broker.now_ms() // 1000),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "HOME": str(home)},
        )
        self._timer = threading.Timer(120, self._popen.kill)
        self._timer.start()

    def run(self, *advances_ms: int, then_ms: int = 0) -> list[dict]:
        """Everything it said; at each wait the clock advances by the next amount."""
        assert self._popen.stdout is not None
        assert self._popen.stdin is not None
        said = []
        waits = list(advances_ms)
        later: threading.Timer | None = None
        try:
            for line in self._popen.stdout:
                fields = json.loads(line)
                if "wait" in fields:
                    self._broker.advance(waits.pop(0))
                    self._popen.stdin.write("\n")
                    self._popen.stdin.flush()
                else:
                    said.append(fields)
                    if (
                        then_ms
                        and fields.get("attempt") == 1
                        and fields.get("pushed") == "fail once"
                    ):
                        later = threading.Timer(1, self._broker.advance, [then_ms])
                        later.start()
            if later is not None:
                later.join()
        finally:
            self._timer.cancel()
            self._popen.kill()
            _, stderr = self._popen.communicate()
        assert said and said[-1] == {"end": True}, (said, stderr[-4_000:])
        return said


@pytest.fixture
def broker() -> Iterator[BrokerProcess]:
    with BrokerProcess() as started:
        for name in ("normal", "delay", "mixed", "transaction"):
            started.create_topic(name, type=name, queues=2)
        yield started


def values(said: list[dict], name: str) -> list:
    return [fields[name] for fields in said if name in fields]


def test_normal_send_receive_ack_with_a_tag_filter(broker, tmp_path) -> None:
    said = Client(broker, "normal", tmp_path).run(61_000)
    got = [fields for fields in said if "received" in fields]
    assert {f["received"] for f in got} == {f"body-{i}" for i in range(12) if i % 3 != 2}
    assert {f["id"] for f in got} < set(values(said, "sent"))
    for fields in got:
        number = int(fields["received"].removeprefix("body-"))
        assert fields["keys"] == [f"k{number}"]
        assert fields["tag"] == ["TagA", "TagB"][number % 3]
        assert fields["properties"] == {"origin": "test"}
        assert fields["attempt"] == 1
    assert values(said, "again") == [0]


def test_delayed_messages_come_when_due_and_not_before(broker, tmp_path) -> None:
    said = Client(broker, "delayed", tmp_path).run(3_605_000)
    assert all(values(said, "handle"))
    assert values(said, "early") == [0]
    assert sorted(values(said, "received")) == [f"late-{i}" for i in range(5)]


def test_change_invisible_duration_hides_and_gives_again(broker, tmp_path) -> None:
    said = Client(broker, "change", tmp_path).run(21_000)
    assert values(said, "hidden") == [0]
    assert values(said, "attempt") == [1, 2]
    assert values(said, "body") == ["retry me"]


def test_recall_tells_the_truth(broker, tmp_path) -> None:
    said = Client(broker, "recall", tmp_path).run(3_600_000)
    assert values(said, "recalled") == [True]
    assert values(said, "received") == ["kept"]
    # This client takes status 40401 (NOT_FOUND) for success, but gives no id then.
    assert values(said, "returned") == [""]
    assert "ALREADY_DELIVERED" in values(said, "refused")[0]


def test_push_consumer_gets_normal_delayed_and_failed_ones(broker, tmp_path) -> None:
    said = Client(broker, "push", tmp_path).run(60_000, then_ms=20_000)
    assert values(said, "complete") == [True]
    pushed = values(said, "pushed")
    assert sorted(set(pushed)) == ["fail once", "late-0", "late-1", "now-0", "now-1", "now-2"]
    assert pushed.count("fail once") == 2


def test_credentials(tmp_path, monkeypatch) -> None:
    path = tmp_path / "access.toml"
    path.write_text(
        """
        [identities.app]
        secret = "secret-1"
        topics = { mixed = "PUB|SUB" }
        groups = { "my-*" = "SUB" }
        [identities.operator]
        secret = "secret-of-the-operator"
        admin = true
        """
    )
    monkeypatch.setenv("HOROLOG_ACCESS_KEY", "operator")
    monkeypatch.setenv("HOROLOG_SECRET_KEY", "secret-of-the-operator")
    with BrokerProcess(arguments=[f"--access={path}"]) as broker:
        for name in ("normal", "mixed"):
            broker.create_topic(name, type=name)
        said = Client(broker, "access", tmp_path).run()
        assert values(said, "received") == ["allowed"]
        assert all(values(said, "denied") + values(said, "wrong"))
        assert broker.admin.get("/v1/topics/normal")["queue_offsets"] == [0]
        assert broker.admin.get("/v1/topics/mixed")["queue_offsets"] == [1]


def test_transactions_end_as_the_producer_or_its_checker_says(broker, tmp_path) -> None:
    said = Client(broker, "transactions", tmp_path).run(6_000)
    assert values(said, "received") == ["COMMIT a"]
    assert values(said, "checked") == values(said, "late") == ["COMMIT c"]
    assert values(said, "more") == [0]
