"""A data directory that is moved, or a file of it cut, while the broker runs: a sentence says which one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from horolog.admin.status import UnreachableError
from horolog.errors import HorologError
from horolog.testing.broker import BrokerProcess

pytestmark = pytest.mark.process
HOUR_MS = 3_600_000
PUZZLES = ("Traceback", "unpack", "buffer is smaller", "Errno")


def filled(directory: Path) -> BrokerProcess:
    """A started broker with messages in a queue and in an hour."""
    broker = BrokerProcess(directory).start()
    broker.create_topic("t", "mixed")
    for number in range(10):
        message = {"topic": "t", "body": f"{number}", "keys": ["k"]}
        broker.admin.post("/v1/messages", message)
        broker.admin.post("/v1/messages", {**message, "in_ms": HOUR_MS + number})
    return broker


def asked(broker: BrokerProcess) -> list[str]:
    """What a caller is told, of requests that read and write all kinds of files."""
    answers = []
    receive = {"topic": "t", "group": "g", "limit": 10}
    for call in (
        lambda: broker.admin.post("/v1/receive", receive),
        lambda: broker.admin.get("/v1/messages/find", {"topic": "t", "key": "k"}),
        lambda: broker.admin.post("/v1/recall/key", {"topic": "t", "key": "k"}),
        lambda: broker.advance(2 * HOUR_MS),
    ):
        try:
            call()
        except (HorologError, UnreachableError) as error:
            answers.append(str(error))
    return answers


def test_a_data_directory_that_is_moved(tmp_path: Path) -> None:
    """Named, with exit code 1; brought back it serves, and nothing that was acknowledged is lost."""
    home, elsewhere = tmp_path / "data", tmp_path / "elsewhere"
    with filled(home) as broker:
        home.rename(elsewhere)
        view = asked(broker)
        assert broker.wait() == 1
        said = broker.stderr()
        assert not [word for word in PUZZLES if word in said + "".join(view)], said
        assert f"failed {home}" in said, said
        assert "moved while the broker ran?" in said
        elsewhere.rename(home)
        broker.restart()
        assert sum(broker.admin.get("/v1/topics/t")["queue_offsets"]) >= 10


@pytest.mark.parametrize("name", ["delay.idx", "delay.log"])
def test_a_file_of_an_hour_that_is_cut(tmp_path: Path, name: str) -> None:
    """The file is named wherever it is met; the next start rebuilds it from the log."""
    with filled(tmp_path / "data") as broker:
        (file,) = (tmp_path / "data/shard-00/hours").glob(f"*/{name}")
        os.truncate(file, 7)
        view = asked(broker)
        said = broker.stderr()
        assert not [word for word in PUZZLES if word in said + "".join(view)], said
        if not broker.running or view:
            assert name in said
        broker.restart()
        assert broker.pending("t") + 10 >= 10
