"""What a start that is refused says to the operator."""

from __future__ import annotations

from horolog.errors import ErrorCode, HorologError
from horolog.log.recovery import Row
from horolog.log.scan import LogEnd, LogScan

_SALVAGEABLE = (4, 5, 6)  # rows that a salvage can help with (`log.salvage`)


def refusal(directory: str, row: Row, why: str, *, has_log: bool = True) -> HorologError:
    """Build the error of a start that a row of the recovery table refuses."""
    hint = (
        "; `horolog salvage` says what would be lost without it"
        if row.number in _SALVAGEABLE and has_log
        else ""
    )
    return HorologError(
        ErrorCode.DIRECTORY_FOREIGN if row.number == 7 else ErrorCode.DAMAGED,
        f"{directory}: {why} (recovery row {row.number}: {row.reason}); nothing was changed{hint}",
        field="--data-dir",
    )


def why_refused(row: Row, scan: LogScan, log_start: int) -> str:
    """Return what is wrong with a log that begins at `log_start` and was scanned to its end."""
    if row.number == 10:
        return (
            f"the commit log begins at log position {log_start} and no checkpoint is valid, so "
            "what lay below cannot be rebuilt; restore the directory from a backup"
        )
    if scan.outcome is LogEnd.FOREIGN:
        return f"the frame at log position {scan.end} belongs to another log or shard"
    by = "the checkpoint" if scan.stated_by < 0 else f"the frame at {scan.stated_by}"
    return f"the commit log is damaged at log position {scan.end}, which {by} says was durable"
