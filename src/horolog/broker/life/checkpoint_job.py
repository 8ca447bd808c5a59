"""The slow part of a checkpoint, for a thread: sync, write, and remove unnamed files.

log sync → hours and queues → their directories → state files → checkpoint → deletions
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from horolog.broker.life import retention
from horolog.broker.life.consumers_copy import ConsumersCopy
from horolog.broker.shard import CheckpointNeeds
from horolog.delay.far.buffer import is_buffer
from horolog.errors import NO_ROOM, HorologError
from horolog.limits import CHECKPOINTS_KEPT
from horolog.log.checkpoint import (
    Checkpoint,
    checkpoint_name,
    encode_checkpoint,
)
from horolog.log.queue_names import is_queue_dir
from horolog.storage.api import Storage, replace_file, write_file

DELAY_OFFSETS = "delayOffset.json"  # beside the checkpoints; never read


@dataclass
class CheckpointJob:
    """Everything that a thread needs to make a checkpoint durable; touches no live state."""

    directory: str
    checkpoint: Checkpoint
    consumers: ConsumersCopy | None  # until they become columns of the checkpoint
    sync: list[str]
    states: list[tuple[str, Callable[[], bytes]]]  # files to write
    needs: CheckpointNeeds
    former: str  # name of the checkpoint to keep beside this one; "": there is none
    log_below: int  # segments below this position are removed
    removed: bool = False  # whether the deletions were done
    not_removed: str = ""  # why the deletions were not done
    not_shown: str = ""  # why `delay_offsets` were not written
    written: int = 0  # bytes written
    delay_offsets: bytes = b""  # for people to read; empty while no level was used
    # Hours, buffers, runs and queue files that no kept checkpoint names
    gone: list[str] = field(default_factory=list)
    kept_states: dict[str, set[str]] = field(default_factory=dict)

    def carry_out(self, storage: Storage, *, keep: bool = False) -> None:
        """Make the checkpoint durable; the files that it names are written already.

        `sync` begins with the log.

        keep  remove nothing, because a backup copies files of an earlier checkpoint; later jobs
              will remove them
        """
        directories = {f"{self.directory}/{part}" for part in ("hours", "queues", "runs")}
        for path in self.sync:
            file = storage.open(path)
            try:
                file.sync()
            finally:
                file.close()
            directories.add(path.rpartition("/")[0])
        place = f"{self.directory}/checkpoint"
        name = checkpoint_name(self.checkpoint.position)
        try:
            for path, encode in self.states:
                content = encode()
                write_file(storage, path, content)
                self.written += len(content)
                directories.add(path.rpartition("/")[0])
            for directory in sorted(directories):
                storage.sync_dir(directory)
            if self.consumers is not None:
                self.checkpoint.columns |= self.consumers.columns()
                self.consumers = None
            content = encode_checkpoint(self.checkpoint)
            self.written += len(content)
            replace_file(storage, place, name, content)
        except HorologError as error:
            if error.code in NO_ROOM and not storage.exists(f"{place}/{name}"):
                for path in (*(path for path, _ in self.states), f"{place}/{name}.tmp"):
                    storage.remove(path)
            raise
        if self.delay_offsets:
            self._write_delay_offsets(storage)
        if not keep:
            try:
                self._delete(storage, place)
            except HorologError as error:
                # The checkpoint is durable, and surplus files do no harm: the next job tries again.
                self.not_removed = error.message

    def _write_delay_offsets(self, storage: Storage) -> None:
        try:
            replace_file(storage, self.directory, DELAY_OFFSETS, self.delay_offsets)
        except HorologError as error:
            self.not_shown = error.message  # nothing reads the file, so nothing depends on it

    def _delete(self, storage: Storage, place: str) -> None:
        kept = {checkpoint_name(self.checkpoint.position), self.former}
        assert len(kept) == CHECKPOINTS_KEPT
        for name in storage.list(place):
            # `.tmp`: left by a process that was killed while it wrote one
            if name.endswith((".ckpt", ".ckpt.tmp")) and name not in kept:
                storage.remove(f"{place}/{name}")
        retention.remove_segments(storage, f"{self.directory}/log", self.log_below)
        for path in self.gone:
            name = path.rpartition("/")[2]
            if name.isdigit() or is_buffer(name) or is_queue_dir(name):
                storage.remove_dir(path)
            else:
                storage.remove(path)
        for directory, versions in self.kept_states.items():
            for name in storage.list(directory):
                if name.startswith("state.") and name not in versions:
                    storage.remove(f"{directory}/{name}")
        self.removed = True
