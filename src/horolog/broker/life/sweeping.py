"""Remove files of a shard that nothing names, while it is opened.

These are derived files and skipped checkpoints.  Their messages are in the log, and are filed
again.  Adopted runs stay: the log does not have their messages.
"""

from __future__ import annotations

from collections.abc import Iterable

from horolog.broker.shard import Shard
from horolog.delay.damage import ASIDE
from horolog.delay.far.adopted import is_adopted_name
from horolog.delay.far.buffer import is_buffer
from horolog.delay.far.names import named_files
from horolog.log.checkpoint import Checkpoint, checkpoint_name
from horolog.storage.api import Storage


def discard_derived(storage: Storage, directory: str) -> None:
    """Remove everything that is rebuilt from the log."""
    for part in ("hours", "queues", "runs", "keys", "checkpoint"):
        for name in storage.list(f"{directory}/{part}"):
            path = f"{directory}/{part}/{name}"
            is_file = part in ("checkpoint", "keys") or (part == "runs" and not is_buffer(name))
            if name.startswith(ASIDE) or is_adopted_name(name):
                continue
            if is_file:
                storage.remove(path)
            else:
                storage.remove_dir(path)
        storage.sync_dir(f"{directory}/{part}")


def remove_newer(storage: Storage, directory: str, used: Checkpoint) -> None:
    """Remove newer checkpoints that were skipped.

    The files that they name are cut and filed again, and not synced.
    """
    place = f"{directory}/checkpoint"
    kept = checkpoint_name(used.position)
    newer = [n for n in storage.list(place) if n.endswith(".ckpt") and n > kept]
    for name in newer:
        storage.remove(f"{place}/{name}")
    if newer:
        storage.sync_dir(place)


def sweep_unnamed(shard: Shard, checkpoints: Iterable[Checkpoint]) -> None:
    """Remove hours and runs that neither the shard nor one of these checkpoints names.

    checkpoints  the valid ones: files that only the older one names stay, for the newest may turn
                 out to be unreadable at another start
    """
    storage, directory = shard.storage, shard.directory
    hours = set(shard.delay.hours)
    runs = {f"{name}.run" for name in shard.delay.far.runs}
    runs |= {buffer.directory.rpartition("/")[2] for buffer in shard.delay.far.buffers}
    for kept in checkpoints:
        hours |= {row["hour"] for row in kept.registry["hours"]}
        runs |= named_files(kept.registry.get("far", {}))
    for hour in shard.delay.on_disk():
        if hour not in hours:
            storage.remove_dir(shard.delay.path(hour))
    for name in storage.list(f"{directory}/runs"):
        path = f"{directory}/runs/{name}"
        if name in runs or name.startswith(ASIDE) or is_adopted_name(name):
            continue
        if is_buffer(name):
            storage.remove_dir(path)
        else:
            storage.remove(path)
