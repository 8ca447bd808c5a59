"""The one place where an error becomes HTTP: a status and the one error shape.

    {"error": {"code": "topic_not_found", "message": "…", "field": "topic", "limit": "",
    "retriable": false}}

A code that is not in the table is the caller's mistake (400) unless it is fatal (503: the broker
cannot go on).
"""

from __future__ import annotations

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
"""Inputs that requests of the admin API call otherwise than the core does."""


class UnreachableError(Exception):
    """No broker answered at the URL; the text says which URL and why."""

    def in_option(self, option: str) -> str:
        """The text for whoever has given the URL as an option, and not with the flag."""
        return f"option {option!r}: {self}".replace(" with --admin URL", "")


def http_status(error: HorologError) -> int:
    """The HTTP status that an error is answered with."""
    return HTTP_STATUS.get(error.code, 503 if error.fatal else 400)


def error_body(error: HorologError) -> dict[str, Any]:
    """The one error shape; `field` is what a request calls the input."""
    error = error.of(_FIELDS.get(error.field, error.field))
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
    """Back from the error shape, for clients; what is not that shape becomes INTERNAL."""
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
