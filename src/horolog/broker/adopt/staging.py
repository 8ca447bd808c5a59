"""Staging directories of adoptions: begin, find, end and sweep them.

    staging/<token>/begin.json          app, version, topic, and when it was begun
    staging/<token>/<name>.run          of the loading program; adopted by name only, never listed
    staging/<token>.ended               on its way to be removed
    runs/adopted.<stamp>.<number>.run   moved by a commit, in the order of its manifest
                                        (`staged_files`)

This is file work for a thread; it touches no live state.

A commit that is cut off between the moves and its record is sent again: then a file is found in
either place.  A start removes moved files that no adoption names once their staging directory is
gone too, which is when the transaction is aborted, is committed, or is left: it was begun
STAGING_TTL_MS ago by the broker's clock, and for as long nothing was written to its directory.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import NamedTuple

import orjson

from horolog.delay.far.adopted import is_adopted_name, stamp_of
from horolog.errors import NO_ROOM, ErrorCode, HorologError, refused
from horolog.limits import CONTROL_RESERVE_BYTES, STAGING_TTL_MS
from horolog.storage.api import Storage, read_file, replace_file

BEGUN = "begin.json"
_NAME = re.compile(r"[A-Za-z0-9._-]{1,116}\.run")
_TOKEN = re.compile(r"[0-9a-f]{16}")
_ENDED = ".ended"


class Begun(NamedTuple):
    """A transaction that was begun."""

    token: str
    app: str
    version: int
    topic: str
    begun_ms: int

    @property
    def stamp(self) -> str:
        """The part that is unique in file names in `runs`.

        A token alone is not: it may be used again, once its transaction is forgotten.
        """
        return f"{self.token}-{self.begun_ms:x}"


class ShardFiles(NamedTuple):
    """A shard's files, and the log to which runs must belong."""

    storage: Storage
    directory: str  # of the shard
    log_id: int

    @property
    def stagings(self) -> str:
        """The directory of the staging directories."""
        return f"{self.directory}/staging"

    def staging(self, token: str) -> str:
        """Return the directory of one transaction."""
        return f"{self.stagings}/{token}"

    @property
    def runs(self) -> str:
        """The directory of the runs."""
        return f"{self.directory}/runs"


def check_room(storage: Storage, count: int = 0) -> None:
    """Raise DISK_FULL unless `count` bytes fit beside what the broker keeps free."""
    free = storage.free_bytes()
    if free < CONTROL_RESERVE_BYTES + count:
        raise refused(
            "disk",
            f"{free} bytes are free, {CONTROL_RESERVE_BYTES} are kept in reserve",
            f"{CONTROL_RESERVE_BYTES} bytes",
            code=ErrorCode.DISK_FULL,
        )


def check_name(name: str, field: str = "name") -> str:
    """Return a file name that may be staged; raise BAD_REQUEST for any other."""
    if not _NAME.fullmatch(name):
        what = "letters, digits, dot, underscore and hyphen, ending with .run, up to 120"
        raise refused(field, f"{name[:140]!r} is not a name of a staged file ({what})", what)
    return name


def begin(place: ShardFiles, begun: Begun) -> None:
    """Make the staging directory of a transaction."""
    directory = place.staging(begun.token)
    place.storage.make_dir(directory)
    replace_file(place.storage, directory, BEGUN, orjson.dumps(begun._asdict()))
    place.storage.sync_dir(place.stagings)


def find(place: ShardFiles, token: str) -> Begun:
    """Return a transaction that was begun, by this process or an earlier one; raise NOT_FOUND."""
    try:
        if _TOKEN.fullmatch(token):
            path = f"{place.staging(token)}/{BEGUN}"
            return Begun(**orjson.loads(read_file(place.storage, path)))
    except (FileNotFoundError, orjson.JSONDecodeError, TypeError):
        pass
    raise refused(
        "token",
        f"there is no transaction {token[:40]!r}; it was never begun, has ended, or was swept",
        code=ErrorCode.NOT_FOUND,
    )


def end(place: ShardFiles, token: str) -> None:
    """Remove a staging directory and its files, though tasks may still be writing some."""
    directory = place.staging(token)
    ended = f"{directory}{_ENDED}"
    place.storage.remove_dir(ended)  # left by a process that was killed
    if place.storage.exists(directory):
        # By its old name no task finds the directory: none makes a file while it is removed.
        place.storage.rename(directory, ended)
        place.storage.remove_dir(ended)


def undo(place: ShardFiles, begun: Begun) -> None:
    """Remove all files that a transaction has staged and moved; only if no adoption names them."""
    for name in place.storage.list(place.runs):
        if is_adopted_name(name) and stamp_of(name) == begun.stamp:
            place.storage.remove(f"{place.runs}/{name}")
    end(place, begun.token)


def sweep_staging(
    place: ShardFiles,
    now_ms: int,
    is_committed: Callable[[str, int], bool] = lambda app, version: False,
    keep: Collection[str] = (),
) -> list[str]:
    """Remove staging directories of committed or abandoned transactions.

    Directories of tokens in `keep` stay.  Return the tokens of the removed ones.
    """
    gone = []
    for token in place.storage.list(place.stagings):
        if token.removesuffix(_ENDED) in keep:
            continue
        if token.endswith(_ENDED):
            place.storage.remove_dir(place.staging(token))
            continue
        begun: Begun | None = None
        try:
            begun = find(place, token)
        except HorologError as error:
            if error.code in NO_ROOM:
                continue  # it could not be read
        # Nothing says of what transaction a directory is whose `begin.json` cannot be read.
        is_old = begun is None or now_ms - begun.begun_ms >= STAGING_TTL_MS
        is_done = begun is not None and is_committed(begun.app, begun.version)
        if is_done or (is_old and _is_idle(place, token)):
            end(place, token)
            gone.append(token)
    return gone


def _is_idle(place: ShardFiles, token: str) -> bool:
    """Return whether nothing was written to a staging directory, or moved from it, for the TTL.

    A load may run for days, and its tasks may write files without a word to the broker.
    """
    directory, storage = place.staging(token), place.storage
    paths = [directory, *(f"{directory}/{name}" for name in storage.list(directory))]
    return all(storage.idle_ms(path) >= STAGING_TTL_MS for path in paths)


def sweep_moved(place: ShardFiles, named: set[str]) -> None:
    """Remove adopted runs that nothing names, at a start.

    Runs whose transaction may still be committed stay.
    """
    staged, unreadable = set(), set()
    for token in place.storage.list(place.stagings):
        try:
            staged.add(find(place, token).stamp)
        except HorologError:
            unreadable.add(token)
    for name in place.storage.list(place.runs):
        if not is_adopted_name(name) or name in named:
            continue
        stamp = stamp_of(name)
        if stamp not in staged and stamp.partition("-")[0] not in unreadable:
            place.storage.remove(f"{place.runs}/{name}")
