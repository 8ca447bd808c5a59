"""The request and the result of one scan of a queue for a receive."""

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
RecordsFrom: TypeAlias = Callable[[int, int], list[bytes]]  # (queue offset, most records)


class PickRequest(NamedTuple):
    """A receive's request to one queue.

    limit    most messages
    room     bytes; the message that uses up the last of them is the last one picked
    read     `read(offset, position, size)` returns a message record; None: a hole, which is not
             picked
    receive  in order: id of a receive that the client may repeat; a repeated one gets the same
             messages.  0: not repeatable
    weigh    returns the bytes that a message takes in the response
    follow   `follow(offset, most)` returns the messages from an offset on that can be found without
             reading units, or none
    """

    queue_id: int
    queue: ConsumeQueue
    filter: Filter
    limit: int
    room: int
    read: RecordAt
    receive: int = 0
    weigh: Callable[[bytes], int] = len
    follow: RecordsFrom = lambda _offset, _most: []


class PickedMessage(NamedTuple):
    """A message picked for a receive."""

    queue: int
    offset: int
    attempt: int
    record: bytes


@dataclass(slots=True)
class PickResult:
    """The result of a scan of one queue.

    upto        queue offset below which every message was given out, or does not match the filter
    lost        offsets of holes that were given out before, or that a group in order must not skip
    holes       offsets of holes among the new messages below `upto`
    size        bytes of the picked messages in the response
    cost        of messages that were scanned and not picked, in units of a consume queue
    is_through  whether everything that can be scanned now was scanned
    is_short    whether a message was kept back because the broker has no room for its lease
    unreadable  why the files of the queue cannot be read at the last scanned place; "": they can
    unwanted    in order: offsets of held messages that do not match this filter
    revoked     in order: offsets whose lease the scan ended before its time; some of them were
                picked again
    """

    upto: int
    picked: list[PickedMessage] = field(default_factory=list)
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
        """Read units from a queue offset on; none if the files are damaged (`unreadable`)."""
        try:
            return queue.read(offset, count)
        except HorologError as error:
            if error.code is not ErrorCode.DAMAGED:
                raise
            self.unreadable = error.message
            return NO_UNITS
