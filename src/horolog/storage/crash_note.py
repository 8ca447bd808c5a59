"""The file `crash` of a data directory: Python's report on a process that a signal ended.

One such signal is SIGBUS.  The file is empty while a broker runs, and gone after it was stopped.
The next start reports how the last process ended, and keeps the text, which has the current line of
each thread, as `crash.last`.
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
        """Watch this process; return the first line of the last process's note, "" if none.

        A disk that refuses the note does not prevent the start.
        """
        said = ""
        with contextlib.suppress(OSError):
            if self._path.is_file():
                said = self._path.read_text(errors="replace").strip()
            else:
                self._path.unlink(missing_ok=True)  # such as a FIFO, which would wait for a reader
            if said:
                self._path.replace(self._last)
            self._file = self._path.open("wb")
            faulthandler.enable(self._file)
        return said.partition("\n")[0]

    def end(self) -> None:
        """Remove the note: the process ends without a signal."""
        if self._file is None:
            return
        faulthandler.disable()
        self._file.close()
        self._file = None
        with contextlib.suppress(OSError):
            self._path.unlink()
