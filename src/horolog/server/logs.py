"""Logs of the process: stderr, one line an event, never one per message.

A line is `time level logger event key=value …`.
"""

from __future__ import annotations

import logging
import sys

from horolog.units import format_time_ms


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


def configure_logs(level: str) -> None:
    """Send everything of `level` and above to stderr; libraries only from `warning` on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("horolog").setLevel(level.upper())
