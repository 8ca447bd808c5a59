"""Conversion of errors to HTTP (a status and the one error shape) and back.

    {"error": {"code": "topic_not_found", "message": "…", "field": "topic", "limit": "",
    "retriable": false}}

A code that is not in the table is the caller's mistake (400) unless it is fatal (503: the broker
cannot go on).  The error of a client that got no answer is here too.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

from horolog.errors import ErrorCode, HorologError

HTTP_STATUS = {
    ErrorCode.TOPIC_NOT_FOUND: 404,
    ErrorCode.GROUP_NOT_FOUND: 404,
    ErrorCode.NOT_FOUND: 404,
    ErrorCode.UNAUTHORIZED: 401,
    ErrorCode.FORBIDDEN: 403,
    ErrorCode.TOPIC_EXISTS: 409,
    ErrorCode.SCHEDULE_EXISTS: 409,
    ErrorCode.SCHEDULE_CHANGED: 409,
    ErrorCode.TYPE_CONFLICT: 409,
    ErrorCode.INVALID_TRANSACTION_ID: 404,
    ErrorCode.ALREADY_DELIVERED: 409,
    ErrorCode.DUE_TIME_CHANGED: 409,
    ErrorCode.IN_TIER: 409,
    ErrorCode.BODY_TOO_LARGE: 413,
    ErrorCode.PROPERTIES_TOO_LARGE: 413,
    ErrorCode.TOO_MANY_REQUESTS: 429,
    ErrorCode.INTERNAL: 500,
    ErrorCode.DAMAGED: 500,
    ErrorCode.NOT_IMPLEMENTED: 501,
    ErrorCode.TOO_MANY_FILES: 503,
    ErrorCode.DISK_FULL: 507,
}


_FIELDS = {
    "consumer group": "group",
    "filter_expression": "filter",
    "recall_handle": "handle",
    "user_properties": "properties",
}
"""Names in requests of the admin API for inputs that the core names otherwise."""


class Silence(Enum):
    """What was found at a URL where no broker answers."""

    NO_ANSWER = "nobody takes the connection, or it ends without an answer"
    HANGS = "the time for an answer is over"
    STRANGER = "something else answers"


class UnreachableError(Exception):
    """No broker answered at a URL.  The text says which URL and why; `advised` adds what to do.

    url      where it was asked, without key and secret
    why      the words of the system, or of the stranger
    silence  which of the three cases it was
    """

    def __init__(self, url: str, why: str, silence: Silence = Silence.NO_ANSWER) -> None:
        super().__init__(url, why, silence)
        self.url = url
        self.why = why
        self.silence = silence

    def __str__(self) -> str:
        if self.silence is Silence.STRANGER:
            return f"what answers at {self.url} is not a broker's admin port ({self.why})"
        return f"no broker answers at {self.url} ({self.why})"

    def advised(self, name_another: str) -> str:
        """Return the text, and what to do.

        name_another  how the reader names another broker: "name another with --admin URL"
        """
        match self.silence:
            case Silence.NO_ANSWER:
                advice = f"start one with `horolog serve`, or {name_another}"
            case Silence.HANGS:
                advice = "it is overloaded, or its process is stopped: `horolog doctor` looks at it"
            case Silence.STRANGER:
                advice = name_another
        return f"{self}; {advice}"


def http_status(error: HorologError) -> int:
    """Return the HTTP status of an error."""
    return HTTP_STATUS.get(error.code, 503 if error.fatal else 400)


def error_body(error: HorologError) -> dict[str, Any]:
    """Return the one error shape; `field` is the name of the input in requests."""
    error = error.with_field(_FIELDS.get(error.field, error.field))
    return {
        "error": {
            "code": error.code.value,
            "message": error.message,
            "field": error.field,
            "limit": error.limit,
            "retriable": error.retriable,
        }
    }


def error_from_body(body: Any) -> HorologError:
    """Parse the error shape, for clients; anything else becomes INTERNAL."""
    try:
        fields = body["error"]
        return HorologError(
            ErrorCode(fields["code"]),
            str(fields["message"]),
            field=str(fields["field"]),
            limit=str(fields["limit"]),
        )
    except (KeyError, TypeError, ValueError):
        return HorologError(ErrorCode.INTERNAL, f"unexpected answer: {str(body)[:200]}")
