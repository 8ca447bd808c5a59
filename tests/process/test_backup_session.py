"""Back up, restore and verify with the installed `horolog`: what an operator types, crashes included."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import forked
import pytest

from horolog.admin.client import AdminClient
from horolog.server.open_broker import open_meta
from horolog.storage.disk import Disk
from horolog.testing.broker import BrokerProcess, installed_command

pytestmark = pytest.mark.process

SEGMENT = 1 << 20


def horolog(*arguments: str, admin: str = "") -> subprocess.CompletedProcess[str]:
    return forked.run(
        [*installed_command(), *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, **({"HOROLOG_ADMIN": admin} if admin else {})},
    )


def said(ended: subprocess.CompletedProcess[str]) -> str:
    assert ended.returncode == 0, ended.stderr + ended.stdout
    return ended.stdout


def small_segments(data_dir: Path) -> Path:
    """A new data directory whose log has segments of 1 MiB, so that some are sealed soon."""
    data_dir.mkdir()
    open_meta(Disk(data_dir), "simulated", SEGMENT)
    return data_dir


def schedule(admin: AdminClient, name: str, count: int, *, size: int, in_ms: int) -> None:
    for i in range(count):
        body = f"{name}-{i} ".ljust(size, "x")
        admin.post("/v1/messages", {"topic": "t", "body": body, "in_ms": in_ms + 1_000 * i})


def pending(admin: AdminClient) -> list[tuple[int, str, int]]:
    listed = admin.get("/v1/pending/messages", {"limit": 1_000})["messages"]
    return [(row["deliver_at_ms"], row["message_id"], row["origin"]) for row in listed]


def stored(backup: Path) -> dict[str, dict[str, Any]]:
    files = json.loads((backup / "manifest.json").read_text())["files"]
    return {file["path"]: file for file in files}


def test_a_session(tmp_path: Path) -> None:
    """Serve, send, back up, send more, back up again, kill, restore elsewhere, serve: pending is equal."""
    backup, copy = tmp_path / "backup", tmp_path / "copy"
    with BrokerProcess(small_segments(tmp_path / "data")) as broker:
        broker.create_topic("t")
        schedule(broker.admin, "a", 40, size=50_000, in_ms=60_000)
        schedule(broker.admin, "later", 5, size=100, in_ms=9 * 3_600_000)
        first = said(horolog("backup", str(backup), admin=broker.admin_url))
        assert first.startswith(f"backup 1 into {backup}: ")
        before = stored(backup)
        sealed = {
            path: (backup / "000001" / path).stat()
            for path, file in before.items()
            if path.endswith(".log") and file["bytes"] == SEGMENT
        }
        assert sealed
        schedule(broker.admin, "b", 40, size=50_000, in_ms=300_000)
        broker.advance("70s")
        result = json.loads(said(horolog("backup", str(backup), "--json", admin=broker.admin_url)))
        assert (result["state"], result["number"]) == ("done", 2)
        assert 0 < result["copied_bytes"] < result["bytes"]
        after = stored(backup)
        for path, node in sealed.items():
            assert after[path] == before[path]
            now = (backup / "000001" / path).stat()
            assert (now.st_ino, now.st_mtime_ns) == (node.st_ino, node.st_mtime_ns)
        waits = pending(broker.admin)
        refused = horolog("verify", str(broker.data_dir))
        assert refused.returncode == 4
        assert "is in use by process" in refused.stderr
        broker.kill()
    assert "clean" in said(horolog("verify", str(tmp_path / "data")))
    assert said(horolog("restore", str(backup), "--data-dir", str(copy))).startswith("restored")
    verdict = json.loads(said(horolog("verify", str(copy), "--json")))
    assert verdict["clean"]
    assert verdict["log_end"] == result["position"]
    assert verdict["findings"] == verdict["notes"] == []
    with BrokerProcess(copy) as restored:
        assert pending(restored.admin) == waits
        restored.advance("10h")
        assert restored.pending() == 0
        assert restored.stop() == 0
    assert "clean" in said(horolog("verify", str(copy)))


def test_killed_in_the_middle_of_a_backup(tmp_path: Path) -> None:
    """The backup before it restores; the next one is whole."""
    backup = tmp_path / "backup"
    with BrokerProcess(small_segments(tmp_path / "data")) as broker:
        broker.create_topic("t")
        schedule(broker.admin, "a", 100, size=200_000, in_ms=60_000)
        said(horolog("backup", str(backup), admin=broker.admin_url))
        waits = pending(broker.admin)
        schedule(broker.admin, "b", 5, size=200_000, in_ms=60_000)
        broker.admin.post("/v1/backup", {"directory": str(backup), "full": True})
        while (view := broker.admin.get("/v1/backup"))["bytes_done"] == 0:
            assert view["state"] == "running"
        broker.kill()
        assert json.loads((backup / "manifest.json").read_text())["number"] == 1
        said(horolog("restore", str(backup), "--data-dir", str(tmp_path / "copy")))
        assert "clean" in said(horolog("verify", str(tmp_path / "copy")))
        with BrokerProcess(tmp_path / "copy") as restored:
            assert pending(restored.admin) == waits
        broker.restart()
        said(horolog("backup", str(backup), admin=broker.admin_url))
        assert not (backup / "000003").exists()
        assert broker.stop() == 0
    said(horolog("restore", str(backup), "--data-dir", str(tmp_path / "again")))
    assert "clean" in said(horolog("verify", str(tmp_path / "again")))


def test_refusals(tmp_path: Path) -> None:
    """One sentence that names what was typed, and the exit code of its kind."""
    with BrokerProcess(tmp_path / "data") as broker:
        inside = horolog("backup", str(tmp_path / "data" / "b"), admin=broker.admin_url)
        assert inside.returncode == 4
        assert inside.stderr.startswith("horolog: DIR: ")
        said(horolog("backup", str(tmp_path / "backup"), admin=broker.admin_url))
    nowhere = horolog("backup", str(tmp_path / "b"), admin="http://127.0.0.1:1")
    assert nowhere.returncode == 5
    none = horolog("restore", str(tmp_path), "--data-dir", str(tmp_path / "x"))
    assert (none.returncode, none.stderr[:17]) == (3, "horolog: BACKUP: ")
    assert not (tmp_path / "x").exists()
    full = horolog("restore", str(tmp_path / "backup"), "--data-dir", str(tmp_path / "data"))
    assert full.returncode == 4
    assert "--data-dir" in full.stderr
    checkpoint = next((tmp_path / "backup").rglob("*.ckpt"))
    content = bytearray(checkpoint.read_bytes())
    content[100] ^= 4
    checkpoint.write_bytes(content)
    rotten = horolog("restore", str(tmp_path / "backup"), "--data-dir", str(tmp_path / "x"))
    assert rotten.returncode == 1
    assert checkpoint.name in rotten.stderr
    assert "--accept-damage" in rotten.stderr
    assert not list((tmp_path / "x").glob("[!l]*")), "nothing but its lock is left"
    accepted = horolog(
        "restore", str(tmp_path / "backup"), "--data-dir", str(tmp_path / "x"), "--accept-damage"
    )
    assert accepted.returncode == 6
    assert checkpoint.name in accepted.stderr
    with BrokerProcess(tmp_path / "x") as restored:
        assert restored.admin.get("/v1/broker")["problems"] == []
    nothing = horolog("verify", str(tmp_path))
    assert nothing.returncode == 3
    log = tmp_path / "data" / "shard-00" / "log" / f"{0:020d}.log"
    with log.open("r+b") as file:
        file.seek(10)
        file.write(b"!")
    found = horolog("verify", str(tmp_path / "data"))
    assert found.returncode == 1
    assert "shard-00/log/" in found.stdout
