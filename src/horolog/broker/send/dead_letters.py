"""Dead letters: count and list them, and re-drive each once, as a new message.

Progress of re-driving is kept as that of an internal consumer group, REDRIVING, in the topic of the
dead letters: the group consumes a letter when the letter is sent again, in the same frame as its
new message.  So the log, a checkpoint and retention treat it like any progress, a crash keeps both
or neither, and a repeated request finds nothing left to do.

The letters of a late policy are in topics of their own (`retry.dead_letter_topic`), and are
re-driven in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from horolog.broker.effects import Now, Reply
from horolog.broker.groups import Groups
from horolog.broker.life.space import DiskPressure
from horolog.broker.send.group_queues import draw_queues
from horolog.broker.send.message_frames import append_messages
from horolog.broker.send.sends import too_late
from horolog.broker.shard import Shard
from horolog.broker.topics import Topic
from horolog.errors import ErrorCode, HorologError, refused
from horolog.limits import TURN_READ_BYTES, TURN_READ_MAX, TURN_TOPICS_MAX
from horolog.log.control_records import encode_ack
from horolog.log.record import HEAD, HEAD_BYTES, Kind
from horolog.protocol.accepted import ACCEPTED
from horolog.protocol.dead_letter_commands import (
    CountDeadLetters,
    DeadLetter,
    DeadLetterCount,
    DeadLetterPage,
    LetterPlace,
    ListDeadLetters,
    Redrive,
    Redriven,
    RedrivenLetter,
    RefusedLetter,
)
from horolog.protocol.rocketmq import retry
from horolog.protocol.rocketmq.late_policy import LATE_PREFIX
from horolog.protocol.send_commands import MessageType
from horolog.ready.lease_life import Event
from horolog.ready.progress import QueueProgress

REDRIVING = "CID_RMQ_SYS_REDRIVE"
"""The internal consumer group that consumes re-driven dead letters; no client may use its name."""


class _Made(NamedTuple):
    """A dead letter, as the new message that is to be appended."""

    letter: RedrivenLetter
    topic: Topic
    record: bytes


class DeadLetters:
    """The dead letters of a shard; `flush` appends the letters that a turn re-drives."""

    def __init__(self, shard: Shard, groups: Groups, disk: DiskPressure) -> None:
        self._shard = shard
        self._groups = groups
        self._disk = disk
        self._waiting: list[tuple[object, Redrive]] = []

    # --- questions --------------------------------------------------------------------------------

    def count(self, command: CountDeadLetters) -> list[DeadLetterCount]:
        """Count the dead letters of one turn's worth of groups, by group name."""
        if command.group:
            topic = self._topic(command.group)
            return [self._count(topic)] if topic is not None else []
        found: list[DeadLetterCount] = []
        for prefix in retry.LETTER_PREFIXES:
            after = max(prefix, retry.dead_letter_topic(command.after) if command.after else "")
            for topic in self._shard.topics.page(after, TURN_TOPICS_MAX - len(found)):
                if not topic.name.startswith(prefix):
                    break
                found.append(self._count(topic))
        return found

    def _count(self, topic: Topic) -> DeadLetterCount:
        kept = redriven = 0
        for queue_id, queue in enumerate(topic.queues):
            kept += queue.length - queue.first
            if (progress := self._progress(topic, queue_id)) is not None:
                below = progress.acked.count_below(queue.length)
                redriven += max(0, progress.floor - queue.first) + below
        return DeadLetterCount(retry.group_of_letters(topic.name), kept - redriven, redriven)

    def page(self, command: ListDeadLetters) -> DeadLetterPage:
        """Return one page of dead letters with their stored messages.

        Raise BAD_REQUEST for a bad limit; GROUP_NOT_FOUND if nothing is known of the group.
        """
        limit = _checked(command.limit)
        topic = self._known(command.group)
        if topic is None:
            return DeadLetterPage([], None)
        found: list[DeadLetter] = []
        size = 0
        for place in self._places(topic, command.first, all=command.all):
            if len(found) == limit or size > TURN_READ_BYTES:
                return DeadLetterPage(found, place)
            record = self._read(topic, place)
            if record is not None:
                size += len(record)
                found.append(
                    DeadLetter(place, self._is_redriven(topic, place), record[HEAD_BYTES:])
                )
        return DeadLetterPage(found, None)

    def _topic(self, group: str) -> Topic | None:
        return self._shard.topics.by_name.get(retry.dead_letter_topic(group))

    def _known(self, group: str) -> Topic | None:
        """Return the topic of a group's dead letters; None if there is none.

        Raise GROUP_NOT_FOUND for an unknown group.
        """
        topic = self._topic(group)
        if topic is None and not group.startswith(LATE_PREFIX):
            self._groups.existing_id(group)
        return topic

    def _progress(self, topic: Topic, queue_id: int) -> QueueProgress | None:
        group_id = self._shard.ready.groups.ids.get(REDRIVING)
        return (
            None
            if group_id is None
            else self._shard.ready.progress_if_any(group_id, topic.id, queue_id)
        )

    def _is_redriven(self, topic: Topic, place: LetterPlace) -> bool:
        progress = self._progress(topic, place.queue)
        if progress is None:
            return False
        return place.offset < progress.floor or place.offset in progress.acked

    def _places(self, topic: Topic, first: LetterPlace, *, all: bool) -> Iterator[LetterPlace]:
        """Yield places of dead letters from `first` on: only those not re-driven yet, or all."""
        for queue_id in range(first.queue, len(topic.queues)):
            queue = topic.queues[queue_id]
            at = max(first.offset if queue_id == first.queue else 0, queue.first)
            progress = None if all else self._progress(topic, queue_id)
            if progress is not None:
                at = max(at, progress.floor)
                for gone, stop in list(progress.acked.runs()):
                    yield from (LetterPlace(queue_id, n) for n in range(at, gone))
                    at = max(at, stop)
            yield from (LetterPlace(queue_id, n) for n in range(at, queue.length))

    def _read(self, topic: Topic, place: LetterPlace) -> bytes | None:
        """Read the record of a dead letter; return None for a hole in the queue.

        Raise DAMAGED if the queue cannot be read there.
        """
        return self._shard.queued.record_at(topic, place.queue, place.offset)

    # --- re-driving -------------------------------------------------------------------------------

    def add(self, token: object, command: Redrive, now: Now) -> None:
        """Queue a re-drive for `flush`.

        Raise BAD_REQUEST, GROUP_NOT_FOUND, DISK_FULL, and the refusals of the target topic and of
        the due time.
        """
        shard = self._shard
        _checked(command.limit)
        self._known(command.group)
        if command.to:
            shard.topics.get(command.to).check_writable()
        refusal = too_late(command.due_ms, now.wall_ms, shard.settings.max_delay_ms)
        if refusal is not None:
            raise refusal
        self._disk.check(
            now.mono_ms, now.wall_ms, 0 if command.dry_run else self._shard.log.frame_bytes_max
        )
        if not command.dry_run:
            self._groups.make_own(REDRIVING)
        self._waiting.append((token, command))

    def flush(self, wall_ms: int) -> list[Reply]:
        """Append the queued re-drives; return the replies, to hold until the commit."""
        waiting, self._waiting = self._waiting, []
        return [Reply(token, self._answer(command, wall_ms)) for token, command in waiting]

    def _answer(self, command: Redrive, wall_ms: int) -> Redriven | HorologError:
        try:
            return self._redrive(command, wall_ms)
        except HorologError as error:
            if error.fatal:
                raise
            return error.without_traceback()

    def _redrive(self, command: Redrive, wall_ms: int) -> Redriven:
        done = Redriven()
        topic = self._topic(command.group)
        if topic is None:
            return done
        made: list[_Made] = []
        size, most = 0, min(command.limit, TURN_READ_MAX)
        for place in self._wanted(topic, command, done):
            if len(made) + len(done.refused) >= most:
                done.next = place
                break
            try:
                record = self._read(topic, place)
            except HorologError:
                if not (made or done.refused):
                    raise
                done.next = place
                break
            if record is None:
                continue
            due_ms = _due_ms(command, len(made))
            try:
                each = self._make(command, place, record[HEAD_BYTES:], due_ms, wall_ms)
            except HorologError as error:
                name = retry.letter_of(record[HEAD_BYTES:]).message_id
                done.refused.append(RefusedLetter(place, name, error.without_traceback()))
                continue
            if made and size + len(each.record) > self._shard.log.frame_bytes_max:
                done.next = place
                break
            made.append(each)
            size += len(each.record)
        if made and not command.dry_run:
            self._append(topic, made, wall_ms)
        done.letters = [each.letter for each in made]
        return done

    def _wanted(self, topic: Topic, command: Redrive, done: Redriven) -> Iterator[LetterPlace]:
        if command.only is None:
            yield from self._places(topic, command.first, all=False)
            return
        for place in dict.fromkeys(command.only):
            if place.queue >= len(topic.queues):
                continue  # the topic was deleted since the caller has looked, and made again
            queue = topic.queues[place.queue]
            if self._is_redriven(topic, place):
                done.already += 1
            elif queue.first <= place.offset < queue.length:
                yield place

    def _make(
        self, command: Redrive, place: LetterPlace, stored: bytes, due_ms: int, wall_ms: int
    ) -> _Made:
        """Make a new message of a dead letter; raise HorologError if its topic refuses it."""
        letter = retry.letter_of(stored)
        to = command.to or letter.topic
        if not to:
            raise refused("to", "the dead letter does not say where it failed: name a topic")
        topic = self._shard.topics.get(to)
        topic.check_writable()
        if due_ms > wall_ms and MessageType.DELAY not in ACCEPTED[topic.type]:
            raise HorologError(
                ErrorCode.TYPE_CONFLICT,
                f"topic {to!r} takes {topic.type.value} messages, none that are due later: "
                "re-drive without delay and rate",
                field="to",
            )
        refusal = too_late(due_ms, wall_ms, self._shard.settings.max_delay_ms)
        if refusal is not None:
            raise refusal
        due_ms = due_ms if due_ms > wall_ms else 0
        answer = RedrivenLetter(place, to, letter.message_id, due_ms)
        return _Made(answer, topic, retry.redriven_record(stored, to, due_ms))

    def _append(self, topic: Topic, made: list[_Made], wall_ms: int) -> None:
        """Append one frame: REDRIVING consumes the letters, and the new messages follow."""
        group = self._shard.ready.groups.ids[REDRIVING]
        controls = []
        for queue_id, places in _by_queue(made).items():
            progress = self._shard.ready.progress_of(group, topic.id, queue_id)
            for offset in places:
                consumed = progress.consume(offset, Event.ACK)
                assert consumed, (topic.name, queue_id, offset)
            controls.append(encode_ack(group, topic.id, queue_id, places))
        records = b"".join(each.record for each in made)
        heads = np.concatenate([np.frombuffer(each.record, HEAD, 1) for each in made])
        queues = draw_queues([each.topic for each in made], heads["topic"])
        heads["kind"] = np.where(heads["due_ms"] > wall_ms, Kind.SCHEDULED, Kind.MESSAGE)
        heads["topic"] = [each.topic.id for each in made]
        append_messages(self._shard, records, heads, queues, wall_ms, controls=controls)


def _due_ms(command: Redrive, n: int) -> int:
    """Return when the n-th letter of this turn is due, in epoch ms."""
    return command.due_ms + ((command.done + n) * 1_000 // command.rate if command.rate else 0)


def _by_queue(made: list[_Made]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for each in made:
        found.setdefault(each.letter.place.queue, []).append(each.letter.place.offset)
    return found


def _checked(limit: int) -> int:
    """Return the limit; raise BAD_REQUEST unless one turn may read so many letters."""
    if not 1 <= limit <= TURN_READ_MAX:
        raise refused(
            "limit", f"{limit}; 1 to {TURN_READ_MAX} are allowed", f"1 to {TURN_READ_MAX}"
        )
    return limit
