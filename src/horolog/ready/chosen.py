"""What a look at one queue has found for a receive."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy.typing as npt

from horolog.errors import ErrorCode, HorologError
from horolog.log.consume_queue import ConsumeQueue
from horolog.log.queue_unit import NO_UNITS
from horolog.ready.filter import Filter

RecordAt: TypeAlias = Callable[[int, int, int], bytes | None]  # (queue offset, position, size)
RecordsFrom: TypeAlias = Callable[[int, int], list[bytes]]  # (queue offset, at most so many)


class Ask(NamedTuple):
    """What a receive wants of a queue.

    room     bytes; the message that takes the last of them is the last one
    read     `read(offset, position, size)` gives a message; None: it is a hole, and is not chosen
    receive  in order: stands for the receive, if it may come again; it then gets what it was given.  0: it may not
    weigh    bytes that a message takes in the answer
    follow   `follow(offset, most)` gives the messages from an offset on that are known without a look at units, or none
    """

    queue_id: int
    queue: ConsumeQueue
    tags: Filter
    limit: int
    room: int
    read: RecordAt
    receive: int = 0
    weigh: Callable[[bytes], int] = len
    follow: RecordsFrom = lambda _offset, _most: []


class Picked(NamedTuple):
    """A message chosen for a receive."""

    queue: int
    offset: int
    attempt: int
    record: bytes


@dataclass(slots=True)
class Chosen:
    """What a look at one queue has found.

    upto        queue offset below which everything was given out, or is not wanted
    lost        holes that were given out before, and can't be again, or may not be passed over
    holes       those among the new ones below `upto`
    size        bytes of the records that were picked
    cost        of what was looked at and not picked, in units of a consume queue
    is_through  whether all was looked at that can be
    is_short    whether something was kept back, because there was no room for its lease
    unreadable  why the queue's own files cannot be read where it was looked last; "": they can
    unwanted    in order: held before, and not wanted by this filter
    revoked     in order: offsets whose lease has ended now, before its time; some of them were picked
    """

    upto: int
    picked: list[Picked] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)
    holes: list[int] = field(default_factory=list)
    size: int = 0
    cost: int = 0
    is_through: bool = False
    is_short: bool = False
    unreadable: str = ""
    unwanted: list[int] = field(default_factory=list)
    revoked: list[int] = field(default_factory=list)

    def units(self, queue: ConsumeQueue, offset: int, count: int) -> npt.NDArray[Any]:
        """Units from a queue offset on; none if the files cannot be read there."""
        try:
            return queue.read(offset, count)
        except HorologError as error:
            if error.code is not ErrorCode.DAMAGED:
                raise
            self.unreadable = error.message
            return NO_UNITS
