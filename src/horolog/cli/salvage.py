"""`horolog salvage`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from horolog.cli.exits import Exit
from horolog.cli.options import AsJson
from horolog.cli.output import print_json, print_table
from horolog.units import counted, format_time_ms

if TYPE_CHECKING:
    from horolog.broker.life.facts import ShardMeta
    from horolog.log.salvage import Lost, Plan
    from horolog.storage.api import Storage

_HELD_ROWS = 20
_HELD_BYTES = 1 << 20  # most bytes to read of each lost place
_MEANS = """
The records in these places are lost, and a broker that starts after this continues without them:
  messages, unless they were handed over later, and topics and groups that were created there
  hand-overs: their messages are pending still, and are handed over again
  recalls and reschedules: their messages are pending still, with the old due times
  acknowledgements and offsets: messages are delivered again
  commits of bulk loads: load the same rows again
Restore a backup instead if one is recent enough."""


def salvage(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Data directory.")],
    yes: Annotated[
        bool,
        typer.Option("--yes", help="Give up the listed places; without it, nothing is changed."),
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Make a damaged commit log usable again, without its unreadable parts.

    For a broker that refuses to start because its log is damaged, ends too early or lacks a segment
    (recovery rows 4, 5 and 6), or because its file meta is gone, cannot be read or is wrong. Copy the
    directory first, and bring an intact copy of the segment back if there is one. The command lists
    the damaged places and when they were written; with --yes it gives them up, and keeps their bytes
    in shard-00/salvaged/. The broker must be stopped. Exit code 0: done, or nothing to do; 6: damage
    was listed, and nothing was changed.

    Examples:
      horolog salvage /var/lib/horolog
      horolog salvage /var/lib/horolog --yes
    """
    from horolog.broker.life import salvage as life
    from horolog.broker.life.facts import ShardMeta
    from horolog.broker.life.salvaged_meta import salvaged_meta
    from horolog.cli.progress import progress, size_text
    from horolog.storage.disk import Disk
    from horolog.storage.meta import SHARD
    from horolog.verify.directory import lock_directory

    lock = lock_directory(directory, without_meta=True)
    try:
        storage = Disk(directory, read_only=not yes)
        said, why = salvaged_meta(storage, SHARD)
        meta = ShardMeta(said.log_id, 0, said.segment_bytes)
        with progress("reading the log", quiet=as_json) as report:
            found = life.survey(
                storage, SHARD, meta, lambda done, of: report(size_text(done), done, of)
            )
        held = list(islice(_held(storage, meta, found), _HELD_ROWS))
        if yes and why:
            life.write_meta(storage, SHARD, said)
        if yes:
            life.salvage(storage, SHARD, meta, found)
    finally:
        if lock is not None:
            lock.release()
    if as_json:
        fields = {"meta": why or None, "held": [_held_row(row) for row in held], "salvaged": yes}
        print_json({**_as_json(directory, found), **fields})
    else:
        if why:
            typer.echo(
                f"{why}; it must be: log id {said.log_id:016x}, {said.clock} clock, segments of"
                f" {said.segment_bytes} bytes"
            )
        _show(directory, found, held, salvaged=yes)
        if not yes and (why or found.lost):
            typer.echo("Nothing was changed; to do it: horolog salvage DIR --yes")
    return Exit.OK if yes or not (why or found.lost) else Exit.FAULTS


def _as_json(directory: Path, found: Plan) -> dict[str, Any]:
    return {
        "directory": str(directory),
        "log_end": found.end,
        "promised": found.promised,
        "lost": [_row(lost) for lost in found.lost],
    }


def _row(lost: Lost) -> dict[str, Any]:
    return {
        "first": lost.first,
        "stop": lost.stop,
        "bytes": lost.stop - lost.first,
        "records": lost.records if lost.records >= 0 else None,
        "after_ms": lost.after_ms or None,
        "before_ms": lost.before_ms or None,
    }


def _held(storage: Storage, meta: ShardMeta, found: Plan) -> Iterator[tuple[object, ...]]:
    """Yield the records that the lost places seem to hold."""
    from horolog.broker.life.salvage import bytes_of
    from horolog.cli.inspection.given_up import rows_in
    from horolog.storage.meta import SHARD

    for lost in found.lost:
        yield from rows_in(bytes_of(storage, SHARD, meta, lost, _HELD_BYTES), lost.first)


def _held_row(row: tuple[object, ...]) -> dict[str, object]:
    from horolog.cli.inspection.log_file import RECORD_HEAD

    return dict(zip((name.lower() for name in RECORD_HEAD), row, strict=True))


def _show(directory: Path, found: Plan, held: list[tuple[object, ...]], *, salvaged: bool) -> None:
    from horolog.cli.inspection.log_file import RECORD_HEAD
    from horolog.cli.progress import size_text

    if not found.lost:
        typer.echo(f"{directory}: the log is intact up to {found.end}; there is nothing to salvage")
        return
    rows = [
        (
            lost.first,
            lost.stop,
            size_text(lost.stop - lost.first),
            lost.records if lost.records >= 0 else "?",
            format_time_ms(lost.after_ms) if lost.after_ms else "?",
            format_time_ms(lost.before_ms) if lost.before_ms else "?",
        )
        for lost in found.lost
    ]
    print_table(("FROM", "TO", "SIZE", "RECORDS", "WRITTEN AFTER", "WRITTEN BEFORE"), rows)
    if held:
        typer.echo("\nRecords that these bytes seem to hold; some of the bytes are wrong:")
        print_table(RECORD_HEAD, held)
    if len(held) == _HELD_ROWS:
        typer.echo("… and more; `horolog inspect` reads the files in shard-00/salvaged/")
    if salvaged:
        places = counted(len(rows), "place")
        typer.echo(f"{directory}: {places} given up; their bytes are in shard-00/salvaged/")
    else:
        typer.echo(_MEANS)
