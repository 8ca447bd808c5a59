"""The file `crash` of a data directory: what Python says when a signal ends the process, such as SIGBUS.

It is empty while a broker runs, and gone after it was stopped.  The next start says how the last process ended, and keeps
the text, which has the line that each thread was in, as `crash.last`.
"""

from __future__ import annotations

import contextlib
import faulthandler
from pathlib import Path
from typing import IO

NAME, LAST_NAME = "crash", "crash.last"
BUS_ERROR = "Bus error"  # a mapped file could not be read


class CrashNote:
    """The note of one process; the directory must be locked."""

    def __init__(self, data_dir: Path) -> None:
        self._path = data_dir / NAME
        self._last = data_dir / LAST_NAME
        self._file: IO[bytes] | None = None

    def begin(self) -> str:
        """Watch this process; gives the first line of what the last one left, "" if nothing.

        A disk that takes no note is no reason not to start.
        """
        said = ""
        with contextlib.suppress(OSError):
            if self._path.exists():
                said = self._path.read_text(errors="replace").strip()
            if said:
                self._path.replace(self._last)
            self._file = self._path.open("wb")
            faulthandler.enable(self._file)
        return said.partition("\n")[0]

    def end(self) -> None:
        """The process ends by itself."""
        if self._file is None:
            return
        faulthandler.disable()
        self._file.close()
        self._file = None
        with contextlib.suppress(OSError):
            self._path.unlink()
