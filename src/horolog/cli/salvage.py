"""`horolog salvage`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from horolog.cli.exits import Exit
from horolog.cli.options import AsJson
from horolog.cli.output import print_json, print_table
from horolog.units import counted, format_time_ms

if TYPE_CHECKING:
    from horolog.broker.life.facts import ShardMeta
    from horolog.log.salvage import Lost, Plan
    from horolog.storage.api import Storage
    from horolog.storage.meta import Meta

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
    from horolog.storage.disk import Disk
    from horolog.verify.offline import lock_directory

    lock = lock_directory(directory, without_meta=True)
    try:
        storage = Disk(directory, read_only=not yes)
        survey = _survey(storage, quiet=as_json)
        if yes:
            _carry_out(storage, survey)
    finally:
        if lock is not None:
            lock.release()
    if as_json:
        print_json(_as_json(directory, survey, salvaged=yes))
    else:
        _show(directory, survey, salvaged=yes)
    return Exit.OK if yes or not survey.is_damaged else Exit.FAULTS


class _Survey(NamedTuple):
    """What a salvage would do.

    said  what the file meta must say
    why   why it has to be written again; "": it says so already
    plan  the places of the log to give up
    held  records that these places seem to hold, at most _HELD_ROWS
    """

    said: Meta
    why: str
    plan: Plan
    held: list[tuple[object, ...]]

    @property
    def is_damaged(self) -> bool:
        return bool(self.why or self.plan.lost)


def _survey(storage: Storage, *, quiet: bool) -> _Survey:
    from horolog.broker.life import salvage as life
    from horolog.broker.life.salvaged_meta import salvaged_meta
    from horolog.cli.progress import progress, size_text
    from horolog.storage.meta import SHARD

    said, why = salvaged_meta(storage, SHARD)
    meta = _shard_meta(said)
    with progress("reading the log", quiet=quiet) as report:
        plan = life.survey(storage, SHARD, meta, lambda done, of: report(size_text(done), done, of))
    return _Survey(said, why, plan, list(islice(_held(storage, meta, plan), _HELD_ROWS)))


def _carry_out(storage: Storage, survey: _Survey) -> None:
    from horolog.broker.life import salvage as life
    from horolog.storage.meta import SHARD

    if survey.why:
        life.write_meta(storage, SHARD, survey.said)
    life.salvage(storage, SHARD, _shard_meta(survey.said), survey.plan)


def _shard_meta(said: Meta) -> ShardMeta:
    from horolog.broker.life.facts import ShardMeta

    return ShardMeta(said.log_id, 0, said.segment_bytes)


def _as_json(directory: Path, survey: _Survey, *, salvaged: bool) -> dict[str, Any]:
    return {
        "directory": str(directory),
        "log_end": survey.plan.end,
        "promised": survey.plan.promised,
        "lost": [_row(lost) for lost in survey.plan.lost],
        "meta": survey.why or None,
        "held": [_held_row(row) for row in survey.held],
        "salvaged": salvaged,
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


def _show(directory: Path, survey: _Survey, *, salvaged: bool) -> None:
    said = survey.said
    if survey.why:
        typer.echo(
            f"{survey.why}; it must be: log id {said.log_id:016x}, {said.clock} clock, segments of"
            f" {said.segment_bytes} bytes"
        )
    _show_log(directory, survey.plan, survey.held, salvaged=salvaged)
    if survey.is_damaged and not salvaged:
        typer.echo("Nothing was changed; to do it: horolog salvage DIR --yes")


def _show_log(
    directory: Path, found: Plan, held: list[tuple[object, ...]], *, salvaged: bool
) -> None:
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
