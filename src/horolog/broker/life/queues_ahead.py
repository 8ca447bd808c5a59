"""Write consume queues before a checkpoint is decided, some in each turn.

So the turn of the checkpoint has few left.  Each queue has a file of its own, and most of thousands
are not open: to write all that have news in one turn would take a second.  Units that come
meanwhile are left for another round, and for the checkpoint once a round gains little.
"""

from __future__ import annotations

from horolog.broker.topics import Topics
from horolog.limits import TURN_QUEUES_WRITTEN_MAX
from horolog.log.consume_queue import ConsumeQueue


class QueuesAhead:
    """Rounds of writing through the queues of one shard that have units in memory only."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._left: list[ConsumeQueue] = []  # of this round
        self._round = 0  # count of queues in this round; 0: there is none

    @property
    def is_under_way(self) -> bool:
        """Whether the checkpoint waits for further turns."""
        return self._round > 0

    def write(self) -> bool:
        """Write some queues; return False if the checkpoint need not wait.

        It need not if few queues are left, new ones come as fast as others are written, or the disk
        is full.
        """
        if not self._left and not self._begin():
            return False
        now = self._left[-TURN_QUEUES_WRITTEN_MAX:]
        del self._left[-TURN_QUEUES_WRITTEN_MAX:]
        for queue in now:
            # The files of a deleted topic must not come back.
            if queue in self._topics.changed and not queue.flush():
                self.end()
                return False
        return True

    def _begin(self) -> bool:
        unwritten = [queue for queue in self._topics.changed if queue.is_unwritten]
        is_worth_it = not self._round or len(unwritten) <= self._round // 2
        if len(unwritten) <= TURN_QUEUES_WRITTEN_MAX or not is_worth_it:
            self.end()
            return False
        self._left, self._round = unwritten, len(unwritten)
        return True

    def end(self) -> None:
        """End the round: no checkpoint waits for it any more."""
        self._left, self._round = [], 0
