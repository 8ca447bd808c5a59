"""`horolog pipeline load`: bulk load of files or a database table."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from horolog.cli.on_spark import Conf, Master, pairs, spark_session
from horolog.cli.options import ADMIN_DEFAULT, Admin, AsJson, typed_as
from horolog.cli.output import print_json
from horolog.errors import ErrorCode, HorologError, refused
from horolog.spark.packages import need_spark
from horolog.units import counted

if TYPE_CHECKING:
    from horolog.spark.bulk_load import BulkLoadResult

_FLAGS = {
    "topic": "--topic",
    "body": "--body",
    "deliver_at": "--deliver-at",
    "tag": "--tag",
    "keys": "--keys",
    "message_id": "--message-id",
    "broker": "--admin",
    "timeout": "--timeout",
    "rejects": "--rejects",
    "deliverAtUnit": "--deliver-at-unit",
    "overdueMax": "--overdue-max",
    "jobId": "--job-id",
}


# Options of Spark in sentences, and the flags to show instead.
_WORDS = {
    "with deliverAtUnit": "with --deliver-at-unit",
    "(rejects)": "(--rejects)",
    "longer overdueMax": "longer --overdue-max",
}


@contextmanager
def in_flags() -> Iterator[None]:
    """Let a refusal of the load name flags, in its field and within its sentence."""
    try:
        with typed_as(_FLAGS):
            yield
    except HorologError as error:
        said = error.message
        for option, flag in _WORDS.items():
            said = said.replace(option, flag)
        raise HorologError(error.code, said, field=error.field, limit=error.limit) from None


class UnitFlag(StrEnum):
    """Values of --deliver-at-unit."""

    MS = "ms"
    S = "s"
    US = "us"


class StagingFlag(StrEnum):
    """Values of --staging."""

    AUTO = "auto"
    SHARED = "shared"
    UPLOAD = "upload"


def load(
    files: Annotated[
        list[str] | None,
        typer.Argument(metavar="FILE…", help="CSV, JSON or Parquet, by extension."),
    ] = None,
    *,
    topic: Annotated[str, typer.Option(metavar="NAME", help="Topic to schedule in.")],
    deliver_at: Annotated[
        str,
        typer.Option(
            metavar="EXPR",
            help="Due time: a column or SQL expression; a timestamp, a text like one, or a number.",
        ),
    ],
    deliver_at_unit: Annotated[
        UnitFlag | None,
        typer.Option(help="Unit of a numeric due time since 1970."),
    ] = None,
    overdue_max: Annotated[
        str, typer.Option(metavar="DURATION", help="Refuse rows that have been due for longer.")
    ] = "1d",
    body: Annotated[
        str, typer.Option(metavar="EXPR", help="Body; by default the whole row as JSON.")
    ] = "",
    tag: Annotated[str, typer.Option(metavar="EXPR")] = "",
    keys: Annotated[str, typer.Option(metavar="EXPR")] = "",
    message_id: Annotated[
        str, typer.Option(metavar="EXPR", help="Message id; by default a new one.")
    ] = "",
    property_: Annotated[
        list[str] | None,
        typer.Option("--property", metavar="NAME=EXPR", help="A property; may be repeated."),
    ] = None,
    jdbc: Annotated[
        str, typer.Option(metavar="URL", help="Read --table from this database instead of files.")
    ] = "",
    table: Annotated[str, typer.Option(metavar="NAME", help="Table or (query) of --jdbc.")] = "",
    read_option: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="An option of Spark's reader; may be repeated."),
    ] = None,
    rejects: Annotated[
        str,
        typer.Option(
            metavar="DIR",
            help=(
                "Write refused rows there, with the reason; by default, a refused row fails the "
                "load."
            ),
        ),
    ] = "",
    job_id: Annotated[
        str, typer.Option(metavar="ID", help="Name of this load; its repetition changes nothing.")
    ] = "",
    staging: Annotated[
        StagingFlag, typer.Option(help="How files reach the broker.")
    ] = StagingFlag.AUTO,
    timeout: Annotated[
        str,
        typer.Option(
            metavar="DURATION", help="How long to wait for a broker that does not answer."
        ),
    ] = "60s",
    master: Master = "",
    conf: Conf = None,
    admin: Admin = ADMIN_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Schedule all rows of files or of a table, in one transaction: all or none.

    Examples:
      horolog pipeline load campaign.parquet --topic campaign --deliver-at send_at --body text
      horolog pipeline load users.csv --topic mail --deliver-at "signed_up + interval 30 days"
      horolog pipeline load big.parquet --topic t --deliver-at at --job-id march --rejects ./bad
    """
    need_spark()
    from horolog.spark.bulk_load import bulk_load, rejects_place
    from horolog.spark.load_input import Columns, read_input, selected
    from horolog.spark.sink_columns import Unit

    if rejects:
        rejects_place(rejects, "--rejects")
    if bool(files) == bool(jdbc):
        raise _usage("FILE", "give files, or --jdbc and --table")
    if bool(jdbc) != bool(table):
        raise _usage("--table", "goes together with --jdbc")
    columns = Columns(
        deliver_at, body, tag, keys, message_id, pairs("--property", property_ or (), "NAME=EXPR")
    )
    options = pairs("--read-option", read_option or (), "NAME=VALUE")
    with spark_session("load", master, conf) as session, in_flags():
        unit = Unit(deliver_at_unit) if deliver_at_unit else None
        df = selected(read_input(session, files or [], jdbc, table, options), columns, unit)
        result = bulk_load(
            df,
            broker=admin,
            topic=topic,
            job_id=job_id,
            rejects=rejects,
            deliver_at_unit=unit or "",
            overdue_max=overdue_max,
            staging=staging.value,
            timeout=timeout,
            show_progress=not as_json,
        )
    if as_json:
        print_json(result._asdict())
    else:
        typer.echo(_sentence(result, topic))


def _sentence(result: BulkLoadResult, topic: str) -> str:
    if result.already:
        return f"load {result.job_id} was committed before; nothing was changed"
    speed = result.rows / result.seconds if result.seconds else 0
    text = (
        f"scheduled {counted(result.rows, 'message')} in {topic} in {result.seconds:.1f} s "
        f"({speed:,.0f}/s), {counted(result.files, 'file')}, load {result.job_id}"
    )
    if result.rejected:
        text += f"\nrefused {counted(result.rejected, 'row')}, see {result.rejects}"
    return text


def _usage(flag: str, why: str) -> HorologError:
    return refused(flag, why, code=ErrorCode.CONFIG)
