"""Topics and their queues: ids, types, settings, and the next queue offset of each queue."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import fields
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from horolog.errors import ErrorCode, HorologError, refused
from horolog.limits import QUEUES_MAX
from horolog.log.consume_queue import ConsumeQueue
from horolog.log.open_queues import OpenQueues
from horolog.log.queue_names import queue_dir_name
from horolog.protocol.rocketmq.late_policy import LatePolicy
from horolog.protocol.topic_commands import (
    PERM_NAMES,
    PERM_READ,
    PERM_WRITE,
    TopicSettings,
    TopicType,
)
from horolog.storage.api import Storage

DEFAULTS = TopicSettings()
_SETTINGS = tuple(each.name for each in fields(TopicSettings))
_SETTINGS_OF = attrgetter(*_SETTINGS)
_DEFAULTS = _SETTINGS_OF(DEFAULTS)
_QUEUE_BITS = 16
assert QUEUES_MAX < 1 << _QUEUE_BITS


class Dropped(NamedTuple):
    """A topic that was deleted."""

    id: int
    name: str
    queues: int
    position: int  # log position near which the deletion was recorded

    def row(self) -> dict[str, Any]:
        """Return the row of this topic in a checkpoint's registry."""
        fields = self._asdict()
        return {"number": fields.pop("id"), **fields}

    @classmethod
    def of(cls, row: dict[str, Any]) -> Dropped:
        """Build a Dropped from the row that `row` has made."""
        return cls(row["number"], row["name"], row["queues"], row["position"])


class Topic:
    """One topic.  `tails` are the next queue offsets to assign; `queues` hold what is committed."""

    def __init__(self, topic_id: int, name: str, type: TopicType) -> None:
        self.id = topic_id
        self.name = name
        self.type = type
        self.settings = DEFAULTS
        self.queues: list[ConsumeQueue] = []
        self.tails: list[int] = []
        self._drawn = 0  # the queue that was drawn last

    def row(self) -> dict[str, Any]:
        """Return the row of this topic in a checkpoint's registry."""
        row = {
            "number": self.id,
            "name": self.name,
            "type": self.type.value,
            "queues": len(self.queues),
        }
        return row | settings_row(self.settings)

    @property
    def write_queues(self) -> int:
        """The count of queues, from the first one on, that new messages go to."""
        return self.settings.write_queues or len(self.queues)

    def draw(self, count: int = 1) -> int:
        """Return the queue for the first of `count` messages; the next ones follow round-robin."""
        first = (self._drawn + 1) % self.write_queues
        self._drawn = (self._drawn + count) % self.write_queues
        return first

    def no_such_queue(self, queue: int) -> HorologError:
        """Return the refusal of a message for a queue that takes none."""
        last = self.write_queues - 1
        return refused(
            "queueId",
            f"{queue}; topic {self.name!r} takes messages in queues 0 to {last}",
            f"0 to {last}",
        )

    def check_writable(self) -> None:
        """Raise FORBIDDEN if clients may not send to this topic."""
        if not self.settings.perm & PERM_WRITE:
            raise self._forbidden("send to it")

    def check_readable(self) -> None:
        """Raise FORBIDDEN if clients may not consume this topic."""
        if not self.settings.perm & PERM_READ:
            raise self._forbidden("consume it")

    def _forbidden(self, what: str) -> HorologError:
        perm = self.settings.perm
        return HorologError(
            ErrorCode.FORBIDDEN,
            f"topic {self.name!r} has the permission {perm} ({PERM_NAMES[perm]}): nobody may "
            f"{what}",
            field="topic",
        )


class Topics:
    """All topics of a shard, by name and by id."""

    def __init__(self, storage: Storage, directory: str) -> None:
        self._storage = storage
        self._directory = directory
        self.by_name: dict[str, Topic] = {}
        self.by_id: dict[int, Topic] = {}
        self.changed: dict[ConsumeQueue, None] = {}  # queues that have unsynced units
        self.open_queues = OpenQueues()
        self.last = 0  # the highest id that was ever assigned
        self.dropped: dict[int, Dropped] = {}  # deleted topics of which the log may have messages
        self.late: dict[int, LatePolicy] = {}  # topic id → late policy, for topics that have one
        self.swept: set[int] = set()  # ids of dropped topics whose files are gone
        self._rows: dict[int, dict[str, Any]] = {}  # by topic id; replaced, not changed
        self._queues: list[ConsumeQueue] = []  # of all topics; the next two: topic and id
        self._topic_of = array("I")
        self._id_of = array("I")
        self._names: list[str] = []  # in order if `_sorted`
        self._sorted = True

    def get(self, name: str) -> Topic:
        """Return the topic of that name, or raise TOPIC_NOT_FOUND."""
        topic = self.by_name.get(name)
        if topic is None:
            raise HorologError(
                ErrorCode.TOPIC_NOT_FOUND, f"topic {name!r} does not exist", field="topic"
            )
        return topic

    def put_row(self, row: dict[str, Any]) -> None:
        """Make or change a topic from the row in a log record or a checkpoint."""
        type = TopicType(row["type"])
        self.put(row["number"], row["name"], type, row["queues"], settings_of_row(row))

    def put(
        self,
        topic_id: int,
        name: str,
        type: TopicType,
        queues: int,
        settings: TopicSettings = DEFAULTS,
    ) -> Topic:
        """Make or change a topic, with at least `queues` queues."""
        topic = self.by_id.get(topic_id)
        if topic is None:
            topic = self.by_id[topic_id] = self.by_name[name] = Topic(topic_id, name, type)
            self.last = max(self.last, topic_id)
            self._names.append(name)
            self._sorted = False
        topic.type = type
        topic.settings = settings
        self._note_late(topic_id, settings)
        while len(topic.queues) < queues:
            queue_id = len(topic.queues)
            directory = f"{self._directory}/{queue_dir_name(topic_id, queue_id)}"
            queue = ConsumeQueue(self._storage, directory, self.changed, self.open_queues)
            topic.queues.append(queue)
            topic.tails.append(0)
            self._queues.append(queue)
            self._topic_of.append(topic_id)
            self._id_of.append(queue_id)
        self._rows[topic_id] = topic.row()
        return topic

    def _note_late(self, topic_id: int, settings: TopicSettings) -> None:
        policy = settings.late_policy
        self.late.pop(topic_id, None)
        if not policy.is_default:
            self.late[topic_id] = policy

    def drop(self, topic_id: int, position: int) -> None:
        """Drop a topic that a record near that log position deletes.

        Its files are removed later, when no kept checkpoint needs them.
        """
        topic = self.by_id.pop(topic_id)
        del self.by_name[topic.name]
        self.late.pop(topic_id, None)
        del self._rows[topic_id]
        self._names.remove(topic.name)
        for first, stop in self._rows_of(topic_id):
            del self._queues[first:stop], self._id_of[first:stop], self._topic_of[first:stop]
        for queue in topic.queues:
            self.changed.pop(queue, None)
            queue.close()
        self.dropped[topic_id] = Dropped(topic_id, topic.name, len(topic.queues), position)

    def _rows_of(self, topic_id: int) -> list[tuple[int, int]]:
        """Return where a topic's queues are in `_queues`, as (first, stop), the last first."""
        rows = np.flatnonzero(np.frombuffer(self._topic_of, np.uint32) == topic_id)
        stretches = np.split(rows, np.flatnonzero(np.diff(rows) > 1) + 1)
        return [(int(rows[0]), int(rows[-1]) + 1) for rows in reversed(stretches)]

    def directories_of(self, dropped: Dropped) -> list[str]:
        """Return the directories that the queues of a deleted topic had."""
        return [
            f"{self._directory}/{queue_dir_name(dropped.id, queue_id)}"
            for queue_id in range(dropped.queues)
        ]

    def page(self, after: str, limit: int) -> list[Topic]:
        """Return the first `limit` topics whose names sort after `after`, by name."""
        if not self._sorted:
            self._names.sort()
            self._sorted = True
        first = bisect_right(self._names, after)
        return [self.by_name[name] for name in self._names[first : first + limit]]

    def registry(self) -> list[dict[str, Any]]:
        """Copy the rows of all topics for a checkpoint, which is written while topics change."""
        return list(self._rows.values())

    @property
    def queue_count(self) -> int:
        """The count of queues of all topics; new queues are added at the end."""
        return len(self._queues)

    def queue_column(self, name: str, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Build a column of a checkpoint: (topic, queue, `name`) of every queue.

        `name` is `length` or `first`.
        """
        found = np.empty(len(self._queues), dtype)
        found["topic"] = self._topic_of
        found["queue"] = self._id_of
        values = map(attrgetter(name), self._queues)  # avoids a Python loop over the queues
        found[name] = np.fromiter(values, np.uint64, len(self._queues))
        return found

    def first_offset(self, topic: int, queue: int) -> int:
        """Return the lowest queue offset whose message the log still has."""
        return self.by_id[topic].queues[queue].first

    def check_invariants(self) -> None:
        """Check that names and ids agree, and that queues end at or below their next offset."""
        assert len(self.by_name) == len(self.by_id), "a topic has two names or two ids"
        assert sorted(self._names) == sorted(self.by_name), "a list does not name all topics"
        assert [row["number"] for row in self._rows.values()] == list(self.by_id)
        assert self.dropped.keys().isdisjoint(self.by_id), "deleted, and there"
        assert all(topic_id <= self.last for topic_id in self.dropped), self.last
        assert self.swept <= self.dropped.keys(), self.swept
        with_policy = {
            n for n, topic in self.by_id.items() if not topic.settings.late_policy.is_default
        }
        assert self.late.keys() == with_policy, "late policies of other topics"
        assert len(self._queues) == len(self._topic_of) == len(self._id_of)
        assert len(self._queues) == sum(row["queues"] for row in self._rows.values())
        for topic_id, topic in self.by_id.items():
            assert self._rows[topic_id] == topic.row(), topic.name
            assert topic.id == topic_id > 0, (topic.id, topic_id)
            assert self.by_name.get(topic.name) is topic, topic.name
            assert 1 <= len(topic.queues) == len(topic.tails) <= QUEUES_MAX, topic.name
            for queue, tail in zip(topic.queues, topic.tails, strict=True):
                assert queue.length <= tail, (topic.name, queue.length, tail)
                queue.check_invariants()

    def all_queues(self) -> Iterable[tuple[Topic, int, ConsumeQueue]]:
        """Yield (topic, queue id, queue) for every queue."""
        for topic in self.by_id.values():
            for queue_id, queue in enumerate(topic.queues):
                yield topic, queue_id, queue

    def assign(
        self, topics: npt.NDArray[Any], queues: npt.NDArray[Any]
    ) -> tuple[npt.NDArray[np.int64], list[tuple[Topic, int, npt.NDArray[np.int64]]]]:
        """Assign queue offsets to messages (columns of topic id and queue id, in order).

        Return the offsets, and the rows of each queue as (topic, queue id, row numbers).
        """
        assert len(topics) == len(queues), (len(topics), len(queues))
        offsets = np.empty(len(topics), np.int64)
        groups = []
        for topic, queue_id, rows in self.by_queue(topics, queues):
            tail = topic.tails[queue_id]
            assert tail >= topic.queues[queue_id].length, (topic.name, queue_id, tail)
            offsets[rows] = np.arange(tail, tail + len(rows))
            topic.tails[queue_id] = tail + len(rows)
            groups.append((topic, queue_id, rows))
        return offsets, groups

    def by_queue(
        self, topics: npt.NDArray[Any], queues: npt.NDArray[Any]
    ) -> list[tuple[Topic, int, npt.NDArray[np.int64]]]:
        """Group row numbers by (topic, queue), in order within a queue."""
        if not len(topics):
            return []
        both = topics.astype(np.int64) << _QUEUE_BITS | queues.astype(np.int64)
        order = np.argsort(both, kind="stable")
        ordered = both[order]
        groups = []
        for rows in np.split(order, np.flatnonzero(np.diff(ordered)) + 1):
            key = int(both[rows[0]])
            groups.append((self.by_id[key >> _QUEUE_BITS], key & 0xFFFF, rows))
        return groups


def queue_of(topic: Topic, queue_id: int) -> ConsumeQueue:
    """Return a queue of a topic, or raise BAD_REQUEST."""
    if not 0 <= queue_id < len(topic.queues):
        raise refused(
            "queue",
            f"{queue_id}; topic {topic.name!r} has the queues 0 to {len(topic.queues) - 1}",
            f"0 to {len(topic.queues) - 1}",
        )
    return topic.queues[queue_id]


def settings_row(settings: TopicSettings) -> dict[str, Any]:
    """Return the settings that differ from the defaults, as JSON keeps them."""
    every = zip(_SETTINGS, _SETTINGS_OF(settings), _DEFAULTS, strict=True)
    return {name: value for name, value, default in every if value != default}


def settings_of_row(row: dict[str, Any]) -> TopicSettings:
    """Read the topic settings that `settings_row` has put into the row of a topic."""
    return TopicSettings(**{name: row[name] for name in _SETTINGS if name in row})
