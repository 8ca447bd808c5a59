"""Exit codes, and the one place where an error becomes one.

====  ============  ==========================================================================
code  name          meaning
====  ============  ==========================================================================
0     ok            done
1     failure       the broker, its disk or a file failed; `inspect`, `doctor`, `health`: not well
2     usage         a flag, an argument, a setting or a port that cannot be used
3     not found     no such topic, group, message or file
4     refused       the broker or the data directory refused: a limit, a type, already delivered
5     unreachable   no broker answers at --admin
6     faults        `pipeline audit` or `rebuild`, `backup`, `restore` or `salvage` finished, and found
                    faults or damage
====  ============  ==========================================================================
"""

from __future__ import annotations

from enum import IntEnum

from horolog.errors import ErrorCode, HorologError


class Exit(IntEnum):
    """Exit codes of `horolog`."""

    OK = 0
    FAILURE = 1
    USAGE = 2
    NOT_FOUND = 3
    REFUSED = 4
    UNREACHABLE = 5
    FAULTS = 6


EXIT_HELP = (
    "Exit codes: 0 ok, 1 failure (broker, disk, damaged file), 2 usage (flag, setting, port),"
    " 3 not found, 4 refused, 5 unreachable (no broker at --admin), 6 faults (found by an audit, a backup or a salvage, or restored)."
)

_EXITS = {
    ErrorCode.CONFIG: Exit.USAGE,
    ErrorCode.BAD_REQUEST: Exit.USAGE,
    ErrorCode.TOPIC_NOT_FOUND: Exit.NOT_FOUND,
    ErrorCode.GROUP_NOT_FOUND: Exit.NOT_FOUND,
    ErrorCode.NOT_FOUND: Exit.NOT_FOUND,
    ErrorCode.INTERNAL: Exit.FAILURE,
    ErrorCode.DISK_FAILED: Exit.FAILURE,
    ErrorCode.TOO_MANY_FILES: Exit.FAILURE,
    ErrorCode.DAMAGED: Exit.FAILURE,
    ErrorCode.JAVA_MISSING: Exit.USAGE,
    ErrorCode.EXTRA_MISSING: Exit.USAGE,
    ErrorCode.SPARK_FAILED: Exit.FAILURE,
}


def exit_of(error: HorologError) -> Exit:
    """Return the exit code for an error; REFUSED for a code that is not in the table."""
    return _EXITS.get(error.code, Exit.REFUSED)
