"""`horolog pipeline audit`, `forecast` and `rebuild`: jobs on the files of a data directory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from horolog.cli.exits import Exit
from horolog.cli.on_spark import Conf, Master, spark_session
from horolog.cli.options import AsJson
from horolog.cli.output import print_json
from horolog.errors import ErrorCode, refused
from horolog.places import local_place
from horolog.spark.packages import need_spark
from horolog.units import counted, parse_duration_ms, parse_time_ms

if TYPE_CHECKING:
    from horolog.pipeline.audit import AuditResult
    from horolog.pipeline.forecast import Forecast
    from horolog.pipeline.progress import Stages

DataDir = Annotated[
    str,
    typer.Argument(
        metavar="DATA_DIR", help="Data directory, a copy of one, or a backup; its broker may run."
    ),
]
Out = Annotated[
    str,
    typer.Option(metavar="DIR", help="Write report.html and Parquet tables there."),
]
Moment = Annotated[
    str,
    typer.Option(metavar="TIME", help="Only messages due before this time; ISO 8601 or epoch ms."),
]


def audit(
    data_dir: DataDir,
    out: Out = "",
    *,
    from_: Annotated[
        str, typer.Option("--from", metavar="TIME", help="Only messages due at or after this time.")
    ] = "",
    to: Moment = "",
    late: Annotated[
        str, typer.Option(metavar="DURATION", help="Count a later hand-over as a fault.")
    ] = "60s",
    master: Master = "",
    conf: Conf = None,
    as_json: AsJson = False,
) -> int:
    """Find lost, duplicate, early and late messages, from the files alone.

    Compares every schedule with every hand-over in the log. Nothing is changed, and no broker is
    needed. Exit code 0: no fault; 6: faults; any other: the audit did not finish.

    Examples:
      horolog pipeline audit /var/lib/horolog --out ./audit
      horolog pipeline audit /backups/horolog --from 2026-03-01T00:00Z --to 2026-04-01T00:00Z
      horolog pipeline audit /srv/horolog --late 5s --master spark://host:7077
    """
    need_spark()
    from rich.console import Console

    from horolog.pipeline.audit import audit as run
    from horolog.pipeline.audit_report import audit_page, show

    from_ms, to_ms = (
        parse_time_ms(text, field=flag) if text else None
        for flag, text in (("--from", from_), ("--to", to))
    )
    if from_ms is not None and to_ms is not None and from_ms >= to_ms:
        raise refused("--to", "is not after --from, so nothing would be looked at")
    late_ms = parse_duration_ms(late, field="--late")
    root, place = _checked(data_dir, out)
    with spark_session("audit", master, conf) as session, stages(quiet=as_json) as report:
        result = run(
            session,
            root,
            out=place,
            from_ms=from_ms,
            to_ms=to_ms,
            late_ms=late_ms,
            report=report,
        )
    if place is not None:
        write_page(place, audit_page(result))
    if as_json:
        print_json(_audit_json(result, place))
    else:
        show(Console(), result)
        _print_place(place)
    return verdict(result)


def write_page(place: Path, page: str) -> None:
    """Write `report.html`; half a page is removed, and the OSError names the file."""
    path = place / "report.html"
    try:
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        with suppress(OSError):
            path.unlink(missing_ok=True)
        error.filename = str(path)  # the error of a write has none
        raise


def verdict(result: AuditResult) -> Exit:
    """Return the exit code: OK, or FAULTS, which neither a crashed job nor Python itself uses."""
    return Exit.FAULTS if result.faults else Exit.OK


def forecast(
    data_dir: DataDir,
    out: Out = "",
    *,
    hours: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Only messages due within N hours.")
    ] = None,
    master: Master = "",
    conf: Conf = None,
    as_json: AsJson = False,
) -> int:
    """Count pending messages by the minute in which they are due, and name the hottest seconds.

    The counts are exactly those of the broker, from the files alone.

    Examples:
      horolog pipeline forecast /var/lib/horolog --out ./forecast
      horolog pipeline forecast /var/lib/horolog --hours 48 --json
    """
    need_spark()
    from rich.console import Console

    from horolog.pipeline.forecast import forecast as run
    from horolog.pipeline.forecast_report import forecast_page, show

    root, place = _checked(data_dir, out)
    with spark_session("forecast", master, conf) as session, stages(quiet=as_json) as report:
        result = run(session, root, out=place, hours=hours, report=report)
    if place is not None:
        write_page(place, forecast_page(result))
    if as_json:
        print_json(_forecast_json(result, place))
    else:
        show(Console(), result)
        _print_place(place)
    return Exit.OK


def rebuild(
    data_dir: DataDir,
    *,
    out: Annotated[
        str, typer.Option(metavar="NEWDIR", help="New directory, which becomes a data directory.")
    ],
    master: Master = "",
    conf: Conf = None,
    as_json: AsJson = False,
) -> int:
    """Rebuild a data directory from a commit log: queues, hours and runs, in parallel.

    The log must begin at 0 and be whole. DATA_DIR is not changed; NEWDIR holds a copy of its log and of its
    adopted runs, and a broker serves from it at once. Exit code 6: pending messages of adopted runs
    cannot be read, and were copied as they are.

    Examples:
      horolog pipeline rebuild /broken/horolog --out /var/lib/horolog
      horolog pipeline rebuild /mnt/shared/horolog --out /mnt/shared/new --master spark://host:7077
    """
    need_spark()
    from horolog.pipeline.rebuild import rebuild as run

    new = Path(local_place(out, "--out"))
    root, _ = _checked(data_dir)
    with spark_session("rebuild", master, conf) as session, stages(quiet=as_json) as report:
        result = run(session, root, new, report=report)
    if as_json:
        print_json(asdict(result))
    else:
        typer.echo(
            f"{result.out}: log to {result.position}, {counted(result.units, 'message')} in"
            f" {counted(result.queues, 'queue')}, {result.pending:,} pending:"
            f" {counted(result.hours, 'hour')}, {counted(result.runs, 'run')},"
            f" {counted(result.adopted, 'adopted run')},"
            f" {counted(result.in_lake, 'message')} in the lake"
        )
        if result.rotten:
            typer.echo(
                f"{counted(result.rotten, 'pending message')} of adopted runs cannot be read: the"
                " files were copied as they are, and a broker keeps such messages back"
                f" (`horolog verify {result.out}` names them)"
            )
    return Exit.FAULTS if result.rotten else Exit.OK


def _checked(data_dir: str, out: str = "") -> tuple[Path, Path | None]:
    """Return the data directory and the created one of --out; refuse errors before Spark starts."""
    root = Path(local_place(data_dir, "DATA_DIR"))
    place = Path(local_place(out, "--out")) if out else None
    from horolog.pipeline.data_files import DataFiles, read_meta

    read_meta(DataFiles(root))
    if place is not None:
        _make(place)
    return root, place


def _make(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise refused(
            "--out", f"{out} cannot be used ({error.strerror})", code=ErrorCode.CONFIG
        ) from error


def _print_place(place: Path | None) -> None:
    if place is not None:
        typer.echo(f"report: {(place / 'report.html').resolve()}")


@contextmanager
def stages(*, quiet: bool = False) -> Iterator[Stages]:
    """Print on stderr which stage a job is at: a spinner on a terminal, a line elsewhere."""
    from rich.console import Console

    from horolog.pipeline.progress import quiet as silent

    console = Console(stderr=True)
    if quiet:
        yield silent
    elif console.is_terminal:
        with console.status("starting Spark") as status:

            def report(what: str) -> None:
                status.update(what)

            yield report
    else:
        yield lambda what: console.print(what, highlight=False)


def _audit_json(result: AuditResult, place: Path | None) -> dict[str, object]:
    return {
        "data_dir": result.data_dir,
        "clean": not result.faults,
        "faults": result.faults,
        "counts": result.counts,
        "damaged": result.damaged,
        "files": [file._asdict() for file in result.files],
        "overdue": result.overdue,
        "forgotten": result.forgotten,
        "log_start": result.log_start,
        "log_end": result.log_end,
        "horizon_ms": result.horizon_ms,
        "totals": result.totals.to_pylist(),
        "lateness": result.lateness.to_pylist(),
        "funnel": result.funnel.to_pylist(),
        "findings": result.findings.to_pylist(),
        "report": str(place / "report.html") if place else None,
    }


def _forecast_json(result: Forecast, place: Path | None) -> dict[str, object]:
    return {
        "data_dir": result.data_dir,
        "now_ms": result.now_ms,
        "to_ms": result.to_ms,
        "total": result.total,
        "overdue": result.overdue,
        "in_lake": result.in_lake,
        "topics": result.topics.to_pylist(),
        "hottest": result.hottest.to_pylist(),
        "report": str(place / "report.html") if place else None,
    }
