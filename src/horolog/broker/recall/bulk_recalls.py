"""Bulk recalls and moves: a topic's pending messages due in a window, a bounded piece a turn.

A piece reads BULK_ROWS index entries of one source after the other, marks the matching ones as
being recalled, and names them in a RECALL_MANY record.  Hand-over and single recalls go on in
between; the first to mark a message takes it, so each is counted once.  A piece of a move copies
fewer messages (`bulk_moves`).

The command covers messages appended before it arrived, so it begins when these are filed.  Its
progress is kept for every source by the source's id.  If a job exchanges sources meanwhile, the new
ones are read from their start: recalled messages are not pending any more.  A dry run marks
nothing, so the broker exchanges no sources while one is under way.  A real bulk recall skips a
source while a job reads that, since messages settled then have to be looked up in the job's
results, row by row.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from horolog.broker.applied import Settled
from horolog.broker.effects import Now, Reply
from horolog.broker.life.space import DiskPressure
from horolog.broker.recall.bulk_moves import move, was_moved_by
from horolog.broker.shard import Shard
from horolog.delay.entry import is_readable
from horolog.delay.far.buffer import FarBuffer
from horolog.delay.far.run import FarRun
from horolog.delay.lanes import lanes_of
from horolog.delay.near.hour import Hour
from horolog.delay.source import ROW_MASK, Rows, refs_of
from horolog.delay.state import EntryState
from horolog.errors import ErrorCode, HorologError, refused
from horolog.limits import BULK_MOVED_BYTES, BULK_MOVED_ROWS, BULK_ROWS, BULK_TAGGED_ROWS
from horolog.log.control_records import RECALL_MANY_BYTES, RECALLED, encode_recall_many
from horolog.log.record import HEAD_BYTES, LANE_BYTES
from horolog.protocol.commands import RecalledMany, RecallMany
from horolog.protocol.move_commands import BulkAct, BulkView, MovedMany, MoveMany
from horolog.protocol.rocketmq import layout, properties
from horolog.protocol.rocketmq.tags import tags_code

_Source = Hour | FarBuffer | FarRun
_NO_REFS = np.empty(0, np.int64)


@dataclass
class _Task:
    token: object
    command: RecallMany | MoveMany
    topic: int
    bound: int  # log end when it arrived
    matched: int = 0
    done: int = 0  # recalled, or moved
    left: int = 0  # matched, and cannot be moved
    bytes: int = 0  # of matched messages
    begun: bool = False
    at: dict[int, int] = field(default_factory=dict)  # source id → next row, −1: done
    stops: dict[int, int] = field(default_factory=dict)  # id of hour or buffer → its rows at first

    @property
    def result(self) -> RecalledMany | MovedMany:
        """The result for the reply to the command."""
        if isinstance(self.command, MoveMany):
            return MovedMany(self.matched, self.done, self.bytes, self.left)
        return RecalledMany(self.matched, self.done, self.bytes)

    @property
    def view(self) -> BulkView:
        """The progress, as operators see it."""
        wanted, act = self.command, BulkAct.RECALL
        if isinstance(wanted, MoveMany):
            act = BulkAct.HAND_OVER if wanted.now else BulkAct.RESCHEDULE
        window = (wanted.topic, wanted.from_ms, wanted.to_ms, wanted.tag, wanted.dry_run)
        return BulkView(act, *window, self.operation, self.matched, self.done)

    @property
    def makes_copies(self) -> bool:
        """Whether messages are copied, not only marked."""
        return isinstance(self.command, MoveMany) and not self.command.dry_run

    @property
    def operation(self) -> str:
        """The name of a shift, which skips messages that it has moved already."""
        return self.command.operation if isinstance(self.command, MoveMany) else ""


class _Match(NamedTuple):
    """Messages that match the command: references, and their ENTRY rows."""

    refs: npt.NDArray[np.int64]
    entries: npt.NDArray[Any]


class Piece(NamedTuple):
    """The records, settled messages and replies of one turn."""

    records: list[bytes]
    settled: list[Settled]
    replies: list[Reply]


class BulkRecalls:
    """The queue of bulk recalls and moves, done one after the other."""

    def __init__(self, shard: Shard, disk: DiskPressure) -> None:
        self._shard = shard
        self._disk = disk
        self._tasks: deque[_Task] = deque()
        self._has_more = False
        self._piece_at = -1  # log end when the last piece was begun that has appended something

    @property
    def wants_turn(self) -> bool:
        """Whether there is more to do at once."""
        return self._has_more

    @property
    def under_way(self) -> bool:
        """Whether a bulk command is not done: its messages must not leave for the tier."""
        return bool(self._tasks)

    @property
    def is_uncommitted(self) -> bool:
        """Whether a piece is uncommitted: the disk sets the pace, replies wait for one at most."""
        return self._piece_at >= self._shard.log.commit_position

    def views(self) -> list[BulkView]:
        """Return the progress of all bulk commands, in the order in which they are done."""
        return [task.view for task in self._tasks]

    @property
    def begins_at(self) -> int | None:
        """Log position up to which all must be applied before the first begins; None: no wait."""
        return self._tasks[0].bound if self._tasks and not self._tasks[0].begun else None

    @property
    def is_counting(self) -> bool:
        """Whether a dry run is under way: sources must stay as they are."""
        return bool(self._tasks) and self._tasks[0].begun and self._tasks[0].command.dry_run

    def add(self, token: object, command: RecallMany | MoveMany) -> None:
        """Queue a command that was checked; raise BAD_REQUEST or TOPIC_NOT_FOUND."""
        topic = self._shard.topics.get(command.topic)
        if command.from_ms >= command.to_ms:
            raise refused("to", "the window ends before it begins")
        self._tasks.append(_Task(token, command, topic.id, self._shard.log.end))

    def work(self, now: Now) -> Piece:
        """Do one piece of the first command; moved messages are appended at once."""
        piece = Piece([], [], [])
        self._has_more = False
        if not self._tasks:
            return piece
        task = self._tasks[0]
        begun_at, done_before = self._shard.log.end, task.done
        try:
            self._begin(task)
            done = self._do_piece(task, piece, now)
            if task.done != done_before:
                self._piece_at = begun_at
        except HorologError as error:
            if error.fatal:
                raise
            piece.replies.append(Reply(task.token, error.without_traceback()))
            self._tasks.popleft()
            self._has_more = True
            return piece
        if done:
            piece.replies.append(Reply(task.token, task.result))
            self._tasks.popleft()
            self._has_more = True
        return piece

    def _begin(self, task: _Task) -> None:
        """Record the lengths of the sources, now that everything before the command is filed."""
        shard = self._shard
        if task.begun:
            return
        if shard.delay.stalled:
            raise HorologError(
                ErrorCode.DISK_FULL, "disk: full; some messages cannot be filed, nor recalled, now"
            )
        assert shard.is_applied(task.bound), "it waits for that"
        for source in shard.delay.sources_between(task.command.from_ms, task.command.to_ms):
            if not isinstance(source, FarRun):
                task.stops[source.source_id] = source.count
        task.begun = True

    def _do_piece(self, task: _Task, piece: Piece, now: Now) -> bool:
        """Read the next rows of all sources; return True when there are no more."""
        command = task.command
        found: list[_Match] = []
        postponed = False
        left = BULK_ROWS
        room = _Room(BULK_MOVED_ROWS, BULK_MOVED_BYTES)  # for copies
        if task.makes_copies:
            left = BULK_TAGGED_ROWS  # most rows may be of other topics
        elif not command.dry_run:
            left = self._rows_of_a_record()
        if task.makes_copies:
            self._disk.check_copies(now.mono_ms, now.wall_ms, task.done)
        elif not command.dry_run:
            self._disk.check_ends(task.done)
        for source in self._shard.delay.sources_between(command.from_ms, command.to_ms):
            first = self._first(task, source)
            is_read = not isinstance(source, Hour) and source.journal is not None
            if first >= 0 and is_read and not command.dry_run:
                postponed = True
                continue
            while first >= 0 and left > 0:
                compares = bool(command.tag or task.operation)
                limit = min(left, BULK_TAGGED_ROWS) if compares else left
                if compares and task.makes_copies:
                    # Rows read beyond that would be read again for the next piece.
                    limit = min(limit, 2 * room.rows)
                if not isinstance(source, FarRun):
                    self._repair(source, source.damaged_between(first, first + limit))
                rows, after = source.rows_between(command.from_ms, command.to_ms, first, limit)
                # A run is sorted, so the rows to repair are known only now.
                if isinstance(source, FarRun):
                    self._repair(source, rows[~is_readable(source.entries(rows))])
                left -= limit if after >= 0 else 1 + len(rows)
                match, compared = self._matching(task, source, rows)
                left -= compared * (BULK_ROWS // BULK_TAGGED_ROWS)
                if task.makes_copies:
                    match, cut = room.take(match)
                    after = cut if cut >= 0 else after
                    left = 0 if room.is_full else left
                found.append(match)
                first = task.at[source.source_id] = after
        self._settle(task, found, piece, now.wall_ms)
        self._has_more = left <= 0
        return left > 0 and not postponed

    def _repair(self, source: _Source, rows: Rows) -> None:
        """Repair damaged entries, which do not say whether they match, from their records."""
        if len(rows):
            self._shard.delay.repair_entries(refs_of(source.source_id, rows))

    def _matching(self, task: _Task, source: _Source, rows: Rows) -> tuple[_Match, int]:
        """Find the matching rows among these; return also how many records were read."""
        entries = source.entries(rows)
        meant = (entries["topic"] == task.topic) & (entries["origin"] < task.bound)
        meant &= is_readable(entries)  # an entry that cannot be repaired is reported when it is due
        if isinstance(task.command, MoveMany) and task.command.new_due_ms is not None:
            meant &= entries["due_ms"] != task.command.new_due_ms  # due then already
        tag, operation = task.command.tag, task.operation
        if tag and not isinstance(source, Hour):
            meant[meant] = source.tags_of(entries[meant]) == tags_code(tag)
        rows, entries = rows[meant], entries.compress(meant)
        refs = refs_of(source.source_id, rows)
        if not (tag or operation) or not len(rows):
            return _Match(refs, entries), 0
        # Repaired now: a damaged one would not show that it matches, and be handed over when due.
        records, good = self._shard.delay.read_repaired(refs, entries)
        if tag:
            good &= source.tags_of(entries) == tags_code(tag)  # near ones: in the record
        for i in np.flatnonzero(good).tolist():
            is_meant = not tag or has_tag(records[i], tag)
            good[i] = is_meant and not (operation and was_moved_by(records[i], operation))
        return _Match(refs[good], entries.compress(good)), len(rows)

    def _first(self, task: _Task, source: _Source) -> int:
        """Return the row of a source to go on with; −1: none."""
        if not isinstance(source, FarRun) and source.source_id not in task.stops:
            return -1  # begun after the command, so nothing in it matches
        first = task.at.get(source.source_id, 0)
        return first if first < task.stops.get(source.source_id, first + 1) else -1

    def _rows_of_a_record(self) -> int:
        row = RECALLED.itemsize + LANE_BYTES
        most = BULK_TAGGED_ROWS if self._shard.lanes.waits else BULK_ROWS  # their records are read
        return max(1, min(most, (self._shard.log.frame_bytes_max - RECALL_MANY_BYTES) // row))

    def _settle(self, task: _Task, found: list[_Match], piece: Piece, wall_ms: int) -> None:
        """Count the matches and, if this is no dry run, recall or move them."""
        refs = np.concatenate([match.refs for match in found]) if found else _NO_REFS
        if not len(refs):
            return
        if isinstance(task.command, MoveMany) and not task.command.dry_run:
            entries = np.concatenate([match.entries for match in found])
            moved = move(self._shard, task.command, refs, entries, wall_ms)
            self._disk.count_copied(moved.bytes)
            task.matched += moved.moved + moved.left
            task.done += moved.moved
            task.left += moved.left
            task.bytes += moved.bytes
            return
        task.matched += len(refs)
        task.bytes += sum(int(match.entries["size"].sum()) for match in found)
        if task.command.dry_run:
            return
        task.done += len(refs)
        rows = np.empty(len(refs), RECALLED)
        for name, column in (("position", "origin"), ("row", "row"), ("due_ms", "due_ms")):
            rows[name] = np.concatenate([match.entries[column] for match in found])
        lanes = np.zeros(len(refs), np.uint16)
        if self._shard.lanes.waits:
            entries = np.concatenate([match.entries for match in found])
            records, good = self._shard.delay.read_repaired(refs, entries)
            lanes[good] = lanes_of(records)[good]
        self._shard.delay.mark_inflight(refs, EntryState.RECALLING)
        piece.records.append(encode_recall_many(task.topic, rows, lanes))
        piece.settled.append(Settled(refs, EntryState.RECALLED, lanes))


@dataclass
class _Room:
    """The room that a turn has left for copies."""

    rows: int
    bytes: int

    @property
    def is_full(self) -> bool:
        """Whether no room is left."""
        return self.rows <= 0 or self.bytes <= 0

    def take(self, match: _Match) -> tuple[_Match, int]:
        """Return the matches that have room, at least one, and the next row; −1: all had room."""
        ends = np.cumsum(match.entries["size"].astype(np.int64))
        fits = min(self.rows, int(np.searchsorted(ends, self.bytes, side="right")))
        fits = min(max(1, fits), len(ends))
        self.rows -= fits
        self.bytes -= int(ends[fits - 1]) if fits else 0
        if fits == len(ends):
            return match, -1
        self.rows = 0
        kept = _Match(match.refs[:fits], match.entries[:fits])
        return kept, int(match.refs[fits]) & ROW_MASK


def has_tag(record: memoryview, tag: str) -> bool:
    """Return whether the message in a record has that tag."""
    return properties.holds(layout.properties_of(record[HEAD_BYTES:]), properties.TAGS, tag)
