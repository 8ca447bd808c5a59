"""Write log lines to stderr in a thread, so that a stderr that is not read cannot block the broker.

    emit ─> lines that wait, LOG_WAITING_BYTES_MAX at most ─> thread ─> stderr

A caller that logs waits until its line is written, so that the line is out before whatever the
process does next.  It does not wait for a reader that has stopped: after `_LINE_S` no caller waits
any more until a write ends.  Lines without room are then dropped, and their count is written once
there is room.
"""

from __future__ import annotations

import logging
import os
import select
import threading
from contextlib import suppress
from typing import TextIO

from horolog.limits import LOG_WAITING_BYTES_MAX
from horolog.server.threads import threads_wanted

_LINE_S = 0.05  # that one line may hold up the caller that logs it
_FLUSH_S = 1.0  # that unread lines may hold up the end of the process


class LineWriter(logging.Handler):
    """Formats records in the caller's thread, and writes them in a daemon thread.

    `logging.shutdown`, which runs at the end of the process, calls `flush`.

    stream  stderr.  Lines go to its file descriptor, not to the stream, whose lock would keep the
            process from ending while a write is stuck; None: there is no stderr to write to
    """

    def __init__(self, stream: TextIO | None) -> None:
        super().__init__()
        self._stream = stream
        self._file: int | None = None
        if stream is not None:
            with suppress(OSError, ValueError):  # a stream in memory has no file
                self._file = stream.fileno()
        self._encoding = getattr(stream, "encoding", None) or "utf-8"
        self._lines: list[bytes] = []
        self._waiting = 0  # bytes of lines that are not written
        self._dropped = 0  # lines, since the last line that gave their count
        self._is_stuck = False
        self._thread = threading.Thread(target=self._run, name="horolog-log-writer", daemon=True)
        with threads_wanted():
            self._thread.start()

    def createLock(self) -> None:  # noqa: N802 - of `logging.Handler`
        """Make one reentrant lock for lines and handler: a destructor can log at any point."""
        super().createLock()
        self._changed = threading.Condition(self.lock)

    def emit(self, record: logging.LogRecord) -> None:
        """Queue a line; return when it is written or dropped, after `_LINE_S` at the latest."""
        try:
            line = self._line(record)
        except Exception:  # noqa: BLE001 - as every handler
            self.handleError(record)
            return
        with self._changed:
            if self._waiting and self._waiting + len(line) > LOG_WAITING_BYTES_MAX:
                self._dropped += 1
                return
            self._put(line)
            if not self._is_stuck and threading.current_thread() is not self._thread:
                self._is_stuck = not self._changed.wait_for(self._is_done, _LINE_S)

    def flush(self) -> None:
        """Return when all lines are written, or after `_FLUSH_S`."""
        with self._changed:
            self._changed.wait_for(self._is_done, _FLUSH_S)

    def _is_done(self) -> bool:
        return self._waiting == 0

    def _line(self, record: logging.LogRecord) -> bytes:
        return (self.format(record) + "\n").encode(self._encoding, "backslashreplace")

    def _put(self, line: bytes) -> None:
        self._lines.append(line)
        self._waiting += len(line)
        self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._lines)
                content, self._lines = b"".join(self._lines), []
            self._write(content)
            with self._changed:
                self._waiting -= len(content)
                assert self._waiting >= 0, self._waiting
                self._is_stuck = False
                if self._dropped:
                    self._put(self._about_dropped())
                self._changed.notify_all()

    def _about_dropped(self) -> bytes:
        count, self._dropped = self._dropped, 0
        text = "stderr was not read, and lines were dropped lines=%d"
        return self._line(
            logging.LogRecord("horolog.server", logging.WARNING, __file__, 0, text, (count,), None)
        )

    def _write(self, content: bytes) -> None:
        """Write all content; drop it if the reader of stderr has gone or a disk is full."""
        if self._stream is None:
            return
        with suppress(OSError, ValueError):
            if self._file is None:
                self._stream.write(content.decode(self._encoding))
            else:
                _write_all(self._file, content)


def _write_all(file: int, content: bytes) -> None:
    while content:
        try:
            content = content[os.write(file, content) :]
        except BlockingIOError:  # the parent process made stderr non-blocking
            room = select.poll()
            room.register(file, select.POLLOUT)
            room.poll()
