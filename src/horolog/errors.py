"""Every error a caller can meet: a code, a sentence, the field and the limit, and two flags.

A `HorologError` is raised (or returned as a value in a batch) by the core and the front ends
alike.  A code is translated to a wire protocol in one place per protocol: `protocol/grpc/status.py`
for RocketMQ 5.x, `admin/` for HTTP, `cli/` for exit codes.

`retriable`  the same call may succeed later without being changed.
`fatal`      the process (or the data directory) cannot continue; the reply must not tell the caller
             to try again.

DAMAGED is not fatal: a running broker skips the damaged part and serves the rest.  Only a start
refuses a directory that it cannot trust, with this error as with any other.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple, Self


class ErrorCode(StrEnum):
    """The kind of an error; docs/reference/errors.md has a row for each code."""

    BAD_REQUEST = "bad_request"
    ILLEGAL_ACCESS_POINT = "illegal_access_point"
    ILLEGAL_TOPIC = "illegal_topic"
    ILLEGAL_GROUP = "illegal_group"
    ILLEGAL_TAG = "illegal_tag"
    ILLEGAL_KEY = "illegal_key"
    ILLEGAL_MESSAGE_GROUP = "illegal_message_group"
    ILLEGAL_PROPERTY_KEY = "illegal_property_key"
    ILLEGAL_MESSAGE_ID = "illegal_message_id"
    ILLEGAL_FILTER = "illegal_filter"
    ILLEGAL_INVISIBLE_TIME = "illegal_invisible_time"
    ILLEGAL_DELIVERY_TIME = "illegal_delivery_time"
    ILLEGAL_POLLING_TIME = "illegal_polling_time"
    INVALID_RECEIPT_HANDLE = "invalid_receipt_handle"
    INVALID_TRANSACTION_ID = "invalid_transaction_id"
    TYPE_CONFLICT = "type_conflict"
    MESSAGE_CORRUPTED = "message_corrupted"
    CLIENT_ID_REQUIRED = "client_id_required"
    UNRECOGNIZED_CLIENT = "unrecognized_client"
    BODY_EMPTY = "body_empty"
    BODY_TOO_LARGE = "body_too_large"
    PROPERTIES_TOO_LARGE = "properties_too_large"
    TOPIC_NOT_FOUND = "topic_not_found"
    TOPIC_EXISTS = "topic_exists"
    SCHEDULE_EXISTS = "schedule_exists"
    SCHEDULE_CHANGED = "schedule_changed"
    GROUP_NOT_FOUND = "group_not_found"
    NOT_FOUND = "not_found"
    ALREADY_DELIVERED = "already_delivered"
    DUE_TIME_CHANGED = "due_time_changed"
    IN_TIER = "in_lake"
    UNAUTHORIZED = "unauthorized"
    FORBIDDEN = "forbidden"
    TOO_MANY_REQUESTS = "too_many_requests"
    DISK_FULL = "disk_full"
    TOO_MANY_FILES = "too_many_files"
    NOT_IMPLEMENTED = "not_implemented"
    INTERNAL = "internal"
    # the data directory and the disk
    DISK_FAILED = "disk_failed"
    DAMAGED = "damaged"
    DIRECTORY_IN_USE = "directory_in_use"
    DIRECTORY_FOREIGN = "directory_foreign"
    DIRECTORY_READ_ONLY = "directory_read_only"
    VERSION_UNSUPPORTED = "version_unsupported"
    CLOCK_MISMATCH = "clock_mismatch"
    CONFIG = "config"
    # the jobs on Spark
    JAVA_MISSING = "java_missing"
    EXTRA_MISSING = "extra_missing"
    SPARK_FAILED = "spark_failed"


NO_ROOM = frozenset({ErrorCode.DISK_FULL, ErrorCode.TOO_MANY_FILES})
"""Errors of a write that may succeed later: the caller keeps the content in memory until then."""
_RETRIABLE = frozenset({ErrorCode.TOO_MANY_REQUESTS, *NO_ROOM})
_FATAL = frozenset(
    {
        ErrorCode.DISK_FAILED,
        ErrorCode.DIRECTORY_IN_USE,
        ErrorCode.DIRECTORY_FOREIGN,
        ErrorCode.DIRECTORY_READ_ONLY,
        ErrorCode.VERSION_UNSUPPORTED,
        ErrorCode.CLOCK_MISMATCH,
        ErrorCode.CONFIG,
        ErrorCode.JAVA_MISSING,
        ErrorCode.EXTRA_MISSING,
        ErrorCode.SPARK_FAILED,
    }
)


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text; the name of its class if the text is blank."""
    lines = str(error).splitlines()
    return lines[0] if lines and lines[0].strip() else type(error).__name__


class HorologError(Exception):
    """One refusal or failure; its text names the field and the limit, if there are any.

    code     machine-readable, stable across versions
    message  one sentence for a person
    field    the wrong input ("body", "delivery_timestamp", "--data-dir"), or ""
    limit    the limit that the input broke, as text with its unit ("4194304 bytes"), or ""
    """

    def __init__(self, code: ErrorCode, message: str, *, field: str = "", limit: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.field = field
        self.limit = limit

    @property
    def retriable(self) -> bool:
        """Whether the same call may succeed later, unchanged."""
        return self.code in _RETRIABLE

    @property
    def fatal(self) -> bool:
        """Whether the process or its data directory cannot continue."""
        return self.code in _FATAL

    def without_traceback(self) -> Self:
        """Return this error without traceback, cause and context, to be kept as a reply.

        Its stack frames refer to the error in turn, so everything they hold (the commands of a
        turn) would stay in memory until the garbage collector runs.
        """
        self.__cause__ = self.__context__ = None
        return self.with_traceback(None)

    def with_field(self, name: str) -> HorologError:
        """Return a copy of this error for an input that the caller knows by another name.

        A message that begins with the old field begins with `name` in the copy.
        """
        message = self.message
        if message.startswith(f"{self.field}: "):
            message = name + message.removeprefix(self.field)
        return HorologError(self.code, message, field=name, limit=self.limit)

    def __str__(self) -> str:
        return self.message


def refused(
    field: str, why: str, limit: str = "", code: ErrorCode = ErrorCode.BAD_REQUEST
) -> HorologError:
    """Build the error of a refused input: its text begins with the name of the field."""
    return HorologError(code, f"{field}: {why}", field=field, limit=limit)


def done_if_room(write: Callable[[], object]) -> bool:
    """Write, and return True; False if there is no room, so that it has to be tried again."""
    try:
        write()
    except HorologError as error:
        if error.code not in NO_ROOM:
            raise
        return False
    return True


class Problem(NamedTuple):
    """Damage that the broker tolerates: for health, the log of the process and `horolog verify`.

    text      one sentence for an operator
    part      the damaged file or directory: once it is gone, so is the problem; "": none
    key       two problems with the same key are one, the later text counts; "": the text is the key
    until_ms  wall clock ms from which on the problem does not matter; 0: never
    """

    text: str
    part: str = ""
    key: str = ""
    until_ms: int = 0


class Repair(NamedTuple):
    """A repair, and how many times it was done."""

    text: str
    times: int
