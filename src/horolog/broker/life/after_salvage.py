"""Replay of a log after a salvage: fit later records to a shard that lacks what was given up.

A frame that says *salvaged* (`log.salvage`) stands for records that can no longer be read.  Frames
after it refer to them: a message has queue offset 20 where the queue ends at 10, a hand-over names
a message that was never scheduled, a lease is of a group that was never made.  From such a frame on

    a topic that a message is of              is made, as the message names it
    queue offsets that no message has         become holes: they count as consumed for groups
    the end of a message that was given up    is passed over
    progress of a group, an end or a check    is passed over if its group, topic, queue or
    of a transaction                          transaction is not known
    a topic, group or schedule whose name is  takes its place: the end of the other one was given up
    that of another one

A message whose hand-over was given up is still pending, and is handed over again.  All of this
follows from the log alone, so every replay comes to the same result.  Only a step of a tier that
does not follow from the steps before it is DAMAGED: the content of the tier cannot be guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from horolog.broker.columns import queue_ids
from horolog.broker.shard import Shard
from horolog.delay import pending
from horolog.delay.far.adopted import Adoption
from horolog.delay.tier import Step
from horolog.errors import ErrorCode, HorologError, Problem, refused
from horolog.log.controls import Control
from horolog.log.frame import HEADER_BYTES, FrameHeader, parse
from horolog.log.record import HEAD_BYTES, Kind
from horolog.log.salvage import salvaged_path, salvaged_positions
from horolog.log.segment import SegmentReader
from horolog.protocol.commands import TopicType
from horolog.protocol.rocketmq import layout
from horolog.units import counted


def given_up_before(shard: Shard, reader: SegmentReader) -> list[Problem]:
    """Return what salvages gave up below a checkpoint, where no replay reads.

    Only stretches whose bytes are still kept are returned.
    """
    found = []
    for first in salvaged_positions(shard.storage, shard.directory):
        if not shard.storage.is_file(reader.path(first)):
            # Retention has dropped the segment.
            continue
        header = parse(reader.bytes_around(first, HEADER_BYTES))
        if header is not None and header.base == first and header.salvaged:
            found.append(_given_up(shard, header))
    return found


def _given_up(shard: Shard, header: FrameHeader) -> Problem:
    path = salvaged_path(shard.directory, header.base)
    text = (
        f"commit log: what log positions {header.base} to {header.end} said was given up by a "
        f"salvage; {path} has the bytes"
    )
    return Problem(text, path, path)


class AfterSalvage:
    """Prepares a shard for records that follow what a salvage gave up, during a replay."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._lost = shard.delay.given_up  # log positions [first, stop)
        self._by_kind: Mapping[Kind, Callable[[Control], bool]] = {
            Kind.TOPIC: self._topic,
            Kind.GROUP: self._group,
            Kind.GRANT: self._grant,
            Kind.ACK: self._ack,
            Kind.OFFSETS: self._offsets,
            Kind.ADOPT: self._adopt,
            Kind.OFFLOAD: self._offload,
            Kind.HALF: self._half,
            Kind.HALF_CHECK: self._half_check,
            Kind.SCHEDULE: self._schedule,
        }

    def __bool__(self) -> bool:
        return bool(self._lost)

    def note(self, header: FrameHeader) -> None:
        """Note a frame that stands for what was given up."""
        self._lost.append((header.base, header.end))
        self._shard.problems.append(_given_up(self._shard, header))

    def prepare(self, control: Control) -> bool:
        """Prepare the shard for a control record; return False if it is to be passed over."""
        fit = self._by_kind.get(control.kind)
        return fit is None or fit(control)

    # --- messages ---------------------------------------------------------------------------------

    def make_topics(self, heads: npt.NDArray[Any], at: npt.NDArray[np.int64], body: bytes) -> None:
        """Make the missing topics and queues of the messages of a frame."""
        of_queue = queue_ids(np.frombuffer(body, np.uint8), at)
        for topic_id in np.unique(heads["topic"]).tolist():
            rows = np.flatnonzero(heads["topic"] == topic_id)
            first, size = int(at[rows[0]]), int(heads["size"][rows[0]])
            stored = body[first + HEAD_BYTES : first + size]
            self._make_queues(topic_id, int(of_queue[rows].max()) + 1, stored)

    def _make_queues(self, topic_id: int, queues: int, stored: bytes) -> None:
        """Make sure that a topic has `queues` queues; `stored` is the layout of one message."""
        topics = self._shard.topics
        known = topics.by_id.get(topic_id)
        if known is None:
            name = layout.topic_and_properties(stored)[0]
            self._take_name(name, topic_id)
            topics.put(topic_id, name, TopicType.MIXED, queues)
            self._shard.problems.append(
                f"topic {name}: its record was given up by a salvage; it was made again from its"
                f" messages, with {counted(queues, 'queue')} and the type mixed"
            )
        elif queues > len(known.queues):
            topics.put(topic_id, known.name, known.type, queues, known.settings)

    def fill(self, topic_id: int, queue_id: int, length: int) -> None:
        """Fill a queue of a topic with holes up to `length`: the messages in it were given up."""
        topics = self._shard.topics
        topic = topics.by_id[topic_id]
        if queue_id >= len(topic.queues):
            topics.put(topic_id, topic.name, topic.type, queue_id + 1, topic.settings)
        queue = topic.queues[queue_id]
        if queue.fill_holes(length):
            topic.tails[queue_id] = max(topic.tails[queue_id], queue.length)
            self._shard.visible.add((topic_id, queue_id))

    # --- control records: False if their subject does not exist -----------------------------------

    def _topic(self, control: Control) -> bool:
        row = control.content
        known = self._shard.topics.by_id.get(row["number"])
        if row.get("deleted"):
            return known is not None
        self._take_name(row["name"], row["number"])
        if known is not None:
            known.type = TopicType(row["type"])
        return True

    def _take_name(self, name: str, topic_id: int) -> None:
        """Free a name for a topic.

        Another topic with that name was deleted, and the record of that was given up.
        """
        other = self._shard.topics.by_name.get(name)
        if other is not None and other.id != topic_id:
            if pending.by_topic(self._shard.delay).get(other.id):
                raise self._misfit(
                    self._lost[-1][0], f"the end of topic {name}, of which messages wait"
                )
            self._shard.drop_topic(other.id, self._lost[-1][0])

    def _group(self, control: Control) -> bool:
        row, groups = control.content, self._shard.ready.groups
        if row.get("deleted"):
            return row["number"] in groups.names
        other = groups.ids.get(row["name"])
        if other is not None and other != row["number"]:
            self._shard.ready.drop_group(other)
        return True

    def _is_known(self, group: int, topic: int) -> bool:
        return topic in self._shard.topics.by_id and group in self._shard.ready.groups.names

    def _grant(self, control: Control) -> bool:
        grant = control.content
        if not self._is_known(grant.group, grant.topic):
            return False
        after = [grant.next_offset, *(grant.granted["offset"] + 1).tolist()]
        self.fill(grant.topic, grant.queue, max(after))
        return True

    def _ack(self, control: Control) -> bool:
        ack = control.content
        if not self._is_known(ack.group, ack.topic):
            return False
        self.fill(ack.topic, ack.queue, int(ack.offsets.max()) + 1)
        return True

    def _offsets(self, control: Control) -> bool:
        record = control.content
        if not self._is_known(record.group, record.topic):
            return False
        for queue, offset in record.committed.tolist():
            self.fill(record.topic, queue, offset)
        return True

    def _adopt(self, control: Control) -> bool:
        adoption = Adoption.of(control.position, control.content)
        promotion = adoption.promotion
        if adoption.topic not in self._shard.topics.by_id:
            raise self._misfit(
                control.position, f"a bulk load into topic {adoption.topic}, which is not known"
            )
        if promotion is not None and not self._shard.tier.follows(promotion):
            raise self._misfit(
                control.position, f"the promotion {promotion.app}, hour {promotion.hour}"
            )
        return True

    def _offload(self, control: Control) -> bool:
        step = Step(*control.content)
        if not self._shard.tier.follows(step):
            raise self._misfit(control.position, f"the step {step.fields['step']!r} of an offload")
        return True

    def _misfit(self, position: int, what: str) -> HorologError:
        return refused(
            "--data-dir",
            f"log position {position}: {what}, does not follow from what is left of the log since "
            "a salvage; restore a backup",
            code=ErrorCode.DAMAGED,
        )

    def _half(self, control: Control) -> bool:
        half, halves = control.content, self._shard.halves
        queue_id, half_offset = layout.queue_id_of(half.layout), layout.queue_offset_of(half.layout)
        self._make_queues(int(half.head["topic"]), queue_id + 1, half.layout)
        halves.last_offset = max(halves.last_offset, half_offset - 1)
        return True

    def _half_check(self, control: Control) -> bool:
        # The first row of a transaction counts, and a record may have several.
        for position, _, checks in reversed(control.content.tolist()):
            half = self._shard.halves.open.get(position)
            if half is not None:
                half.checks = checks - 1
        return True

    def has_half(self, position: int) -> bool:
        """Return whether a transaction is known; the start of one may have been given up."""
        return not self._lost or position in self._shard.halves.open

    def _schedule(self, control: Control) -> bool:
        row, schedules = control.content, self._shard.schedules
        if row.get("deleted") or "rule" not in row:
            return row["id"] in schedules.by_id
        other = schedules.by_name.get(row["name"])
        if other is not None and other.schedule_id != row["id"]:
            schedules.drop(other.schedule_id)
        return True
