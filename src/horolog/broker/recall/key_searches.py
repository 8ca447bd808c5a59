"""Search adopted messages by user key: no index has their keys, so pending ones are read.

That is done in pieces of some thousand rows in every turn, so other commands do not wait for a
search; a million rows take ten seconds.  Messages adopted after a search began are not searched:
the command came before them.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from horolog.broker.shard import Shard
from horolog.delay.entry import is_readable
from horolog.delay.far.adopted import AdoptedRun
from horolog.delay.state import EntryState
from horolog.limits import BULK_ROWS, BULK_TAGGED_ROWS, FIND_MAX, KEY_RECALL_MAX
from horolog.log.record import FLAGS_AT, HAS_KEYS, HEAD_BYTES
from horolog.protocol.commands import FindMessages, Recall, RecallByKey
from horolog.protocol.rocketmq import layout, properties
from horolog.protocol.rocketmq.message import check_is_one_key

_COST = BULK_ROWS // BULK_TAGGED_ROWS  # of reading the properties of a row, in rows scanned


@dataclass
class _Search:
    command: RecallByKey | FindMessages
    runs: deque[str]
    at: int = 0  # next row of the first run
    found: dict[Recall, None] = field(default_factory=dict)
    done: bool = False

    @property
    def found_max(self) -> int:
        """The count of matches above which the command is refused."""
        return KEY_RECALL_MAX if isinstance(self.command, RecallByKey) else FIND_MAX


class KeySearches:
    """Searches of recalls and look-ups by key, by the token of the command."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._searches: dict[object, _Search] = {}

    @property
    def wants_turn(self) -> bool:
        """Whether there is more to do at once."""
        return any(not search.done for search in self._searches.values())

    def found(self, token: object, command: RecallByKey | FindMessages) -> list[Recall] | None:
        """Return recalls of pending adopted messages that have the key; None while searching.

        Raise TOPIC_NOT_FOUND or ILLEGAL_KEY.  Call `end` when the command was answered.
        """
        check_is_one_key(command.key, "key")
        search = self._searches.get(token)
        if search is None:
            topic = self._shard.topics.get(command.topic).id
            names = [
                name
                for name, run in self._shard.delay.far.runs.items()
                if isinstance(run, AdoptedRun) and run.provenance.topic == topic and run.waiting > 0
            ]
            if not names or not command.key:
                return []
            search = self._searches[token] = _Search(command, deque(names))
        return list(search.found) if search.done else None

    def end(self, token: object) -> None:
        """Forget the search of a command that is answered."""
        self._searches.pop(token, None)

    def work(self) -> None:
        """Do a piece of the first search that is not done."""
        left = BULK_ROWS
        for search in self._searches.values():
            while left > 0 and not search.done:
                left -= self._search_rows(search, min(left, BULK_TAGGED_ROWS))
            if left <= 0:
                return

    def _search_rows(self, search: _Search, limit: int) -> int:
        """Search some rows of one run; return the cost of that."""
        run = self._shard.delay.far.runs.get(search.runs[0]) if search.runs else None
        if run is None:
            first = stop = end = 0
        else:
            first = max(search.at, run.states.first_left)
            stop, end = min(run.states.limit, first + limit), run.states.limit
        cost = 1 + max(0, stop - first)
        if run is not None and first < stop:
            cost += self._compare(search, run, np.arange(first, stop))
        search.at = stop
        if stop >= end:
            search.at = 0
            if search.runs:
                search.runs.popleft()
            search.done = not search.runs or len(search.found) > search.found_max
        return cost

    def _compare(self, search: _Search, run: object, rows: np.ndarray) -> int:
        assert isinstance(run, AdoptedRun)
        rows = rows[run.states_at(rows) == EntryState.WAITING]
        entries = run.entries(rows)
        entries = entries[is_readable(entries)]
        compared = 0
        records = run.records(entries)
        for record, due_ms in zip(records, entries["due_ms"].tolist(), strict=True):
            if len(record) <= HEAD_BYTES or not record[FLAGS_AT] & HAS_KEYS:
                continue
            compared += 1
            try:
                decoded = properties.decode(layout.properties_of(record[HEAD_BYTES:]))
            except (IndexError, ValueError):
                continue  # damaged: quarantined when due
            if search.command.key in decoded.get(properties.KEYS, "").split():
                name = decoded.get(properties.UNIQ_KEY, "")
                search.found[Recall(search.command.topic, name, due_ms)] = None
        return compared * _COST
