"""What Spark says when a job fails, as one sentence."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from horolog.errors import ErrorCode, HorologError

_OURS = re.compile(
    r"(?:horolog\.errors\.HorologError|horolog\.admin\.status\.UnreachableError): (.+)"
)
_JAVA_CLASS = re.compile(r"^: (?:[\w.$]+: )?")


@contextmanager
def spark_failures(what: str) -> Iterator[None]:
    """SPARK_FAILED with the sentence of our own that lies in a failure of Spark's, else with Spark's first line."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise HorologError(ErrorCode.SPARK_FAILED, f"{what}: {sentence_of(error)}") from error


def sentence_of(error: BaseException) -> str:
    """The cause of a failure: our own refusal within a worker's trace, or the first line."""
    text = str(error).strip()
    found = _OURS.findall(text)
    if found:
        return str(found[-1]).strip()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if len(lines) > 1 and lines[0].startswith("An error occurred while calling "):
        return _JAVA_CLASS.sub("", lines[1])  # the first says nothing
    return lines[0] if lines else type(error).__name__
