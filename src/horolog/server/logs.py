"""Logs of the process: stderr, one line for each event, never one for each message.

A line is `time level logger event key=value …`, or with `--log-format json` one JSON object:

    {"time": "2026-11-23T12:00:00.000Z", "level": "info", "logger": "horolog.server",
     "message": "starting data_dir=horolog-data clock=system flush=sync",
     "fields": {"data_dir": "horolog-data", "clock": "system", "flush": "sync"}}

`fields` has the values that the event names as `key=value`, numbers as numbers; `exception`, where
there is one, is the traceback as one string.  Nothing is written to a file, so there is nothing to
rotate: the process that starts the broker owns stderr.  Code that logs does not wait for a stderr
that is not read (`line_writer`).
"""

from __future__ import annotations

import json
import logging
import re
import sys
import threading
from types import TracebackType
from typing import Any, Literal

from horolog.server.line_writer import LineWriter
from horolog.units import format_time_ms

LogFormat = Literal["plain", "json"]
_crash = logging.getLogger("horolog.crash")
# The place of a value in an event's text, and the key before it if it has one.
_PLACE = re.compile(r"(?:(?<!\S)([a-z][a-z_-]*)=)?%[-#0 +]*\d*(?:\.\d+)?[a-zA-Z]")


class LineFormatter(logging.Formatter):
    """Formats a record as one line, UTC with milliseconds.

    A traceback follows only where an exception was logged.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        at = format_time_ms(int(record.created * 1_000))
        text = record.getMessage().replace("\n", "\\n")
        line = f"{at} {record.levelname.lower():<8} {record.name} {text}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


class JsonFormatter(logging.Formatter):
    """Formats a record as one JSON object, always on one line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        event: dict[str, Any] = {
            "time": format_time_ms(int(record.created * 1_000)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if fields := _fields(record):
            event["fields"] = fields
        if record.exc_info:
            event["exception"] = self.formatException(record.exc_info)
        return json.dumps(event, default=str)


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    """Return the values that the event's text names: "data_dir=%s" → {"data_dir": …}."""
    if not isinstance(record.msg, str) or not isinstance(record.args, tuple):
        return {}
    keys = [found[1] for found in _PLACE.finditer(record.msg.replace("%%", ""))]
    if len(keys) != len(record.args):
        return {}
    return {
        key: value if isinstance(value, bool | int | float) else str(value)
        for key, value in zip(keys, record.args, strict=True)
        if key
    }


def configure_logs(level: str, form: LogFormat) -> None:
    """Send records of `level` and above to stderr; those of libraries from `warning` on.

    With "json", an exception that ends a thread or the process is logged as an event too.
    """
    handler = LineWriter(sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else LineFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("horolog").setLevel(level.upper())
    logging.captureWarnings(capture=True)
    if form == "json":
        sys.excepthook = _log_crash
        threading.excepthook = _log_thread_crash


def _log_crash(
    kind: type[BaseException], error: BaseException, traceback: TracebackType | None
) -> None:
    _crash.critical("not caught", exc_info=(kind, error, traceback))


def _log_thread_crash(crash: threading.ExceptHookArgs) -> None:
    if crash.exc_value is None:
        return  # the interpreter shuts down
    name = crash.thread.name if crash.thread is not None else "?"
    _crash.critical(
        "not caught thread=%s",
        name,
        exc_info=(crash.exc_type, crash.exc_value, crash.exc_traceback),
    )
