"""The consume queues that have a file open: a bounded count, so that descriptors are left over.

There may be thousands of queues.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Protocol

from horolog.storage.descriptors import queue_files_max


class _Queue(Protocol):
    def close(self) -> None: ...


class OpenQueues:
    """The queues of a shard that have a file open; shared by all queues of the shard.

    most  highest count of open queues: the share of them in the descriptors of the process
    """

    def __init__(self) -> None:
        self.most = queue_files_max()
        self._queues: OrderedDict[_Queue, None] = OrderedDict()  # the least recently used first

    def __contains__(self, queue: _Queue) -> bool:
        return queue in self._queues

    def __len__(self) -> int:
        return len(self._queues)

    def note_used(self, queue: _Queue) -> None:
        """Record that a queue used its file; close the least recently used if too many are open."""
        self._queues[queue] = None
        self._queues.move_to_end(queue)
        if len(self._queues) > self.most:
            next(iter(self._queues)).close()

    def close(self) -> None:
        """Close the files of all queues."""
        for queue in list(self._queues):
            queue.close()

    def note_closed(self, queue: _Queue) -> None:
        """Record that a queue has closed its file."""
        self._queues.pop(queue, None)
