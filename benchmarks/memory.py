"""Memory of a process, as the kernel counts it."""

from __future__ import annotations

from pathlib import Path


def memory_mb(pid: int, kind: str = "RssAnon") -> float:
    """Return the anonymous memory of a process; `VmRSS`: with the pages of files."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(f"{kind}:")).split()[1]) / 1024
