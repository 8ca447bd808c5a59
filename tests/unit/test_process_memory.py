"""Memory that answers took goes back to the system."""

from __future__ import annotations

import subprocess
import sys

HELD = """
from pathlib import Path
from horolog.server.memory import give_back_large_blocks

def megabytes():
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 >> 20

give_back_large_blocks()
for _ in range(3):
    bytes(30 << 20)  # glibc learns that large blocks come and go
before = megabytes()
answers, small = [], []
for i in range(30):
    answers.append(b"x" * (6 << 20))
    small += [bytes(700) for _ in range(100)]
during = megabytes()
answers.clear()
print(during - before, megabytes() - before)
"""


def test_large_blocks_go_back_to_the_system_when_they_are_freed() -> None:
    command = [sys.executable, "-c", HELD]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    during, after = (int(word) for word in done.stdout.split())  # MiB more than before
    assert during >= 100
    assert after <= 10
