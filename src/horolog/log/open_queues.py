"""Which consume queues have a file open: of thousands a bounded number, so that descriptors are left for the rest."""

from __future__ import annotations

from collections import OrderedDict
from typing import Protocol

from horolog.storage.descriptors import queue_files_max


class _Queue(Protocol):
    def close(self) -> None: ...


class OpenQueues:
    """Queues that have a file open; those of a shard share it.

    most  of them; None: as many as the process has descriptors for
    """

    def __init__(self, most: int | None = None) -> None:
        self.most = queue_files_max() if most is None else most
        self._queues: OrderedDict[_Queue, None] = OrderedDict()  # the least recently used first

    def __contains__(self, queue: _Queue) -> bool:
        return queue in self._queues

    def __len__(self) -> int:
        return len(self._queues)

    def used(self, queue: _Queue) -> None:
        """Its file is used; if it has just been opened and is one too many, another one is closed."""
        self._queues[queue] = None
        self._queues.move_to_end(queue)
        if len(self._queues) > self.most:
            next(iter(self._queues)).close()

    def close(self) -> None:
        """Close the files of all of them."""
        for queue in list(self._queues):
            queue.close()

    def closed(self, queue: _Queue) -> None:
        """It has no file open any more."""
        self._queues.pop(queue, None)
