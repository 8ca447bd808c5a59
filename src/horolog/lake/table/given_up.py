"""Notes of offloads that are given up: empty files `<uri>/_given_up/<log id>-<number>`.

To give up an offload, a job aborts it in the broker, and then removes from the table the files that
were already added.  If the job is killed in between, or another job adds the files only then, the
table has messages that the broker has, too, and the next offload adds them once more.  So the note
is written before the broker aborts the offload, and stays until the table refuses that id for
good.  Readers of Delta and Parquet skip names that begin with an underscore.
"""

from __future__ import annotations

from pathlib import Path

from horolog.storage.disk import sync_directory
from horolog.units import parse_unsigned

_FOLDER = "_given_up"


def note(uri: str, log_id: str, offload_id: int) -> None:
    """Write the note of an offload, durable on return.

    Does nothing if `uri` is no directory: then no job has written any file.
    """
    if not Path(uri).is_dir():
        return
    folder = Path(uri, _FOLDER)
    folder.mkdir(exist_ok=True)
    _note_of(uri, log_id, offload_id).touch()
    sync_directory(folder)
    sync_directory(Path(uri))


def noted(uri: str, log_id: str) -> list[int]:
    """Return the offloads of a log that have a note, ascending."""
    names = [path.name.rpartition("-") for path in Path(uri, _FOLDER).glob(f"{log_id}-*")]
    numbers = [parse_unsigned(offload_id) for _, _, offload_id in names]
    return sorted(offload_id for offload_id in numbers if offload_id is not None)


def drop(uri: str, log_id: str, offload_id: int) -> None:
    """Remove the note of an offload, durable on return."""
    _note_of(uri, log_id, offload_id).unlink(missing_ok=True)
    sync_directory(Path(uri, _FOLDER))


def _note_of(uri: str, log_id: str, offload_id: int) -> Path:
    return Path(uri, _FOLDER, f"{log_id}-{offload_id}")
