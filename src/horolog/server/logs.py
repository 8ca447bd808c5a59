"""Logs of the process: stderr, one line an event, never one per message.

A line is `time level logger event key=value …`, or with `--log-format json` one JSON object:

    {"time": "2026-11-23T12:00:00.000Z", "level": "info", "logger": "horolog.server",
     "message": "starting data_dir=horolog-data clock=system flush=sync",
     "fields": {"data_dir": "horolog-data", "clock": "system", "flush": "sync"}}

`fields` are what the event names as `key=value`, numbers as numbers; `exception`, where there is one, is the traceback
as one string.  Nothing is written to a file, so nothing has to be rotated: whoever starts the broker owns stderr.
Whoever logs does not wait for a stderr that is not read (`line_writer`).
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
# A place of a value in an event's text, and the key before it if it has one.
_PLACE = re.compile(r"(?:(?<!\S)([a-z][a-z_-]*)=)?%[-#0 +]*\d*(?:\.\d+)?[a-zA-Z]")


class LineFormatter(logging.Formatter):
    """One line per record, UTC with milliseconds.

    A traceback follows only where an exception was logged.
    """

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        at = format_time_ms(int(record.created * 1_000))
        text = record.getMessage().replace("\n", "\\n")
        line = f"{at} {record.levelname.lower():<8} {record.name} {text}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


class JsonFormatter(logging.Formatter):
    """One JSON object per record, on one line whatever it holds."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
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
    """Values that the event's text names: "data_dir=%s" → {"data_dir": …}."""
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


def configure_logs(level: str, form: LogFormat = "plain") -> None:
    """Send everything of `level` and above to stderr; libraries only from `warning` on.

    With "json" what would end a thread or the process with a traceback is an event as well.
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
        return  # the interpreter is at its end
    name = crash.thread.name if crash.thread is not None else "?"
    _crash.critical(
        "not caught thread=%s",
        name,
        exc_info=(crash.exc_type, crash.exc_value, crash.exc_traceback),
    )
