"""Group commit: write and sync the appends of several turns together.

While a write is under way, what further turns append gathers for the next write.  `flush = sync`
syncs every write, and `interval` every half second; with `os` the system decides when.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import perf_counter
from typing import Literal

from horolog.broker.life.space import DiskPressure
from horolog.clock import Clock
from horolog.histogram import Histogram
from horolog.limits import FLUSH_INTERVAL_MS, SECOND_MS, UNSYNCED_BYTES_MAX
from horolog.log.segment import SegmentWriter, Write
from horolog.server.jobs import Jobs
from horolog.server.meters import SECONDS

Flush = Literal["sync", "interval", "os"]


class GroupCommit:
    """Writes the log in a thread of its own.  Every method belongs to the event loop's thread.

    commit    log position below which the log is as durable as `flush` promises
    durable   log position below which the log is synced
    is_busy   a write is under way
    write_s   seconds that writes took, without their sync
    sync_s    seconds that syncs took
    written   bytes of the log handed to writes since the start
    """

    def __init__(
        self, writer: SegmentWriter, disk: DiskPressure, clock: Clock, flush: Flush, end: int
    ) -> None:
        self.commit = self.durable = end
        self.is_busy = False
        self.write_s = Histogram(SECONDS)
        self.sync_s = Histogram(SECONDS)
        self.written = 0
        self._writer = writer
        self._disk = disk
        self._clock = clock
        self._flush = flush
        self._gathered: list[Write] = []
        self._gathered_bytes = 0
        self._gathered_end = end
        self._synced_ms = 0  # monotonic, of the newest sync
        self._began_s = 0.0  # of the write under way
        self._next_segment_ms = 0  # monotonic, before which no further segment is prepared
        # Runs while written bytes are not synced (`flush = interval`).
        self._timer: asyncio.TimerHandle | None = None
        self._interval_is_over = False
        self._is_over = False  # no more jobs

    def begin(
        self,
        loop: asyncio.AbstractEventLoop,
        written: Callable[[], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        """Start the thread.

        `written` is called at the end of every write, or `fail` with the error if it failed.
        """
        self._loop = loop
        self._jobs = Jobs("horolog-log", loop)
        self._on_written = written
        self._fail = fail

    @property
    def is_quiet(self) -> bool:
        """Whether everything that was gathered is committed."""
        return not self.is_busy and not self._gathered and self.commit == self._gathered_end

    @property
    def under_way_s(self) -> float:
        """How long the write under way has taken, its sync included; 0 if there is none."""
        return perf_counter() - self._began_s if self.is_busy else 0.0

    @property
    def is_full(self) -> bool:
        """Whether the disk lags so far that turns must wait until a write ends."""
        return self._gathered_bytes > UNSYNCED_BYTES_MAX

    def gather(self, writes: list[Write], end: int) -> None:
        """Queue the writes of a turn, up to log position `end`."""
        self._gathered += writes
        self._gathered_bytes += sum(len(write.content) for write in writes)
        self._gathered_end = end

    def write(self) -> None:
        """Start a write of all gathered bytes, unless a write is under way."""
        if self.is_busy:
            return
        if self._disk.is_confined:
            self._prepare_next()  # nothing else may be written until the allocation succeeds
        if not self._gathered and not self._sync_is_due():
            return
        writes, self._gathered = self._gathered, []
        self._writer.keep_free = self._disk.keep_free
        end = self._gathered_end
        self.written += self._gathered_bytes
        self._gathered_bytes = 0
        self.is_busy = True
        self._began_s = perf_counter()
        sync = self._flush == "sync" or self._sync_is_due()
        if sync:
            self._end_interval()

        began = written = synced = 0.0

        def job() -> None:
            nonlocal began, written, synced
            began = perf_counter()
            self._writer.write(writes)
            written = perf_counter()
            if sync:
                self._writer.sync()
                synced = perf_counter()

        def done(error: BaseException | None) -> None:
            if error is None:
                self.write_s.observe(written - began)
                if sync:
                    self.sync_s.observe(synced - written)
            self._written(end, sync, error)

        self._jobs.submit(job, done)

    def _sync_is_due(self) -> bool:
        return (
            self._flush == "interval"
            and self.durable < self.commit
            and (
                self._interval_is_over
                or self._clock.monotonic_ms() - self._synced_ms >= FLUSH_INTERVAL_MS
            )
        )

    def _sync_rest(self) -> None:
        """Sync what the interval has left unsynced, after the write under way if there is one.

        Does not ask the clock again: timers ring a little early, and a test's clock stands still.
        """
        self._timer = None
        self._interval_is_over = True
        self.write()

    def _end_interval(self) -> None:
        self._interval_is_over = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _written(self, end: int, synced: bool, error: BaseException | None) -> None:
        self.is_busy = False
        if error is not None:
            self._fail(error)
            return
        self.commit = end
        self._disk.is_confined = self._writer.is_confined
        self._prepare_next()
        if synced:
            self.durable = end
            self._synced_ms = self._clock.monotonic_ms()
        elif self._flush == "interval" and self._timer is None:
            wait_ms = 0 if self._interval_is_over else FLUSH_INTERVAL_MS
            self._timer = self._loop.call_later(wait_ms / SECOND_MS, self._sync_rest)
        self._on_written()

    def _prepare_next(self) -> None:
        if self._is_over:
            return  # a write of the last turn has ended
        if self._writer.wants_next and self._clock.monotonic_ms() >= self._next_segment_ms:
            # On a full disk, try again once a second, not at every write.
            self._next_segment_ms = self._clock.monotonic_ms() + SECOND_MS
            self._jobs.submit(self._writer.prepare_next, self._prepared)

    def _prepared(self, error: BaseException | None) -> None:
        if error is not None:
            self._fail(error)
        self._disk.is_confined = self._writer.is_confined

    def end_jobs(self) -> None:
        """Wait until all writes are done, and end the thread."""
        self._is_over = True
        self._end_interval()
        self._jobs.stop()

    def close(self, *, sync: bool) -> None:
        """Close the files; with `sync`, when nothing has failed, make all of them durable first."""
        if sync:
            self._writer.sync()
        self._writer.close()
