"""The Delta table of waiting messages, written and read with `deltalake` alone (no JVM jars).

    <uri>/_delta_log/…                       the log of the table, which names its files
    <uri>/number=7/day=2027-03-28/part-….parquet

`number` is the broker's id of an offload.  The files of an offload are added in one Delta
transaction with the application id `horolog-offload:<log id>` and the offload's id as its version,
so that a repeat is recognised or refused.  A message stays in the table until its partition is
removed (`forget`).  Only the broker knows which messages still wait in the lake, and which were
recalled.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from horolog.errors import ErrorCode, refused
from horolog.lake.table.schema import PARTITIONS, TABLE_SCHEMA, LakeFile
from horolog.places import local_place
from horolog.storage.disk import sync_directory

if TYPE_CHECKING:
    from deltalake import DeltaTable


def app_of(log_id: str) -> str:
    """Return the application id of a log's offloads in the transactions of the table."""
    return f"horolog-offload:{log_id}"


def open_table(uri: str) -> DeltaTable:
    """Open the table; NOT_FOUND if there is none, EXTRA_MISSING without the package `deltalake`."""
    delta = _delta_table(uri)
    if not delta.is_deltatable(uri):
        raise refused("lake", f"there is no Delta table at {uri}", code=ErrorCode.NOT_FOUND)
    table: DeltaTable = delta(uri)
    return table


def _delta_table(uri: str) -> Any:
    """Import and return the class DeltaTable, after a check that `uri` is a local path.

    deltalake itself would open a bucket, but other files of the lake would not be found there.
    """
    local_place(uri, "lake")
    try:
        from deltalake import DeltaTable
    except ImportError:
        raise refused(
            "lake",
            "needs the package deltalake; install horolog[spark]",
            code=ErrorCode.EXTRA_MISSING,
        ) from None
    return DeltaTable


def has_table(uri: str) -> bool:
    """Return whether there is a Delta table at `uri`."""
    return bool(_delta_table(uri).is_deltatable(uri))


def is_committed(uri: str, log_id: str, offload_id: int) -> bool:
    """Return whether the table has an offload already."""
    delta = _delta_table(uri)
    if not delta.is_deltatable(uri):
        return False
    version = delta(uri).transaction_version(app_of(log_id))
    return version is not None and version >= offload_id


def commit_files(uri: str, log_id: str, offload_id: int, files: Sequence[LakeFile]) -> bool:
    """Add the files of an offload in one transaction; False if the table has them already."""
    from deltalake import CommitProperties, Transaction
    from deltalake.exceptions import CommitFailedError, DeltaError
    from deltalake.transaction import AddAction

    delta = _delta_table(uri)
    if is_committed(uri, log_id, offload_id):
        return False
    name = f"horolog log {log_id}"
    delta.create(uri, TABLE_SCHEMA, mode="ignore", partition_by=PARTITIONS, name=name)
    found = delta(uri).metadata().name
    if found != name:
        raise refused(
            "lake",
            f"{uri} is the table of {found!r}, and this is {name!r}; numbers of offloads would be "
            "mixed up",
        )
    actions = [
        AddAction(
            file.path,
            file.bytes,
            {"number": str(offload_id), "day": file.day},
            Path(uri, file.path).stat().st_mtime_ns // 1_000_000,
            True,
            json.dumps(
                {
                    "numRecords": file.rows,
                    "minValues": {"due_ms": file.first_ms},
                    "maxValues": {"due_ms": file.last_ms},
                    "nullCount": {"due_ms": 0},
                }
            ),
        )
        for file in files
    ]
    once = CommitProperties(app_transactions=[Transaction(app_of(log_id), offload_id)])
    try:
        delta(uri).create_write_transaction(
            actions, "append", TABLE_SCHEMA, PARTITIONS, commit_properties=once
        )
    except (CommitFailedError, DeltaError):
        if is_committed(uri, log_id, offload_id):
            return False  # another job was quicker
        raise
    _sync_log(Path(uri))
    return True


def _sync_log(table: Path) -> None:
    """Make the table's log durable, before the broker commits and drops its own copy."""
    log = table / "_delta_log"
    for entry in log.glob("*.json"):
        with entry.open("rb") as file:
            os.fsync(file.fileno())
    for directory in (log, table, table.parent):
        sync_directory(directory)


def files_of(uri: str, offload_id: int, *days: str) -> list[str]:
    """Return the URIs of the Parquet files of an offload, or of some days of it."""
    filters: list[tuple[str, str, Any]] = [("number", "=", str(offload_id))]
    if days:
        filters.append(("day", "in", list(days)))
    found: list[str] = open_table(uri).file_uris(file_pruning_predicate=filters)
    return sorted(found)


def local_path(file_uri: str) -> str:
    """Return the path of a file that the table names by URI."""
    return file_uri.removeprefix("file://")


def forget(uri: str, before_day: str, offload_id: int | None = None) -> int:
    """Remove partitions of days before a day, of one offload or of all; return the file count."""
    table = open_table(uri)
    of_one = "" if offload_id is None else f"number = {offload_id} AND "
    removed = table.delete(f"{of_one}day < '{before_day}'")
    return int(removed.get("num_removed_files", 0))
