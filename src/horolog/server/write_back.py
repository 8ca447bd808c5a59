"""Begin to write files to the disk early, before a checkpoint syncs them.

Entries filed since the last checkpoint, 64 MiB under load, otherwise go to the disk when the
checkpoint syncs them.  A sync of the log in that time waits for all of it: 15 to 30 ms on a disk
where it takes 0.3 ms otherwise.
"""

from __future__ import annotations

import logging

from horolog.delay.store import DelayStore
from horolog.errors import HorologError
from horolog.limits import KIB, MIB
from horolog.server.jobs import Jobs
from horolog.storage.api import Storage

_log = logging.getLogger("horolog")
_EVERY_BYTES = 4 * MIB  # of the log, between two checks
_PIECE_BYTES = 256 * KIB  # of a file; a smaller piece costs more than it gains
_PAGE = 4 * KIB  # a page that is not full yet would be written twice


class WriteBack:
    """Has the system write files of near hours and far buffers whenever the log has grown by 4 MiB.

    jobs  the thread that asks the system, which may make the caller wait for the disk
    """

    def __init__(self, delay: DelayStore, storage: Storage, jobs: Jobs) -> None:
        self._delay = delay
        self._storage = storage
        self._jobs = jobs
        self._is_busy = False
        self._last_end = 0  # log position at the last check
        self._begun: dict[str, int] = {}  # bytes begun, by path; only files with new bytes

    def begin_if_due(self, log_end: int) -> None:
        """Begin to write the bytes of large additions; the loop calls this after each turn."""
        if log_end - self._last_end < _EVERY_BYTES or self._is_busy:
            return
        self._last_end = log_end
        former, self._begun = self._begun, {}
        pieces = []
        for path, size in self._delay.unsynced():
            first, stop = former.get(path, 0), size - size % _PAGE
            if stop - first >= _PIECE_BYTES:
                pieces.append((path, first, stop - first))
                first = stop
            self._begun[path] = first
        if pieces:
            self._is_busy = True
            self._jobs.submit(lambda: self._begin(pieces), self._done)

    def _begin(self, pieces: list[tuple[str, int, int]]) -> None:
        for path, first, length in pieces:
            try:
                file = self._storage.open(path)
            except FileNotFoundError:
                continue  # its hour has ended meanwhile
            try:
                file.begin_write_back(first, length)
            finally:
                file.close()

    def _done(self, error: BaseException | None) -> None:
        self._is_busy = False
        if isinstance(error, HorologError):
            _log.debug("write-back not begun: %s", error)  # the checkpoint reports the problem
        elif error is not None:
            raise error
