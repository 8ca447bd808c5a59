"""The status of a broker's backups."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from horolog.errors import HorologError


class BackupState(StrEnum):
    """The state of the newest backup since the broker was started."""

    NONE = "none"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


class BackupView(NamedTuple):
    """The newest backup of this process, while it runs and afterwards."""

    state: BackupState = BackupState.NONE
    directory: str = ""
    number: int = 0  # of the backup in its directory: 1, 2, 3 …
    position: int = 0  # the backup holds the log up to here; 0: its checkpoint is being taken
    made_ms: int = 0  # wall clock of the broker; answers up to this time are in the backup
    files: int = 0
    files_done: int = 0
    bytes: int = 0
    bytes_done: int = 0
    copied_files: int = 0  # the other files were there from the backup before
    copied_bytes: int = 0
    damaged: tuple[str, ...] = ()  # damage of the data directory, sentences
    error: HorologError | None = None
