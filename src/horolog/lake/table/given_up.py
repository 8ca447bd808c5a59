"""Notes, beside the table, of offloads that somebody gives up: `<uri>/_given_up/<log id>-<number>`, empty files.

Whoever gives one up tells the broker, and then takes out of the table what a job has added to it already.  If he is
stopped in between, or the job adds its files only then, the table has messages that the broker has, too, and another
offload adds them once more.  So a note stands here before the broker is told, and stays until the table refuses that
number for good.  Readers of Delta and Parquet pass over names that begin with an underscore.
"""

from __future__ import annotations

from pathlib import Path

from horolog.storage.disk import sync_directory

_FOLDER = "_given_up"


def note(uri: str, log_id: str, offload_id: int) -> None:
    """Durable when it returns; nothing where there is no directory, for then nobody has written anything."""
    if not Path(uri).is_dir():
        return
    folder = Path(uri, _FOLDER)
    folder.mkdir(exist_ok=True)
    _note_of(uri, log_id, offload_id).touch()
    sync_directory(folder)
    sync_directory(Path(uri))


def noted(uri: str, log_id: str) -> list[int]:
    """The offloads of a log that have a note, ascending."""
    names = [path.name.rpartition("-") for path in Path(uri, _FOLDER).glob(f"{log_id}-*")]
    return sorted(int(offload_id) for _, _, offload_id in names if offload_id.isdigit())


def drop(uri: str, log_id: str, offload_id: int) -> None:
    """Remove a note; durable when it returns."""
    _note_of(uri, log_id, offload_id).unlink(missing_ok=True)
    sync_directory(Path(uri, _FOLDER))


def _note_of(uri: str, log_id: str, offload_id: int) -> Path:
    return Path(uri, _FOLDER, f"{log_id}-{offload_id}")
