"""How messages ended that the delay store has forgotten: recalled, or too late to be handed over.

An hour is dropped some time after it has passed, and no index has the record that ended a message.
A look-up that finds such a message searches the log from its due time on (`control_scans`) for a
record that says that it has expired: no message expires before it is due.  If there is none the
message was recalled; if the log is too long to be searched, its ending stays unknown.

The look-up itself is done in parts as well: TURN_FOUND_MAX records a turn, for all look-ups.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field

import numpy as np

from horolog.broker.recall.control_scans import ControlScan
from horolog.broker.recall.look_ups import find_in_parts
from horolog.broker.shard import Shard
from horolog.errors import HorologError
from horolog.limits import TURN_FOUND_MAX
from horolog.log.controls import Outcome
from horolog.log.record import Kind
from horolog.protocol.commands import FindMessages, FoundMessage, MessageState, Recall
from horolog.protocol.rocketmq.message import key_hash


@dataclass
class _Task:
    parts: Generator[int] | None = None  # finds the messages; None: they are found
    found: list[FoundMessage] = field(default_factory=list)
    doubtful: set[int] = field(default_factory=set)  # origins of messages that may have expired
    refusal: HorologError | None = None
    scan: ControlScan | None = None
    expired: set[int] = field(default_factory=set)  # origins

    @property
    def is_done(self) -> bool:
        """Whether there is nothing to find or to search any more."""
        return self.parts is None and (self.scan is None or self.scan.done)


class Endings:
    """Look-ups that search the log for the endings of their messages, by command token."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._tasks: dict[object, _Task] = {}

    @property
    def wants_turn(self) -> bool:
        """Whether there is more to do at once."""
        return any(not task.is_done for task in self._tasks.values())

    def is_searching(self, token: object, command: FindMessages, adopted: Sequence[Recall]) -> bool:
        """Return whether the look-up is under way; the first call begins it.

        Refuses as `find_messages` does.
        """
        task = self._tasks.get(token)
        if task is None:
            task = self._tasks[token] = _Task()
            task.parts = self._find(task, command, adopted)
        if task.refusal is not None:
            raise task.refusal
        return not task.is_done

    def take(self, token: object) -> list[FoundMessage]:
        """Return the found messages, each with its ending, and forget the look-up."""
        task = self._tasks.pop(token)
        if task.scan is None:
            return task.found
        unknown = MessageState.RECALLED if task.scan.whole else MessageState.ENDED
        return [
            each._replace(state=MessageState.EXPIRED if each.origin in task.expired else unknown)
            if each.origin in task.doubtful
            else each
            for each in task.found
        ]

    def end(self, token: object) -> None:
        """Forget the look-up of a command that is answered."""
        self._tasks.pop(token, None)

    def work(self) -> None:
        """Do some parts of look-ups, and search a piece of the log for the first that needs it."""
        left = TURN_FOUND_MAX
        for task in self._tasks.values():
            while left > 0 and task.parts is not None:
                left -= self._do_part(task, task.parts)
        for task in self._tasks.values():
            if task.scan is None or task.scan.done:
                continue
            for logged in task.scan.scan_next():
                if logged.control.kind is not Kind.RECALL_MANY:
                    continue
                ended = logged.control.ended()
                if ended is not None and ended.outcome is Outcome.EXPIRED:
                    task.expired.update(
                        task.doubtful.intersection(ended.origins["position"].tolist())
                    )
            if task.expired == task.doubtful:
                task.scan.end()
            return

    @staticmethod
    def _do_part(task: _Task, parts: Generator[int]) -> int:
        """Do one part of a look-up; return what it costs, in records."""
        try:
            return next(parts)
        except StopIteration:
            task.parts = None
        except HorologError as error:
            if error.fatal:
                raise
            task.parts, task.refusal = None, error
        return 1

    def _find(
        self, task: _Task, command: FindMessages, adopted: Sequence[Recall]
    ) -> Generator[int]:
        """Find the messages, and begin to search the log for those that may have expired."""
        task.found = yield from find_in_parts(self._shard, command, adopted)
        dues_ms = []
        for number, each in enumerate(task.found, 1):
            if self._is_doubtful(each):
                task.doubtful.add(each.origin)
                dues_ms.append(each.due_ms)
            if number % TURN_FOUND_MAX == 0:
                yield TURN_FOUND_MAX
        if dues_ms:
            log = self._shard.log
            due_ms = min(dues_ms)
            bases = [
                base for base, newest_ms in sorted(log.newest_ms.items()) if newest_ms >= due_ms
            ]
            task.scan = ControlScan(log, bases[0] if bases else log.end, log.commit_position)

    def _is_doubtful(self, view: FoundMessage) -> bool:
        """Return whether a message ended in a way that only the log can tell."""
        shard = self._shard
        if view.state is not MessageState.RECALLED or not shard.expired:
            return False
        topic = shard.topics.get(view.topic)
        refs = shard.delay.find_key(key_hash(topic.name, view.message_id), topic.id, view.due_ms)
        return not bool(np.isin(view.origin, shard.delay.entries(refs)["origin"]))
