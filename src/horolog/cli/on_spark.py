"""Flags of the commands that run on Spark, and the Spark session that they ask for."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from horolog.errors import ErrorCode, refused

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Master = Annotated[
    str,
    typer.Option(
        metavar="URL",
        help="Where Spark runs: local[2], spark://…, yarn, k8s://…; by default this machine.",
    ),
]
Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="NAME=VALUE", help="Spark setting; may be repeated."),
]


@contextmanager
def spark_session(command: str, master: str, conf: Sequence[str] | None) -> Iterator[SparkSession]:
    """Yield the session of `horolog pipeline COMMAND`, and stop it at the end.

    Failures of the job become one sentence; SIGTERM ends the command as Ctrl-C does.
    """
    from horolog.spark.failures import job_failures
    from horolog.spark.session import make_session

    say_nothing_of_ctrl_c()
    signal.signal(signal.SIGTERM, _end_as_ctrl_c)
    settings = pairs("--conf", conf or (), "NAME=VALUE")
    session = make_session(f"horolog pipeline {command}", master=master, conf=settings)
    with job_failures(command):
        try:
            yield session
        except BaseException as error:
            with suppress(Exception):  # the error of a JVM that is gone would hide the real one
                session.stop()
            if _was_interrupted(error):  # what PySpark raises instead: a job was cancelled
                raise KeyboardInterrupt from None
            raise
        session.stop()


def _end_as_ctrl_c(_number: int, frame: FrameType | None) -> None:
    cancel = signal.getsignal(signal.SIGINT)  # Spark's own, which cancels its jobs
    if callable(cancel):
        cancel(signal.SIGINT, frame)
    raise KeyboardInterrupt


def _was_interrupted(error: BaseException | None) -> bool:
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


def say_nothing_of_ctrl_c() -> None:
    """Keep Py4J from logging a traceback when Ctrl-C ends the command."""
    logging.getLogger().addFilter(_is_no_interrupt)  # Py4J logs it with the root logger


def _is_no_interrupt(record: logging.LogRecord) -> bool:
    return not (record.exc_info and isinstance(record.exc_info[1], KeyboardInterrupt))


def pairs(flag: str, texts: Sequence[str], form: str) -> dict[str, str]:
    """Parse the texts NAME=… of a repeated flag; CONFIG if one has another form."""
    found = dict[str, str]()
    for text in texts:
        name, equals, rest = text.partition("=")
        if not equals or not name or not rest:
            raise refused(flag, f"{text!r} is not {form}", code=ErrorCode.CONFIG)
        found[name] = rest
    return found
