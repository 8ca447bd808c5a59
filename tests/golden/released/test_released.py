"""A data directory of each released version opens with this one, and everything that was in it is there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from released_directories import RELEASED, unpack

from horolog.errors import ErrorCode, HorologError
from horolog.storage.disk import Disk
from horolog.testing.broker import BrokerProcess
from horolog.verify.directory import verify_directory

pytestmark = pytest.mark.process

VERSIONS = sorted(path.stem for path in RELEASED.glob("*.zip"))
ROOT = Path(__file__).parents[3]


def test_every_released_version_has_a_directory() -> None:
    """`make_released.py` of a release is run with that release; the changelog says which there are."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## \[(\d+\.\d+\.\d+)\] - (\S+)", text, re.MULTILINE)
    released = {version for version, when in headings if when != "unreleased"}
    assert released <= set(VERSIONS) <= {version for version, _ in headings}


def directories(version: str, tmp_path: Path, without: str) -> tuple[Path, dict[str, Any]]:
    kept = unpack(version, tmp_path / "data")
    checkpoints = sorted((tmp_path / "data" / "shard-00" / "checkpoint").iterdir())
    gone = {"nothing": [], "newest checkpoint": checkpoints[-1:], "checkpoints": checkpoints}
    for path in gone[without]:
        path.unlink()
    return tmp_path / "data", kept


def pending(broker: BrokerProcess) -> list[tuple[int, str, str]]:
    rows = broker.admin.get("/v1/pending/messages", {"limit": 1_000})["messages"]
    return [(row["deliver_at_ms"], row["topic"], row["message_id"]) for row in rows]


def received(broker: BrokerProcess, topic: str) -> list[dict[str, Any]]:
    """Everything visible, to a group that has seen nothing, and acknowledged."""
    found: list[dict[str, Any]] = []
    wanted = {"topic": topic, "group": "new", "limit": 32}
    while messages := broker.admin.post("/v1/receive", wanted)["messages"]:
        found += messages
        handles = [each["receipt_handle"] for each in messages]
        answer = {"topic": topic, "group": "new", "receipt_handles": handles}
        assert broker.admin.post("/v1/ack", answer)["acked"] == len(handles)
    return found


@pytest.mark.parametrize(
    "without",
    [
        "nothing",
        pytest.param("newest checkpoint", marks=pytest.mark.slow),
        pytest.param("checkpoints", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("version", VERSIONS)
def test_it_opens_and_serves_what_it_had(version: str, without: str, tmp_path: Path) -> None:
    data, kept = directories(version, tmp_path, without)
    waiting = [(row["deliver_at_ms"], row["topic"], row["message_id"]) for row in kept["waiting"]]
    with BrokerProcess(data) as broker:
        assert broker.admin.get("/healthz")["healthy"] is True
        assert sorted(pending(broker)) == sorted(waiting)
        topics = [each["name"] for each in broker.admin.get("/v1/topics")["topics"]]
        assert sorted(topics) == kept["topics"]
        settings = broker.admin.get("/v1/groups/settings-second")
        assert (settings["orderly"], settings["retry_max"]) == (True, 7)
        schedules = broker.admin.get("/v1/schedules")["schedules"]
        assert sorted(each["name"] for each in schedules) == kept["schedules"]
        gone = kept["recalled"][0]
        with pytest.raises(HorologError) as refused:
            broker.admin.post("/v1/recall", {"handle": gone["handle"]})
        assert refused.value.code in (ErrorCode.NOT_FOUND, ErrorCode.ALREADY_DELIVERED)
        for row in kept["waiting"][::10]:
            answer = broker.admin.post("/v1/recall", {"handle": row["handle"]})
            assert answer["status"] == "CANCELLED", row
        left = {row["message_id"]: row for i, row in enumerate(kept["waiting"]) if i % 10}
        due_ms = max(row["deliver_at_ms"] for row in left.values())
        broker.advance(due_ms - broker.now_ms() + 1_000)
        broker.kill()  # what this version has written it reads as well
        broker.restart()
        assert pending(broker) == []
        found = [each for topic in kept["topics"] for each in received(broker, topic)]
        ids = [each["message_id"] for each in found]
        assert sorted(ids) == sorted([*kept["visible"], *left])
        for each in found:
            if row := left.get(each["message_id"]):
                assert each["body"] == f"body of {row['name']}"
        again = broker.admin.post("/v1/receive", {"topic": "orders", "group": "shop", "limit": 32})
        acked = {each["message_id"] for each in again["messages"]} & set(kept["acked"])
        assert not acked
        assert broker.stop() == 0
    assert verify_directory(Disk(data, read_only=True)).findings.kept == []


@pytest.mark.parametrize("version", VERSIONS)
def test_it_verifies_as_it_was_left(version: str, tmp_path: Path) -> None:
    data, _ = directories(version, tmp_path, "nothing")
    verdict = verify_directory(Disk(data, read_only=True))
    assert verdict.findings.kept == []
