"""Proof that driver and executors see one directory: one writes a token, the others read it.

A file that a task writes on a local disk looks written: the query ends well, its checkpoint moves
on, and the rows are on a machine where they are not looked for.  So before one process writes what
another reads, both directions are proved with a random token:

    place.check()    in a task, before it writes: the driver's token is there
    check_written()  on the driver, before it commits: files that tasks report are there in full
    prove_shared()   before a job whose files Spark itself writes: both ways, on every executor
"""

from __future__ import annotations

import socket
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from horolog.errors import ErrorCode, HorologError, refused
from horolog.spark.packages import need_jvm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOKENS = "_horolog"  # Spark and Delta ignore names that begin with an underscore
_ROUNDS = 5  # most rounds of tasks, until every executor has had one
_LEFT_S = 86_400.0  # older tokens are of drivers that were killed


class SharedPlace(NamedTuple):
    """A directory in which the driver has put a token; plain values, which are sent to the tasks.

    what  the option that named the directory
    """

    path: str
    what: str
    name: str
    token: str

    def check(self) -> None:
        """Raise CONFIG, in a task, unless the driver's token is in the directory."""
        if not self._is_here():
            raise _apart(self.what, self.path, f"{_host()} does not see what the driver wrote")

    def _is_here(self) -> bool:
        try:
            return Path(self.path, TOKENS, self.name).read_text(encoding="ascii") == self.token
        except OSError:
            return False

    def answers(self, same: Mapping[str, bytes], tasks: Iterable[int]) -> Iterator[tuple[str, str]]:
        """Check the directory in a task, and write the files that the driver looks for.

        Yields (executor, what is wrong).
        same  files that must be here with this content
        """
        for task in tasks:
            wrong = ""
            if not self._is_here():
                wrong = f"{_host()} does not see what the driver wrote"
            else:
                try:
                    self.answer(task).write_text(self.token, encoding="ascii")
                except OSError as error:
                    wrong = f"{_host()} cannot write there ({error.strerror})"
            for path, content in same.items():
                if not wrong and not _has(path, content):
                    wrong = f"{_host()} sees another {path}, or none"
            yield f"{_host()}:{Path.cwd()}", wrong

    def answer(self, task: int) -> Path:
        """Return the path of the file that a task writes."""
        return Path(self.path, TOKENS, f"{self.name}.{task}")


@contextmanager
def shared_place(path: str, what: str) -> Iterator[SharedPlace]:
    """Make the directory on the driver if it is missing, and keep a token in it meanwhile."""
    folder = Path(path, TOKENS)
    place = SharedPlace(path, what, uuid.uuid4().hex, uuid.uuid4().hex)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / place.name).write_text(place.token, encoding="ascii")
    except OSError as error:
        raise refused(
            what, f"{path} cannot be used ({error.strerror})", code=ErrorCode.CONFIG
        ) from error
    try:
        yield place
    finally:
        _clean(folder, place.name)


def check_written(path: str, what: str, files: Iterable[tuple[str, int]]) -> None:
    """Raise CONFIG, on the driver, unless each file (name in the directory, bytes) is there."""
    for name, size in files:
        try:
            found = Path(path, name).stat().st_size
        except OSError:
            raise _apart(
                what, path, f"the driver does not see {name}, which a task wrote"
            ) from None
        if found != size:
            raise _apart(
                what, path, f"a task wrote {size} bytes of {name}, and the driver sees {found}"
            )


def prove_shared(
    session: SparkSession, path: str, what: str, same: Mapping[str, bytes] | None = None
) -> None:
    """Run tasks until every executor has had one; CONFIG if one of them sees another disk.

    same  files that all must see with this content, for a directory that is only read
    """
    need_jvm(session, "this job")
    context = session.sparkContext
    known = {str(name): content for name, content in (same or {}).items()}
    executors = max(1, int(context._jsc.sc().getExecutorMemoryStatus().size()) - 1)
    count = max(context.defaultParallelism, 2 * executors)
    seen: set[str] = set()
    for _ in range(_ROUNDS):
        with shared_place(path, what) as place:

            def task(tasks: Iterable[int], place: SharedPlace = place) -> Iterator[tuple[str, str]]:
                return place.answers(known, tasks)

            answers = context.parallelize(range(count), count).mapPartitions(task).collect()
            wrong = [why for _, why in answers if why]
            if wrong:
                raise _apart(what, path, wrong[0])
            for number in range(count):
                if not place.answer(number).is_file():
                    raise _apart(what, path, "the driver does not see what a task wrote")
        seen |= {executor for executor, _ in answers}
        if len(seen) >= executors:
            return


def _clean(folder: Path, name: str) -> None:
    """Remove the tokens of this place, and old tokens of drivers that were killed."""
    with suppress(OSError):
        for file in folder.iterdir():
            if file.name.startswith(name) or time.time() - file.stat().st_mtime > _LEFT_S:
                file.unlink(missing_ok=True)
        folder.rmdir()  # fails when another driver uses the directory


def _has(path: str, content: bytes) -> bool:
    try:
        return Path(path).read_bytes() == content
    except OSError:
        return False


def _host() -> str:
    return socket.gethostname()


def _apart(what: str, path: str, why: str) -> HorologError:
    return refused(
        what,
        f"{path} is not one directory for driver and executors: {why}; it must be on a disk that "
        "all share",
        code=ErrorCode.CONFIG,
    )
