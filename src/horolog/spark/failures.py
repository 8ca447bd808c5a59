"""Failures of Spark, Arrow, Delta, the disk or a silent broker, explained in one sentence."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from horolog.admin.status import UnreachableError
from horolog.errors import ErrorCode, HorologError, first_line

_OURS = re.compile(
    r"(?:horolog\.errors\.HorologError|horolog\.admin\.status\.UnreachableError): (.+)"
)
_RAISED = re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception): (.+)$", re.MULTILINE)
_CAUSE = re.compile(r"^Caused by: (?:[\w.$]+: )?(.+)$", re.MULTILINE)
_STATE = re.compile(r"[. ]*SQLSTATE: \w+$")
_JAVA_CLASS = re.compile(r"^: (?:[\w.$]+: )?")


@contextmanager
def spark_failures(what: str) -> Iterator[None]:
    """Raise SPARK_FAILED for a failure of Spark, with the sentence of `sentence_of`."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise HorologError(ErrorCode.SPARK_FAILED, f"{what}: {sentence_of(error)}") from error


# `_internal` is a module of Delta.
_LIBRARIES = frozenset({"pyspark", "py4j", "pyarrow", "deltalake", "_internal"})
_AGAIN = "; a job may be run again, nothing is done twice"


@contextmanager
def job_failures(what: str) -> Iterator[None]:
    """Raise SPARK_FAILED or DISK_FAILED with one sentence for a failure in a job's libraries.

    Errors in horolog's own code keep their trace.
    what  the job, as its user knows it
    """
    try:
        yield
    except OSError as error:
        why = f"{error.filename}: {error.strerror}" if error.filename else first_line(error)
        text = f"{what}: {why}{_AGAIN}"
        raise HorologError(ErrorCode.DISK_FAILED, text, field=str(error.filename or "")) from error
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in _LIBRARIES:
            raise
        text = f"{what}: {sentence_of(error)}{_AGAIN}"
        raise HorologError(ErrorCode.SPARK_FAILED, text) from error


def silent_broker(error: UnreachableError, option: str) -> HorologError:
    """Build the INTERNAL error for a broker that does not answer.

    option  Spark's option that has the broker's URL
    """
    text = f"option {option!r}: {error.advised('name another')}"
    return HorologError(ErrorCode.INTERNAL, text, field=option)


def sentence_of(error: BaseException) -> str:
    """Return the cause of a failure in one sentence.

    The cause is horolog's own error in a worker's trace, else the error that the worker raised,
    else the first line.
    """
    text = str(error).strip()
    found = _OURS.findall(text)
    if found:
        return str(found[-1]).strip()
    if "Traceback (most recent call last)" in text and (found := _RAISED.findall(text)):
        return str(found[-1]).strip()  # the error that a worker raised
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if len(lines) > 1 and lines[0].startswith("An error occurred while calling "):
        said = _JAVA_CLASS.sub("", lines[1])  # the first line has no cause
        causes = _CAUSE.findall(text)
        if causes and said.startswith("Exception thrown in awaitResult"):
            return ": ".join(dict.fromkeys(_STATE.sub("", why) for why in (causes[0], causes[-1])))
        return said
    return lines[0] if lines else type(error).__name__
