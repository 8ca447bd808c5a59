"""Staged files of adoptions: check, read or move them into `runs`.

    staging/<token>/begin.json          app, version, topic, and when it was begun
    staging/<token>/<name>.run          of the loading program; adopted by name only, never listed
    staging/<token>.ended               on its way to be removed
    runs/adopted.<stamp>.<number>.run   moved by a commit, in the order of its manifest

This is file work for a thread; it touches no live state.

A commit that is cut off between the moves and its record is sent again: then a file is found in
either place.  A start removes moved files that no adoption names once their staging directory is
gone too, which is when the transaction is aborted, is committed, or is left: it was begun
STAGING_TTL_MS ago by the broker's clock, and for as long nothing was written to its directory.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import orjson
from zlib_ng.zlib_ng import crc32

from horolog.delay.entry import is_readable, record_crcs
from horolog.delay.far.adopted import (
    AdoptedRun,
    Provenance,
    adopted_name,
    is_adopted_name,
    stamp_of,
)
from horolog.delay.run.format import FOOTER_BYTES
from horolog.delay.run.reader import Run
from horolog.errors import NO_ROOM, ErrorCode, HorologError, refused
from horolog.limits import ADOPTION_FILES_MAX, CONTROL_RESERVE_BYTES, HOUR_MS, STAGING_TTL_MS
from horolog.protocol.adoption_commands import FileRow
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


class Checked(NamedTuple):
    """Staged files that agree with their manifest, in its order."""

    begun: Begun
    files: list[FileRow]
    moved: list[bool]  # whether a file is in `runs` already
    soon_bytes: int  # of records due before `soon_ms`


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


# --- beginning and ending -------------------------------------------------------------------------


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
        try:
            begun = find(place, token)
        except HorologError as error:
            if error.code in NO_ROOM:
                continue  # it could not be read
            begun = Begun(token, "", -1, "", now_ms - STAGING_TTL_MS)
        left = now_ms - begun.begun_ms >= STAGING_TTL_MS and _is_idle(place, token)
        if left or is_committed(begun.app, begun.version):
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
    staged = set()
    for token in place.storage.list(place.stagings):
        with contextlib.suppress(HorologError):
            staged.add(find(place, token).stamp)
    for name in place.storage.list(place.runs):
        if is_adopted_name(name) and name not in named and stamp_of(name) not in staged:
            place.storage.remove(f"{place.runs}/{name}")


# --- checking -------------------------------------------------------------------------------------


def check(
    place: ShardFiles,
    begun: Begun,
    claims: Sequence[FileRow],
    topic: int,
    queues: int,
    soon_ms: int,
) -> Checked:
    """Compare staged files with their manifest, and make them durable.

    Each refusal names the field.

    topic, queues  which the rows must be of; whether each row is, is checked at its hand-over
    soon_ms        messages due before this count as due soon
    """
    if len(claims) > ADOPTION_FILES_MAX:
        raise refused(
            "files",
            f"{len(claims)} files; at most {ADOPTION_FILES_MAX} are allowed",
            f"{ADOPTION_FILES_MAX} files",
        )
    files, moved, soon = [], [], 0
    seen: set[str] = set()
    for number, claim in enumerate(claims):
        field = f"files.{number}"
        if check_name(claim.name, f"{field}.name") in seen:
            raise refused(f"{field}.name", f"{claim.name} is named twice")
        seen.add(claim.name)
        name = adopted_name(begun.stamp, number)
        stem = claim.name.removesuffix(".run")
        directory = place.staging(begun.token)
        is_moved = not place.storage.exists(f"{directory}/{claim.name}")
        if is_moved:
            directory, stem = place.runs, name
        run = _opened(place, directory, stem, claim, field)
        try:
            _check_run(run, claim, field, topic, queues)
            rows = run.directory
            soon += int(rows["bytes"][rows["hour"] < -(-soon_ms // HOUR_MS)].sum())
        finally:
            run.close()
        files.append(FileRow(name, *claim[1:]))
        moved.append(is_moved)
    return Checked(begun, files, moved, soon)


def _opened(place: ShardFiles, directory: str, stem: str, claim: FileRow, field: str) -> Run:
    try:
        file = place.storage.open(f"{directory}/{stem}.run")
    except FileNotFoundError:
        raise refused(f"{field}.name", f"{claim.name} is not staged") from None
    try:
        size = file.size()
        if size != claim.bytes:
            raise refused(f"{field}.bytes", f"{claim.name} has {size} bytes, not {claim.bytes}")
        file.sync()  # written by another process
        foot = file.read(size - FOOTER_BYTES, FOOTER_BYTES) if size > FOOTER_BYTES else b""
    finally:
        file.close()
    try:
        run = Run.open(place.storage, directory, stem, place.log_id)
    except HorologError as error:
        if error.code in (ErrorCode.DISK_FAILED, *NO_ROOM):
            raise
        raise refused(field, f"{claim.name}: {error.message}") from error
    if crc32(foot) != claim.crc32:
        run.close()
        raise refused(f"{field}.crc32", f"{claim.name} has a footer with another CRC")
    return run


def _check_run(run: Run, claim: FileRow, field: str, topic: int, queues: int) -> None:
    if not run.adopted:
        raise refused(field, f"{claim.name} was not written for adoption (flag adopted)")
    for name in ("rows", "first_ms", "last_ms"):
        found, claimed = getattr(run.info, name), getattr(claim, name)
        if found != claimed:
            raise refused(f"{field}.{name}", f"{claim.name} has {found}, not {claimed}")
    topics = np.unique(run.directory["topic"]).tolist()
    if topics != [topic]:
        raise refused(field, f"{claim.name} has rows of topics {topics}; only {topic} is meant")
    ends = np.unique(np.array([0, run.rows - 1]))
    bad = _bad_rows(run, ends, queues)
    if len(bad):
        raise refused(field, f"{claim.name}: row {int(bad[0])} does not agree with its record")


def _bad_rows(run: Run, rows: npt.NDArray[np.int64], queues: int) -> npt.NDArray[np.int64]:
    """Return the rows among these that could not be handed over."""
    shown = AdoptedRun(run.info, 0, lambda name: run, Provenance(0, 0, queues, 0))
    entries = run.entries(rows)
    records = run.records(entries)
    good = is_readable(entries) & (entries["origin"] == 0)
    good &= entries["row"] == rows
    good &= record_crcs(records, entries["origin"], entries["row"]) == entries["crc"]
    good &= shown.agree(entries, records)
    bad: npt.NDArray[np.int64] = rows[~good]
    return bad


# --- reading and moving ---------------------------------------------------------------------------


def read_records(
    place: ShardFiles, claims: Sequence[FileRow], checked: Checked, queues: int
) -> list[bytes]:
    """Read all messages of a small transaction, and verify each of them.

    They are ordered by (due time, place in the manifest, row).
    """
    found: list[bytes] = []
    dues: list[Any] = [np.empty(0, np.int64)]
    for number, (claim, file) in enumerate(zip(claims, checked.files, strict=True)):
        directory, stem = place.staging(checked.begun.token), claim.name.removesuffix(".run")
        if checked.moved[number]:
            directory, stem = place.runs, file.name
        run = Run.open(place.storage, directory, stem, place.log_id)
        try:
            rows = np.arange(run.rows)
            bad = _bad_rows(run, rows, queues)
            if len(bad):
                what = f"{claim.name}: row {int(bad[0])} does not agree with its record"
                raise refused(f"files.{number}", what)
            entries = run.entries(rows)
            found += [bytes(record) for record in run.records(entries)]
            dues.append(entries["due_ms"])
        finally:
            run.close()
    order = np.argsort(np.concatenate(dues), kind="stable")
    return [found[row] for row in order.tolist()]


def move(place: ShardFiles, claims: Sequence[FileRow], checked: Checked) -> None:
    """Move the files to their names in `runs`, durably."""
    for claim, file, is_moved in zip(claims, checked.files, checked.moved, strict=True):
        if not is_moved:
            source = f"{place.staging(checked.begun.token)}/{claim.name}"
            place.storage.rename(source, f"{place.runs}/{file.name}.run")
    place.storage.sync_dir(place.runs)
