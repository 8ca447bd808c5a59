"""File descriptors of the process: connections cannot take those that the broker's files need.

The soft limit (RLIMIT_NOFILE) is kept below the hard one.  Libraries accept connections until the
soft limit is reached; code that must not fail raises the limit while it opens a file.  The kernel
assigns the lowest free number, so a connection takes a descriptor of the reserve only if it arrives
in that moment.

Where `Reserve.keep` was not called, in a command or a test, no limit is raised and no reserve kept.
"""

from __future__ import annotations

import errno
import os
import resource
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

from horolog.errors import ErrorCode, refused
from horolog.limits import (
    FILES_MIN,
    FILES_RESERVE_MAX,
    FILES_RESERVE_MIN,
    QUEUE_FILES_OPEN_MAX,
    RUNS_OPEN_MAX,
)

_Result = TypeVar("_Result")
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE})
_LEAST = 8  # connections, however few descriptors there are
_INFINITE = 1 << 20  # Linux's usual maximum


def reserve_of(hard: int) -> int:
    """Return how many descriptors connections must leave: a quarter, within bounds."""
    return min(max(hard // 4, FILES_RESERVE_MIN), FILES_RESERVE_MAX, hard // 2)


def hard_limit() -> int:
    """Return how many descriptors the process may have at all."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return _INFINITE if hard == resource.RLIM_INFINITY else hard


def check_hard_limit() -> None:
    """Raise TOO_MANY_FILES unless the process may open enough files for a broker."""
    hard = hard_limit()
    if hard < FILES_MIN:
        raise refused(
            "ulimit -n",
            f"this process may open {hard} files, and a broker needs {FILES_MIN}: raise the hard "
            "limit (ulimit -Hn, LimitNOFILE= of a unit)",
            str(FILES_MIN),
            code=ErrorCode.TOO_MANY_FILES,
        )


def room_for(connections: int) -> int:
    """Return how many of `connections` have room beside the reserve and what is open now."""
    hard = hard_limit()
    in_use = len(os.listdir("/dev/fd"))
    return max(_LEAST, min(connections, hard - reserve_of(hard) - in_use - FILES_RESERVE_MIN // 2))


def queue_files_max() -> int:
    """Return how many consume queues may have a file open at a time: half of the reserve."""
    return min(reserve_of(hard_limit()) // 2, QUEUE_FILES_OPEN_MAX)


def runs_open_max() -> int:
    """Return how many run files may be mapped at a time: a quarter of the reserve."""
    return min(reserve_of(hard_limit()) // 4, RUNS_OPEN_MAX)


def give_up_output() -> None:
    """Redirect stdout to /dev/null: writing the rest of it at exit would fail again."""
    if sys.stdout is not None:
        with suppress(OSError, ValueError):  # stdout has no file
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class Reserve:
    """The reserve of a process; there is one, `RESERVE`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._soft = 0  # the limit while no file is being opened; 0: there is no reserve
        self._opening = 0  # how many files are being opened out of the reserve

    def keep(self, connections: int) -> int:
        """Limit connections to about `connections` descriptors from now on; return the soft limit.

        The soft limit is lower where the hard limit demands it: the reserve is kept in any case.
        What the broker's own files may take comes on top: a soft limit below what is open would
        leave no room for any connection.
        """
        hard = hard_limit()
        in_use = len(os.listdir("/dev/fd"))
        with self._lock:
            kept = reserve_of(hard)
            self._soft = min(hard - kept, in_use + kept + connections)
            self._set_limit(self._soft)
            return self._soft

    def give_up(self) -> None:
        """Give up the reserve: connections may use all descriptors again."""
        with self._lock:
            self._soft = 0
            self._set_limit(hard_limit())

    def use(self, opening: Callable[[], _Result]) -> _Result:
        """Call `opening`, if need be with the reserve; OSError if that is used up as well."""
        try:
            return opening()
        except OSError as error:
            if error.errno not in _EXHAUSTED or not self._soft:
                raise
        with self._raised():
            return opening()

    @contextmanager
    def _raised(self) -> Iterator[None]:
        with self._lock:
            self._opening += 1
            self._set_limit(hard_limit())
        try:
            yield
        finally:
            with self._lock:
                self._opening -= 1
                if not self._opening and self._soft:
                    self._set_limit(self._soft)

    @staticmethod
    def _set_limit(soft: int) -> None:
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        # The hard limit may have been lowered since the start (prlimit).
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, hard_limit()), hard))


RESERVE = Reserve()
with_reserve = RESERVE.use
