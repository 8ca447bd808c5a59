"""List pending messages: a list is read in pieces, over as many turns as it needs.

A second may hold any number of messages in no order, so the first of them are known only when all
were looked at.  A turn looks at LOAD_CHUNK messages for all lists together, and reads one page.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from horolog.broker.handlers import Handler
from horolog.broker.recall.bulk_recalls import has_tag
from horolog.broker.shard import Shard
from horolog.delay.pending import ListingPlace, Page, PageLoad
from horolog.errors import refused
from horolog.limits import BULK_TAGGED_ROWS, LOAD_CHUNK, TURN_READ_BYTES, TURN_READ_MAX
from horolog.log.record import HEAD_BYTES
from horolog.protocol.commands import ListPending, PendingMessage
from horolog.protocol.history_commands import PagePending, PendingPage, PendingPlace
from horolog.protocol.rocketmq import layout, properties

_LIST_MAX = 10_000


@dataclass
class _Task:
    command: ListPending | PagePending
    topic: int | None
    load: PageLoad
    found: list[PendingMessage] = field(default_factory=list)
    next: PendingPlace | None = None
    done: bool = False


class PendingLists:
    """Lists of pending messages, by the token of the command."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._tasks: dict[object, _Task] = {}

    def handlers(self) -> Mapping[type, Handler]:
        """Return the rows of the handler table; they are called when a list is done."""
        return {
            ListPending: lambda item, _command, _now, _: self._tasks.pop(item.token).found,
            PagePending: lambda item, _command, _now, _: self._page(self._tasks.pop(item.token)),
        }

    @property
    def wants_turn(self) -> bool:
        """Whether there is more to do at once."""
        return any(not task.done for task in self._tasks.values())

    def is_reading(self, command: ListPending | PagePending, token: object) -> bool:
        """Return whether the list is being read; the first call begins that.

        Raise TOPIC_NOT_FOUND; BAD_REQUEST if `limit` is out of bounds.
        """
        task = self._tasks.get(token)
        if task is None:
            task = self._tasks[token] = self._begin(command)
        return not task.done

    def work(self) -> None:
        """Read a piece of the first list that is not done, and of more if there is time."""
        left = LOAD_CHUNK
        for task in self._tasks.values():
            if task.done:
                continue
            steps, done = task.load.walk(left)
            left -= steps
            if done:
                left -= self._read(task)
            if left <= 0:
                return

    @staticmethod
    def _page(task: _Task) -> PendingPage:
        return PendingPage(task.found, task.next)

    def _begin(self, command: ListPending | PagePending) -> _Task:
        topic = self._shard.topics.get(command.topic).id if command.topic else None
        if isinstance(command, PagePending):
            place = ListingPlace(*command.after)
        elif 1 <= command.limit <= _LIST_MAX:
            place = ListingPlace(command.from_ms)
        else:
            text = f"{command.limit}; 1 to {_LIST_MAX} are allowed"
            raise refused("limit", text, f"1 to {_LIST_MAX}")
        return _Task(command, topic, self._load(command, topic, place, command.limit))

    def _load(
        self,
        command: ListPending | PagePending,
        topic: int | None,
        place: ListingPlace,
        limit: int,
    ) -> PageLoad:
        """Begin a page: with a tag, of as many rows as a bulk recall compares in one turn."""
        tagged = isinstance(command, PagePending) and command.tag
        rows = BULK_TAGGED_ROWS if tagged else min(limit, TURN_READ_MAX)
        return PageLoad(self._shard.delay, place, command.to_ms, topic, rows)

    def _read(self, task: _Task) -> int:
        """Take the messages of a page that was walked; return the cost of that, in steps."""
        command = task.command
        page = task.load.page(TURN_READ_BYTES)
        if isinstance(command, PagePending):
            self._take_page(task, command, page)
        else:
            task.found += map(_view, page.entries, page.records)
            left = command.limit - len(task.found)
            if left and page.next is not None:
                task.load = self._load(command, task.topic, page.next, left)
                return LOAD_CHUNK
        task.done = True
        return LOAD_CHUNK * len(page.records) // TURN_READ_MAX

    @staticmethod
    def _take_page(task: _Task, command: PagePending, page: Page) -> None:
        task.next = None if page.next is None else PendingPlace(*page.next)
        row = 0  # row of the origin of the last message found
        for entry, record in zip(page.entries, page.records, strict=True):
            if command.tag and not has_tag(record, command.tag):
                continue
            if len(task.found) == command.limit:
                last = task.found[-1]
                task.next = PendingPlace(last.due_ms, last.origin, row)
                return
            task.found.append(_view(entry, record))
            row = int(entry["row"])


def _view(entry: Any, record: memoryview) -> PendingMessage:
    stored = bytes(record[HEAD_BYTES:])
    fields = layout.decode(stored)
    message_id = properties.decode(fields.properties).get(properties.UNIQ_KEY, "")
    origin, size = int(entry["origin"]), int(entry["size"])
    return PendingMessage(int(entry["due_ms"]), fields.topic, message_id, origin, size, stored)
