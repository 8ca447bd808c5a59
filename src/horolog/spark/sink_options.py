"""Options and schema of the sink, checked before any job starts.

Every refusal names the option or the column.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from pyspark.sql.types import StructType

from horolog.errors import ErrorCode, HorologError
from horolog.limits import ADOPTION_APP_MAX
from horolog.spark.given_options import Given, refused
from horolog.spark.option_names import IGNORED_BY_SINK, SINK_OPTIONS
from horolog.spark.sink_columns import REQUIRED, SINK_TYPES, Unit
from horolog.units import parse_unsigned

RUN_ROWS = 400_000  # most rows of one file: about 100 MiB of usual messages


class Staging(StrEnum):
    """How files reach the broker."""

    AUTO = "auto"  # write into the staging directory where it is reachable, else upload
    SHARED = "shared"
    UPLOAD = "upload"


class SinkOptions(NamedTuple):
    """The options of a write."""

    broker: str
    topic: str
    staging: Staging
    job_id: str  # of a batch; "": a new id
    txn_app_id: str  # of a stream; "": the id of the query
    timeout_ms: int
    rows_per_file: int
    unit: Unit | None  # what a `deliver_at` of type bigint counts
    overdue_max_ms: int  # rows that have been due for longer are refused


def sink_options(options: Mapping[str, str]) -> SinkOptions:
    """Check the options of a write.

    Errors: BAD_REQUEST that names an option which is missing, unknown or wrong.
    """
    given = Given(options, SINK_OPTIONS, IGNORED_BY_SINK)
    for name in ("broker", "topic"):
        if not given.text(name):
            raise refused(name, "is required")
    broker = given.url("broker")
    staging = given.text("staging", Staging.AUTO).lower()
    if staging not in set(Staging):
        raise refused("staging", f"{staging!r} is none of {', '.join(Staging)}")
    rows_text = given.text("rowsPerFile", str(RUN_ROWS))
    rows = parse_unsigned(rows_text)
    if rows is None or not 1 <= rows <= 10_000_000:
        raise refused("rowsPerFile", f"{rows_text!r} is not a number from 1 to 10000000")
    for name in ("jobId", "txnAppId"):
        if len(given.text(name).encode()) > ADOPTION_APP_MAX:
            limit = f"{ADOPTION_APP_MAX} bytes"
            raise refused(name, f"is longer than {limit}", limit)
    unit = given.text("deliverAtUnit").lower()
    if unit and unit not in set(Unit):
        raise refused("deliverAtUnit", f"{unit!r} is none of {', '.join(Unit)}")
    return SinkOptions(
        broker,
        given.topic(),
        Staging(staging),
        given.text("jobId"),
        given.text("txnAppId"),
        given.timeout_ms(),
        rows,
        Unit(unit) if unit else None,
        given.duration_ms("overdueMax", "1d"),
    )


def check_schema(schema: StructType, unit: Unit | None) -> None:
    """Raise BAD_REQUEST that names the first column which does not fit.

    A column that is missing, unknown, there twice, of another type or without its unit does not
    fit.
    """
    found: dict[str, str] = {}
    for field in schema.fields:
        if field.name in found:
            raise _column(field.name, "is there more than once")
        found[field.name] = field.dataType.simpleString()
    for name in REQUIRED:
        if name not in found:
            there = ", ".join(found) or "none"
            raise _column(name, f"is required; there are {there}")
    for name, kind in found.items():
        allowed = SINK_TYPES.get(name)
        if allowed is None:
            raise _column(
                name, f"there is no such column of a message; there are {', '.join(SINK_TYPES)}"
            )
        if kind not in allowed:
            raise _column(name, f"is {kind}; it must be {' or '.join(sorted(allowed))}")
    if found["deliver_at"] == "bigint" and unit is None:
        raise unit_missing("column 'deliver_at'", "bigint")


def unit_missing(what: str, kind: str) -> HorologError:
    """Build the BAD_REQUEST for a number without a unit, which is never guessed."""
    units = ", ".join(Unit)
    return HorologError(
        ErrorCode.BAD_REQUEST,
        f"{what}: is {kind}; say what it counts since 1970 with deliverAtUnit ({units}), or make "
        "it a timestamp",
        field="deliverAtUnit",
        limit=units,
    )


def _column(name: str, why: str) -> HorologError:
    return HorologError(ErrorCode.BAD_REQUEST, f"column {name!r}: {why}", field=name)
