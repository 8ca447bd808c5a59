"""Lines of the log, plain and JSON: one line an event whatever it holds."""

from __future__ import annotations

import io
import json
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr
from typing import BinaryIO, Literal

import pytest

from horolog.limits import LOG_WAITING_BYTES_MAX
from horolog.server.line_writer import LineWriter
from horolog.server.logs import JsonFormatter, LineFormatter, configure_logs

log = logging.getLogger("horolog.test")


Configure = Callable[..., io.StringIO]


@pytest.fixture
def configure() -> Iterator[Configure]:
    """`configure_logs`, with what it writes to stderr."""
    root, ours = logging.getLogger(), logging.getLogger("horolog")
    kept = (root.handlers[:], root.level, ours.level)
    hooks = (sys.excepthook, threading.excepthook)

    def start(level: str, form: Literal["plain", "json"] = "plain") -> io.StringIO:
        with redirect_stderr(io.StringIO()) as written:
            configure_logs(level, form)
        return written

    yield start
    root.handlers[:] = kept[0]
    root.setLevel(kept[1])
    ours.setLevel(kept[2])
    sys.excepthook, threading.excepthook = hooks
    logging.captureWarnings(capture=False)


def events(stderr: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stderr.getvalue().splitlines()]


def test_a_plain_line(configure: Configure) -> None:
    stderr = configure("info")
    log.info("starting data_dir=%s", "a\nb")
    at, level, name, *text = stderr.getvalue().split()
    assert at.endswith("Z")
    assert (level, name, " ".join(text)) == ("info", "horolog.test", "starting data_dir=a\\nb")


def test_a_json_line_has_the_values_that_its_text_names(configure: Configure) -> None:
    stderr = configure("info", "json")
    log.debug("not shown")
    log.warning("%d connections refused=%d by=%r share=%.1f %s", 3, 4, "a\n", 0.5, "end")
    (event,) = events(stderr)
    assert set(event) == {"time", "level", "logger", "message", "fields"}
    assert event["level"] == "warning"
    assert event["message"] == "3 connections refused=4 by='a\\n' share=0.5 end"
    assert event["fields"] == {"refused": 4, "by": "a\n", "share": 0.5}


@pytest.mark.parametrize("text", ["100 %", "a=%%s", "plain", "läßt 'x' \" \\ \u2028 \x00 \ud800"])
def test_any_text_is_one_json_line(configure: Configure, text: str) -> None:
    stderr = configure("info", "json")
    log.info(text)
    (event,) = events(stderr)
    assert event["message"] == text
    assert "fields" not in event


def test_an_exception_is_in_the_line(configure: Configure) -> None:
    stderr = configure("info", "json")
    try:
        raise ValueError("two\nlines")
    except ValueError as error:
        log.error("failed why=%s", error, exc_info=error)
    (event,) = events(stderr)
    assert event["fields"] == {"why": "two\nlines"}
    assert str(event["exception"]).startswith("Traceback (most recent call last):\n")
    assert str(event["exception"]).endswith("ValueError: two\nlines")


def test_what_nobody_caught_is_an_event_too(configure: Configure) -> None:
    stderr = configure("error", "json")
    thread = threading.Thread(target=lambda: {}[0], name="horolog-x")
    thread.start()
    thread.join()
    sys.excepthook(KeyError, KeyError("k"), None)
    first, second = events(stderr)
    assert (first["logger"], first["fields"]) == ("horolog.crash", {"thread": "horolog-x"})
    assert "KeyError: 0" in str(first["exception"])
    assert "KeyError: 'k'" in str(second["exception"])


# --- a stderr that nobody reads -------------------------------------------------------------------


def record(text: str) -> logging.LogRecord:
    return logging.LogRecord("horolog.test", logging.INFO, __file__, 0, text, (), None)


@pytest.fixture
def pipe() -> Iterator[tuple[BinaryIO, LineWriter]]:
    """The reading end of a pipe that is stderr, and what writes to it."""
    reading, writing = os.pipe()
    with open(reading, "rb") as reader, open(writing, "w") as stderr:
        yield reader, LineWriter(stderr)


def test_a_line_is_out_when_the_call_returns(pipe: tuple[BinaryIO, LineWriter]) -> None:
    reader, lines = pipe
    lines.emit(record("läuft \ud800"))
    assert os.read(reader.fileno(), 1 << 16).decode() == "läuft \\ud800\n"


@pytest.mark.parametrize("form", [LineFormatter(), JsonFormatter()], ids=["plain", "json"])
def test_a_stderr_that_nobody_reads_holds_nobody_up(
    pipe: tuple[BinaryIO, LineWriter], form: logging.Formatter
) -> None:
    reader, lines = pipe
    lines.setFormatter(form)
    count = 2 * LOG_WAITING_BYTES_MAX // len(form.format(record("x" * 1_000)))
    for _ in range(count):
        lines.emit(record("x" * 1_000))
    lines.flush()  # returns as well, and nothing is read yet
    found = []
    for line in reader:
        found.append(line.decode())
        if "lines were dropped" in found[-1]:
            break
    dropped = count - (len(found) - 1)
    assert 0 < dropped < count
    assert f"lines={dropped}" in found[-1]
    lines.emit(record("read again"))
    assert "read again" in reader.readline().decode()


def test_no_stderr_is_none_to_write_to() -> None:
    lines = LineWriter(None)
    lines.emit(record("lost"))
    lines.flush()
