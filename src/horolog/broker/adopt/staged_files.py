"""Staged files of an adoption: check them against their manifest, and read them or move them.

This is file work for a thread; it touches no live state.  A file that a commit has moved before it
was cut off counts as staged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from zlib_ng.zlib_ng import crc32

from horolog.broker.adopt.staging import Begun, ShardFiles, check_name
from horolog.delay.entry import is_readable, record_crcs
from horolog.delay.far.adopted import AdoptedRun, Provenance, adopted_name
from horolog.delay.run.format import FOOTER_BYTES
from horolog.delay.run.reader import Run
from horolog.errors import NO_ROOM, ErrorCode, HorologError, refused
from horolog.limits import ADOPTION_FILES_MAX, HOUR_MS
from horolog.protocol.adoption_commands import FileRow


class Checked(NamedTuple):
    """Staged files that agree with their manifest, in its order."""

    begun: Begun
    files: list[FileRow]
    moved: list[bool]  # whether a file is in `runs` already
    soon_bytes: int  # of records due before `soon_ms`


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
