"""Disk pressure: whether there is space for a send, beside all that was promised before it.

That is P9 of docs/concepts.  New messages need free space for

    the control reserve      acks, recalls, leases, and whatever else a turn appends
    two checkpoints          as large as the last one: a new one is written before an old one is
                             removed
    far messages             that have still to be written as a run
    messages due soon        within the next hour: at hand-over they are appended once more
    half messages            of open transactions: at a commit they are appended once more, and
                             perhaps filed

The share of the log may also be in segments that are allocated already.  With less space,
everything that brings or copies messages is refused, with these figures: sends, new topics,
reschedules and bulk moves.  Everything else goes on in the space kept free; merges of runs wait,
and the log grows frame by frame when a whole segment would take too much.  Free space is looked up
once a second, and cheaply; in between sent bytes are counted three times: in the log, in the hour
or buffer, and at the hand-over.

Records that only end messages are appended to the log and nowhere else.  A bulk recall may be large
all the same, so its pieces stop where the log has half of the reserve left, free or allocated: acks
and single recalls need that.
"""

from __future__ import annotations

from typing import NamedTuple

from horolog.broker.shard import Shard
from horolog.errors import ErrorCode, HorologError, refused
from horolog.limits import HOUR_MS, SECOND_MS
from horolog.log.segment import segment_name

COPIES = 3  # of each sent message: in the log, in its hour or buffer, at hand-over
# The free space cannot be looked up: no file descriptor is left, or a read fails
_CANNOT_LOOK = frozenset({ErrorCode.TOO_MANY_FILES, ErrorCode.DISK_FAILED})


class Needs(NamedTuple):
    """Bytes that must be free before new messages are accepted."""

    reserve: int
    checkpoints: int
    unflushed: int
    due: int
    halves: int

    @property
    def total(self) -> int:
        """The sum of all needs."""
        return sum(self)

    @property
    def log(self) -> int:
        """The share of the log, half of the reserve included."""
        return self.reserve // 2 + self.due + self.halves

    @property
    def files(self) -> int:
        """The share of other files."""
        return self.total - self.log


class DiskPressure:
    """The disk space of one shard; `shard.disk_refusal` says why sends are refused, if they are."""

    def __init__(self, shard: Shard) -> None:
        self.keep_free = 0  # bytes that the allocation of segments must leave
        self.is_confined = False  # the log gets no further segment, although bytes are free
        self._shard = shard
        self._looked_ms = -SECOND_MS  # monotonic, at the last look-up
        self._free = self._allocated = self._room = 0  # at the last look-up
        self._needs = Needs(0, 0, 0, 0, 0)
        self._taken = 0  # since the last look-up, in all copies
        self._turn_bytes = 0  # bytes sent in this turn, not appended yet

    def check_invariants(self) -> None:
        """Check that bytes sent in a turn are counted in all copies, and none is negative."""
        assert self._turn_bytes >= 0, self._turn_bytes
        assert self._taken >= COPIES * self._turn_bytes, (self._taken, self._turn_bytes)
        assert min(self._needs) >= 0, self._needs
        assert self.keep_free == self._needs.files, (self.keep_free, self._needs)
        assert min(self._free, self._allocated) >= 0, (self._free, self._allocated)
        assert self._room <= self._free + self._allocated, (self._room, self._free)

    @property
    def headroom(self) -> int:
        """Bytes of new messages, in all copies, before sends are refused; by the last look-up."""
        return max(0, self._room - self._taken - self._needs.total)

    @property
    def needed(self) -> int:
        """Bytes that must stay free for what was promised; as of the last look-up."""
        return self._needs.total

    def begin_turn(self) -> None:
        """Begin a turn: messages sent before are appended."""
        self._turn_bytes = 0

    def check(self, mono_ms: int, wall_ms: int, size: int) -> None:
        """Reserve space for `size` bytes of messages; raise DISK_FULL if there is none."""
        self.refresh(mono_ms, wall_ms)
        refusal = self._shard.disk_refusal
        if refusal is None and self._room - self._taken - COPIES * size < self._needs.total:
            refusal = self._refusal()
        if refusal is not None:
            self._shard.counters.refused_for_space += 1
            raise refusal
        self._turn_bytes += size
        self._taken += COPIES * size

    def check_copies(self, mono_ms: int, wall_ms: int, done: int) -> None:
        """Check the space before a piece of a bulk move.

        Raise DISK_FULL, as before a send; it names the `done` messages moved before.
        """
        try:
            self.check(mono_ms, wall_ms, 0)
        except HorologError as error:
            if error.code is not ErrorCode.DISK_FULL:
                raise
            raise HorologError(
                error.code,
                f"{error.message}; {done} messages were moved before",
                field=error.field,
                limit=error.limit,
            ) from error

    def count_copied(self, size: int) -> None:
        """Count the bytes of copies that a piece of a bulk move has appended."""
        self._taken += COPIES * size

    def check_ends(self, done: int) -> None:
        """Check the space before a piece of a bulk recall.

        Raise DISK_FULL, naming the `done` messages cancelled before, if acks need what is left.
        The space is looked up for every piece: thousands of pieces may come between two look-ups.
        """
        reserve = self._shard.settings.reserve_bytes // 2
        try:
            room = self._shard.storage.free_bytes() + self._log_space()
        except HorologError as error:
            if error.code not in _CANNOT_LOOK:
                raise
            return  # the next piece looks again
        if room < reserve:
            raise refused(
                "disk",
                f"less than {reserve} bytes are left for the log, {room} free or allocated; "
                f"{done} messages were cancelled before",
                f"{reserve} bytes",
                code=ErrorCode.DISK_FULL,
            )

    def refresh(self, mono_ms: int, wall_ms: int) -> None:
        """Look up the free space, if the figures are too old; recompute the refusal.

        They are too old after a second, or when much was sent since.
        """
        shard = self._shard
        enough = max(shard.settings.reserve_bytes // 8, 1)
        if mono_ms - self._looked_ms < SECOND_MS and self._taken < enough:
            return
        self._looked_ms = mono_ms
        self._needs = needs = Needs(
            shard.settings.reserve_bytes,
            2 * shard.checkpoint_bytes,
            shard.delay.unflushed_bytes,
            self._bytes_due(wall_ms),
            2 * shard.halves.bytes,
        )
        self.keep_free = needs.files
        unwritten = shard.log.end - shard.log.commit_position
        self._taken = COPIES * (unwritten + self._turn_bytes)
        try:
            self._free = shard.storage.free_bytes()
            self._allocated = max(0, self._log_space())
        except HorologError as error:
            if error.code not in _CANNOT_LOOK:
                raise
            # Figures of a second ago will do; a dead disk shows at the next write.
        self._room = self._free + min(self._allocated, needs.log)
        left = self._room - self._taken
        if left < needs.total:
            shard.disk_refusal = self._refusal()
        elif shard.delay.stalled:
            shard.disk_refusal = self._unfiled_refusal()
        elif self.is_confined and self._allocated < needs.total:
            shard.disk_refusal = self._confined_refusal()
        else:
            shard.disk_refusal = None
        shard.delay.far.compaction.room = max(0, left - needs.total)

    def _bytes_due(self, wall_ms: int) -> int:
        """Return the bytes due within an hour; as of the last look-up if no run can be opened."""
        try:
            return self._shard.delay.bytes_due_before(wall_ms + HOUR_MS)
        except HorologError as error:
            if error.code is not ErrorCode.TOO_MANY_FILES:
                raise
            return self._needs.due

    def _log_space(self) -> int:
        """Return how many bytes after the log end are allocated.

        Less than 0 if the log is not written so far.
        """
        log, storage = self._shard.log, self._shard.storage
        base = log.end - log.end % log.segment_bytes
        allocated = base
        while allocated == base:
            path = f"{self._shard.directory}/log/{segment_name(base)}"
            if not storage.exists(path):
                break
            file = storage.open(path)
            allocated = base + file.size()
            file.close()
            base += log.segment_bytes
        return allocated - log.end

    def _refusal(self) -> HorologError:
        needs = self._needs
        halves = f", {needs.halves} for open transactions" if needs.halves else ""
        return refused(
            "disk",
            f"{self._free} bytes are free, and {self._allocated} in segments of the log; before a "
            f"new message {needs.total} are needed: {needs.reserve} in reserve, "
            f"{needs.checkpoints} for checkpoints, {needs.unflushed} for far messages, {needs.due} "
            f"for what is due within the hour{halves} (acks, recalls and hand-over go on)",
            f"{needs.total} bytes",
            code=ErrorCode.DISK_FULL,
        )

    def _confined_refusal(self) -> HorologError:
        """Return the refusal where bytes are free but the log gets no segment.

        The allocated space is kept for acks, recalls and hand-over.
        """
        needed = self._needs.total
        return refused(
            "disk",
            f"the log gets no further segment although {self._free} bytes are free: inodes, a "
            f"quota or file descriptors are used up; {self._allocated} bytes are allocated, and "
            f"before a new message {needed} are needed (acks, recalls and hand-over go on)",
            f"{needed} bytes",
            code=ErrorCode.DISK_FULL,
        )

    def _unfiled_refusal(self) -> HorologError:
        """Return the refusal where bytes are free but no file takes messages.

        New messages would wait in memory, and be late.
        """
        waiting = sum(len(unfiled.heads) for unfiled in self._shard.delay.stalled)
        return refused(
            "disk",
            f"{waiting} scheduled messages wait in memory, as the disk takes no more files or "
            f"bytes although {self._free} bytes are free: inodes, a quota or file descriptors are "
            "used up (acks, recalls and hand-over of all others go on)",
            code=ErrorCode.DISK_FULL,
        )
