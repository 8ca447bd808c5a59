"""Flags of the commands that run on Spark, and the session they ask for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Annotated

import typer

from horolog.errors import ErrorCode, refused

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Master = Annotated[
    str,
    typer.Option(
        metavar="URL", help="Where Spark runs: local[2], spark://…, yarn, k8s://…; this machine."
    ),
]
Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="NAME=VALUE", help="A setting of Spark; may be repeated."),
]


@contextmanager
def spark_session(command: str, master: str, conf: Sequence[str] | None) -> Iterator[SparkSession]:
    """The session of `horolog pipeline COMMAND`, stopped in the end; what fails below it is a sentence."""
    from horolog.spark.failures import job_failures
    from horolog.spark.session import make_session

    settings = pairs("--conf", conf or (), "NAME=VALUE")
    session = make_session(f"horolog pipeline {command}", master=master, conf=settings)
    with job_failures(command):
        try:
            yield session
        except BaseException:
            with suppress(Exception):  # a JVM that is gone would say that instead
                session.stop()
            raise
        session.stop()


def pairs(flag: str, texts: Sequence[str], form: str) -> dict[str, str]:
    """A repeated flag's texts of the form NAME=…; CONFIG if one is not."""
    found = dict[str, str]()
    for text in texts:
        name, equals, rest = text.partition("=")
        if not equals or not name or not rest:
            raise refused(flag, f"{text!r} is not {form}", code=ErrorCode.CONFIG)
        found[name] = rest
    return found
