"""What a job keeps between its steps is gone when it ends, and when it was killed with the next one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from horolog.spark.work_directory import work_directory

JOB = """
import sys
from pathlib import Path
from horolog.spark.work_directory import work_directory
with work_directory("audit", Path(sys.argv[1])) as work:
    (work / "keys").mkdir()
    print(work, flush=True)
    sys.stdin.read()
"""


TASK = """
import sys
from horolog.spark.staging_folder import StagingFolder
from horolog.spark.transaction import Transaction
transaction = Transaction("", "app", 0, "", "", False, None, 0)
with StagingFolder(transaction, is_shared=False) as folder:
    (folder.path / "p0.run").touch()
    print(folder.path, flush=True)
    sys.stdin.read()
"""


def test_a_task_that_uploads_removes_what_a_killed_one_has_left(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    left = []
    for _ in range(2):
        command = [sys.executable, "-c", TASK]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as task:
            assert task.stdout is not None
            left.append(Path(task.stdout.readline().strip()))
            assert list(tmp_path.iterdir()) == [left[-1]]
            task.kill()
            task.wait()
            assert (left[-1] / "p0.run").is_file()
    assert left[0] != left[1]


def test_a_job_removes_what_dead_ones_have_left_and_nothing_else(tmp_path) -> None:
    """Not what a living one has, another job's, or what has no lock and may get one."""
    command = [sys.executable, "-c", JOB, str(tmp_path)]
    others = [tmp_path / "horolog-audit-young", tmp_path / "horolog-forecast-x", tmp_path / "mine"]
    for other in others:
        other.mkdir()
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as job,
        work_directory("audit", tmp_path) as living,
    ):
        assert job.stdout is not None
        left = Path(job.stdout.readline().strip())
        job.kill()
        job.wait()
        assert (left / "keys").is_dir()
        with work_directory("audit", tmp_path) as work:
            assert sorted(tmp_path.iterdir()) == sorted([*others, living, work])
    assert sorted(tmp_path.iterdir()) == sorted(others)
