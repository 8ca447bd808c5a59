"""Names of the directories of consume queues, `<topic id>-<queue>`, and of the files in them."""

from __future__ import annotations

from horolog.log.file_names import name_of
from horolog.log.queue_unit import UnitsPlace


def queue_dir_name(topic: int, queue: int) -> str:
    """Return the directory name of a queue, from the ids of topic and queue."""
    return f"{topic:05d}-{queue:05d}"


def is_queue_dir(name: str) -> bool:
    """Return whether `name` is the directory name of a queue."""
    topic, _, queue = name.partition("-")
    return topic.isdecimal() and queue.isdecimal()


def units_place(name: str, first: int) -> UnitsPlace:
    """Return the place of the units of the queue directory `name` from offset `first` on."""
    topic, _, queue = name.partition("-")
    return UnitsPlace(int(topic), int(queue), first)


def queue_file_name(first: int) -> str:
    """Return the name of the file that begins with queue offset `first`."""
    return name_of(first, "cq")
