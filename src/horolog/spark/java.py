"""Search for a Java that Spark can use, with one sentence when there is none."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from horolog.errors import ErrorCode, HorologError

JAVA_MIN = 17  # the minimum of Spark 4
_PLACES = (
    "/usr/lib/jvm/*",
    "/usr/java/*",
    "/opt/java/*",
    "/opt/*jdk*",
    "/opt/homebrew/opt/openjdk*",
)
_VERSION = re.compile(r'version "(\d+)')
_TIMEOUT_S = 20.0


def find_java() -> Path:
    """Return the home directory of a Java ≥ 17.

    Look in JAVA_HOME, then at `java` on the PATH, then in the usual places.
    Errors: JAVA_MISSING when there is none.
    """
    seen: set[Path] = set()
    old: list[str] = []
    for home in _candidates():
        if home in seen:
            continue
        seen.add(home)
        version = java_version(home / "bin" / "java")
        if version >= JAVA_MIN:
            return home
        if version:
            old.append(f"{home} is Java {version}")
    found = f"; {', '.join(old)}" if old else ""
    raise HorologError(
        ErrorCode.JAVA_MISSING,
        f"Spark needs Java {JAVA_MIN} or newer and none was found{found}; install one (for "
        f"example: apt-get install openjdk-{JAVA_MIN}-jre-headless) or set JAVA_HOME",
        field="JAVA_HOME",
        limit=f"Java {JAVA_MIN}",
    )


def java_version(java: Path) -> int:
    """Return the major version of a `java`; 0 if it does not exist or does not say."""
    if not java.is_file():
        return 0
    try:
        done = subprocess.run(  # noqa: S603 - the user's own Java
            [str(java), "-version"], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = _VERSION.search(done.stderr + done.stdout)
    return int(found[1]) if found else 0


def _candidates() -> Iterator[Path]:
    home = os.environ.get("JAVA_HOME")
    if home:
        yield Path(home)
    java = shutil.which("java")
    if java:
        yield Path(java).resolve().parent.parent
    for pattern in _PLACES:
        root, _, glob = pattern.partition("*")
        folder = Path(root).parent if not root.endswith("/") else Path(root)
        name = pattern[len(str(folder)) + 1 :]
        if glob is not None and folder.is_dir():
            for each in sorted(folder.glob(name), reverse=True):
                yield each
                yield each / "Contents" / "Home"
