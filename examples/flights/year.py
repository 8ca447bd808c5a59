"""What Spark does after the day: all flights of the year are scheduled, forecast, and the day is audited.

    .venv/bin/python examples/flights/year.py --admin URL --data-dir DIR --table flights.csv.zip
        --work-dir DIR --topic boarding-calls --year-topic boarding-calls-next-year

The boarding call of each of the 336 776 flights of 2013 becomes due in a year to come, so all of them stay pending.
Prints lines of JSON: stages while it works, then the result.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import zipfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from day import CALL_BEFORE_MIN
from horolog.errors import HorologError
from horolog.pipeline.audit import AuditResult, audit
from horolog.pipeline.audit_report import audit_page
from horolog.pipeline.forecast import Forecast, forecast
from horolog.pipeline.forecast_report import forecast_page
from horolog.spark.bulk_load import bulk_load
from horolog.spark.session import make_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TABLE_YEAR = 2013


def tell(kind: str, **fields: object) -> None:
    """One line for the demo."""
    sys.stdout.write(json.dumps({"kind": kind, **fields}) + "\n")
    sys.stdout.flush()


def stage(what: str) -> None:
    """What happens now."""
    tell("stage", what=what)


def year_ahead(now: datetime) -> int:
    """The year whose first flight is still more than a day away."""
    year = now.year + 1
    return year if now + timedelta(days=2) < datetime(year, 1, 1, tzinfo=UTC) else year + 1


def calls(spark: SparkSession, csv: Path, year: int) -> DataFrame:
    """A boarding call for every row of the table: body, due time, tag, key."""
    from pyspark.sql import functions as f

    rows = spark.read.csv(str(csv), header=True)
    clock = f.col("sched_dep_time").cast("int")
    departure = f.make_timestamp(
        f.lit(year),
        f.col("month").cast("int"),
        f.col("day").cast("int"),
        f.floor(clock / 100).cast("int"),
        (clock % 100).cast("int"),
        f.lit(0),
        f.lit("America/New_York"),
    )
    key = f.concat_ws("-", "carrier", "flight", "origin")
    text = f.concat(key, f.lit(" to "), f.col("dest"), f.lit(": please come to the gate"))
    return rows.select(
        text.alias("body"),
        (departure - f.expr(f"interval {CALL_BEFORE_MIN} minutes")).alias("deliver_at"),
        f.col("carrier").alias("tag"),
        f.array(key).alias("keys"),
    )


def result_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """Load, forecast, audit; gives what the demo compares and prints."""
    work: Path = arguments.work_dir
    with zipfile.ZipFile(arguments.table) as archive:
        archive.extract("flights.csv", work)
    stage("starting Spark")
    spark = make_session("horolog demo", master=arguments.master)
    try:
        stage("scheduling the flights of a year")
        year = year_ahead(datetime.now(UTC))
        loaded = bulk_load(
            calls(spark, work / "flights.csv", year),
            broker=arguments.admin,
            topic=arguments.year_topic,
            job_id=f"flights-{TABLE_YEAR}-in-{year}",
        )
        stage("forecasting them")
        places = [work / name for name in ("forecast", "audit")]
        for place in places:
            place.mkdir()
        began = time.monotonic()
        ahead = forecast(spark, arguments.data_dir, out=places[0])
        forecast_s = time.monotonic() - began
        stage("auditing the day")
        began = time.monotonic()
        proof = audit(spark, arguments.data_dir, out=places[1])
        audit_s = time.monotonic() - began
    finally:
        spark.stop()
    (places[0] / "report.html").write_text(forecast_page(ahead), encoding="utf-8")
    (places[1] / "report.html").write_text(audit_page(proof), encoding="utf-8")
    return {
        "year": year,
        "loaded": loaded.rows,
        "load_s": loaded.seconds,
        "forecast_s": forecast_s,
        "audit_s": audit_s,
        **_ahead(ahead, arguments.year_topic),
        **_proof(proof, arguments.topic),
        "forecast_report": str(places[0] / "report.html"),
        "report": str(places[1] / "report.html"),
    }


def _ahead(ahead: Forecast, topic: str) -> dict[str, Any]:
    rows = {row["topic"]: row["messages"] for row in ahead.topics.to_pylist()}
    hottest = ahead.hottest.to_pylist()[0]
    return {"forecast": rows.get(topic, 0), "pending": ahead.total, "hottest": hottest}


def _proof(proof: AuditResult, topic: str) -> dict[str, Any]:
    return {
        "counts": proof.counts,
        "faults": proof.faults,
        "visible": proof.total("handed_over", topic) + proof.total("visible_at_once", topic),
        "adopted": proof.total("adopted"),
        "overdue": proof.overdue,
    }


def main() -> int:
    """Print the result; exit code 2 with a sentence if something does not work."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("--admin", "--topic", "--year-topic"):
        parser.add_argument(name, required=True)
    for name in ("--data-dir", "--table", "--work-dir"):
        parser.add_argument(name, type=Path, required=True)
    parser.add_argument("--master", default="local[*]")
    try:
        tell("done", **result_of(parser.parse_args()))
    except HorologError as error:
        tell("failed", why=error.message)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
