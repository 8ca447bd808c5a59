"""`horolog pipeline offload` and `promote`: move messages to the lake, and back in time."""

from __future__ import annotations

from typing import Annotated

import typer

from horolog.admin.status import UnreachableError
from horolog.cli.on_spark import Conf, Master, spark_session
from horolog.cli.options import ADMIN_DEFAULT, Admin, AsJson, connect, typed_as, unreachable
from horolog.cli.output import print_json
from horolog.errors import HorologError
from horolog.places import local_place
from horolog.spark.packages import need_lake, need_spark
from horolog.units import counted

_WATCH_S = 300
_FLAGS = {"from_ms": "--beyond", "app": "--app", "beyond": "--beyond"}
Lake = Annotated[
    str, typer.Argument(metavar="LAKE", help="Directory of the Delta table; made if missing.")
]


def offload(
    lake: Lake,
    *,
    beyond: Annotated[
        str, typer.Option(metavar="DURATION", help="Move messages due later than this from now.")
    ] = "48h",
    app: Annotated[
        str, typer.Option(metavar="NAME", help="Name of the job; one offload may be under way.")
    ] = "horolog-offload",
    abort: Annotated[
        bool, typer.Option("--abort", help="Give up the frozen offload, and move nothing.")
    ] = False,
    master: Master = "",
    conf: Conf = None,
    admin: Admin = ADMIN_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Move messages that are due far ahead from the broker's disk into a Delta table.

    Run it again to continue a job that was stopped. Needs the broker's data directory at its own path.

    Examples:
      horolog pipeline offload /lake/pending
      horolog pipeline offload /lake/pending --beyond 7d --master spark://10.0.0.1:7077
    """
    need_lake()
    if not abort:
        need_spark()
    from horolog.pipeline.offload import abort_open
    from horolog.pipeline.offload import offload as run
    from horolog.units import parse_duration_ms

    lake = local_place(lake, "LAKE")
    client = connect(admin)
    with typed_as(_FLAGS):
        ahead_ms = parse_duration_ms(beyond, field="beyond")
        if abort:
            offload_id = abort_open(client, lake, app)
            text = f"Offload {offload_id} is given up." if offload_id else "Nothing is frozen."
            print_json({"aborted": offload_id}) if as_json else typer.echo(text)
            return
        from_ms = int(client.get("/v1/clock")["wall_ms"]) + ahead_ms
        note = None if as_json else lambda line: typer.echo(line, err=True)
        with spark_session("offload", master, conf) as session:
            done = run(client, lake, from_ms, spark=session, app=app, note=note)
    if as_json:
        print_json(done._asdict())
    else:
        typer.echo(
            f"{counted(done.rows, 'message')} in {counted(done.files, 'file')} of {done.lake}."
        )


def promote(
    *,
    ahead: Annotated[
        str, typer.Option(metavar="DURATION", help="Bring back hours that begin within this time.")
    ] = "2h",
    watch: Annotated[
        bool,
        typer.Option(
            "--watch",
            help="Repeat every five minutes until stopped, also while no broker answers.",
        ),
    ] = False,
    forget: Annotated[
        str,
        typer.Option(metavar="DURATION", help="Remove days from the table that ended longer ago."),
    ] = "7d",
    admin: Admin = ADMIN_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Bring hours that are due soon from the lake back to the broker; safe to repeat.

    Examples:
      horolog pipeline promote
      horolog pipeline promote --watch
    """
    need_lake()
    import time

    from horolog.units import parse_duration_ms

    connect(admin)
    ahead_ms = parse_duration_ms(ahead, field="--ahead")
    keep_ms = parse_duration_ms(forget, field="--forget")
    while True:
        try:
            _promote_once(admin, ahead_ms, keep_ms, watch=watch, as_json=as_json)
        except (HorologError, UnreachableError) as error:
            if not watch:
                raise
            why = unreachable(error) if isinstance(error, UnreachableError) else error.message
            typer.echo(f"horolog: {why}; tried again in five minutes", err=True)
        if not watch:
            return
        time.sleep(_WATCH_S)


def _promote_once(admin: str, ahead_ms: int, keep_ms: int, *, watch: bool, as_json: bool) -> None:
    from horolog.pipeline.promote import forget_past, promote_due
    from horolog.spark.failures import job_failures

    note = None if as_json else lambda line: typer.echo(line, err=True)
    with job_failures("promote"):
        done = promote_due(admin, ahead_ms=ahead_ms, note=note)
        forget_past(admin, keep_ms)
    if as_json:
        print_json(done._asdict())
    elif done.rows or not watch:
        typer.echo(f"{counted(done.rows, 'message')} of {counted(done.hours, 'hour')}.")


def promote_late(broker: str, *, ahead_ms: int, timeout_ms: int) -> tuple[int, int]:
    """Promote hours that are due soon, as a job of the broker itself (`server.running.Promote`)."""
    from horolog.pipeline.promote import promote_due

    try:
        return promote_due(broker, ahead_ms=ahead_ms, timeout_ms=timeout_ms)
    except UnreachableError as error:
        raise OSError(str(error)) from error
