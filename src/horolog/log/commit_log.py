"""The commit log: where records get their positions, frames are sealed, and messages are read back.

Pure: `append` only fills buffers; `take_writes` gives them to whoever performs the effects, who later says how
far the log is committed and durable.  Nothing above `commit_position` is visible to anybody.

    start          what lay below it has been dropped by retention
    log end        appended, perhaps only in memory
    commit         durable as promised by the flush policy; replies are released up to here
    durable        survived an fsync; stated in every frame
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from horolog.errors import ErrorCode, HorologError, Problem, Repair
from horolog.limits import FRAME_BYTES_MAX
from horolog.log.frame import HEADER_BYTES, FrameHeader, seal
from horolog.log.frame_reader import FrameReader, Hole, OpenFrame
from horolog.log.queue_runs import QueueRun
from horolog.log.record import KIND_AT, MESSAGE_KINDS
from horolog.log.scan import Identity, SalvageScan
from horolog.log.segment import SegmentReader, Write
from horolog.storage.api import Storage

_T = TypeVar("_T")


class CommitLog:
    """One shard's log, opened by recovery at its end.

    storage, directory  where the segments are
    log_id, shard       written into every frame

    Recovery calls `resume` before anything is appended.
    """

    def __init__(
        self,
        storage: Storage,
        directory: str,
        *,
        log_id: int,
        shard: int,
        segment_bytes: int,
    ) -> None:
        self.log_id = log_id
        self.shard = shard
        self.segment_bytes = segment_bytes
        self.epoch = 0
        self.start = 0  # what lies below it has been dropped
        self.newest_ms: dict[int, int] = {}  # base of a segment → append ms of its newest frame
        self.end = 0
        self.commit_position = 0
        self.durable_position = 0
        self.stated_durable = 0
        self.last_frame = -1  # base of the newest frame
        self._writes: list[Write] = []
        self._segments = SegmentReader(storage, directory, segment_bytes)
        self._frames = FrameReader(self._segments, log_id)

    def resume(self, *, end: int, epoch: int, last_frame: int) -> None:
        """Go on at `end`, after the last valid frame; everything below it is durable."""
        self.end = self.commit_position = self.durable_position = end
        self.epoch = epoch
        self.last_frame = last_frame

    def note(self, position: int, append_ms: int) -> None:
        """A frame at `position` was appended at that time, by this process or by one before it."""
        base = position - position % self.segment_bytes
        self.newest_ms[base] = max(self.newest_ms.get(base, 0), append_ms)

    def drop_below(self, position: int) -> None:
        """Retention has dropped the segments below `position`; they are not read any more."""
        self.start = position
        for base in [base for base in self.newest_ms if base < position]:
            del self.newest_ms[base]
        self._frames.drop_below(position)
        self._segments.drop_below(position)

    def check_invariants(self) -> None:
        """start ≤ stated ≤ durable ≤ commit ≤ end, each segment has an age, and writes follow each other."""
        assert 0 <= self.start <= self.commit_position <= self.end, (self.start, self.end)
        assert self.durable_position <= self.commit_position, self.durable_position
        assert self.start % self.segment_bytes == 0, self.start
        assert -1 <= self.last_frame < max(self.end, 1), (self.last_frame, self.end)
        assert all(self.start <= base < self.end for base in self.newest_ms), self.newest_ms
        at = self._writes[0].position if self._writes else self.end
        for write in self._writes:
            assert 0 <= write.position - at < self.segment_bytes, (write.position, at)
            at = write.position + len(write.content)
        assert at == self.end, (at, self.end)

    def place(self, length: int) -> int:
        """Log position that the body of the next frame will have, if it has `length` bytes; BAD_REQUEST if no segment holds it."""
        rest = self.segment_bytes - self.end % self.segment_bytes
        if HEADER_BYTES + length > self.segment_bytes:
            raise HorologError(
                ErrorCode.BAD_REQUEST,
                f"frame of {length} bytes does not fit a segment of {self.segment_bytes} bytes",
                field="frame",
                limit=f"{self.segment_bytes - HEADER_BYTES} bytes",
            )
        if HEADER_BYTES + length > rest:
            return self.end + rest + HEADER_BYTES
        return self.end + HEADER_BYTES

    @property
    def frame_bytes_max(self) -> int:
        """Bytes of a frame that holds more than one unit: four of them fit a segment, however small that is."""
        return min(FRAME_BYTES_MAX, self.segment_bytes // 4)

    def in_frames(self, units: Iterable[_T], size: Callable[[_T], int]) -> Iterator[list[_T]]:
        """Cut units, of so many bytes each, into lists that fit a frame; one that does not is alone in its own."""
        held: list[_T] = []
        bytes_held = 0
        for unit in units:
            if held and bytes_held + size(unit) > self.frame_bytes_max:
                yield held
                held, bytes_held = [], 0
            held.append(unit)
            bytes_held += size(unit)
        if held:
            yield held

    def append(self, body: bytes | bytearray, count: int, append_ms: int) -> int:
        """Append one frame; gives the log position of its body, as `place` foretold.

        The frame is durable only after the Sync effect of the same turn.
        """
        assert bool(count) == bool(body), (count, len(body))
        at = self.place(len(body)) - HEADER_BYTES
        assert at >= self.end, (at, self.end)
        if at != self.end:
            self._pad(at - self.end, append_ms)
        header = seal(
            log_id=self.log_id,
            shard=self.shard,
            base=at,
            durable=self.durable_position,
            append_ms=append_ms,
            epoch=self.epoch,
            count=count,
            body=body,
        )
        self._writes.append(Write(at, header))
        if body:
            self._writes.append(Write(at + HEADER_BYTES, body))
        self._frames.written(at, body, count, self.commit_position, append_ms, self.epoch)
        self.note(at, append_ms)
        self.stated_durable = self.durable_position
        self.last_frame = at
        self.end = at + HEADER_BYTES + len(body)
        return at + HEADER_BYTES

    def _pad(self, rest: int, append_ms: int) -> None:
        if rest >= HEADER_BYTES:
            header = seal(
                log_id=self.log_id,
                shard=self.shard,
                base=self.end,
                durable=self.durable_position,
                append_ms=append_ms,
                epoch=self.epoch,
                count=0,
                body=b"",
                padding=rest - HEADER_BYTES,
            )
            self._writes.append(Write(self.end, header))
        self.end += rest

    def take_writes(self) -> list[Write]:
        """What was appended since the last call, in order."""
        writes, self._writes = self._writes, []
        return writes

    # --- reading ----------------------------------------------------------------------------------

    @property
    def problems(self) -> list[Problem]:
        """What was found to be damaged since the list was cleared: each frame once."""
        return self._frames.problems

    @property
    def repairs(self) -> list[Repair]:
        """What was put right since the list was cleared."""
        return self._frames.repairs

    def segment_path(self, position: int) -> str:
        """The file that holds a log position."""
        return self._segments.path(position)

    def record(self, position: int, size: int = 0) -> bytes | Hole:
        """The record at a position, or why there is none; the one way to read a record.

        Position and size (0: any) come from derived files, and nothing is believed of them.  The frame's CRC is
        checked when the frame is opened.
        """
        return self._hole_at(position) or self._frames.record(position, size, self.commit_position)

    def message(self, position: int, size: int = 0) -> bytes | Hole:
        """The same for a record that must hold a message."""
        found = self.record(position, size)
        if isinstance(found, Hole) or found[KIND_AT] in MESSAGE_KINDS:
            return found
        return Hole(position, f"commit log: there is no message at log position {position}")

    def run(self, position: int, topic: int, queue: int) -> QueueRun | None:
        """The messages of a queue in the frame in whose body a position lies; None: read them one by one."""
        found = self.frame(position)
        return None if isinstance(found, Hole) else found.run(topic, queue)

    def run_in(self, base: int, topic: int, queue: int) -> QueueRun | None:
        """The same for the frame at `base`, if it is in memory still."""
        found = self._frames.opened(base)
        return None if found is None else found.run(topic, queue)

    def frame(self, position: int) -> OpenFrame | Hole:
        """The whole frame in whose body a position lies, or why there is none."""
        return self._hole_at(position) or self._frames.frame(position, self.commit_position)

    def intact_frames(self, start: int, stop: int) -> Iterator[tuple[FrameHeader, bytes]]:
        """Frames that verify, from the one at `start` on, that begin below `stop`; gaps are passed over."""
        identity = Identity(self.log_id, self.shard)
        stop = min(stop, self.commit_position)
        return SalvageScan(self._segments, identity, start=start, stop=stop).frames()

    def frames_around(self, start: int, stop: int) -> Iterator[tuple[FrameHeader, bytes]]:
        """Frames that verify, from the one in whose body `start` lies on, that begin below `stop`."""
        first = self.frame(start)
        return self.intact_frames(start if isinstance(first, Hole) else first.base, stop)

    def _hole_at(self, position: int) -> Hole | None:
        if position < self.start:
            why = f"log position {position} is older than the retention; the log begins at {self.start}"
            return Hole(position, why, dropped=True)
        if position >= self.commit_position:
            return Hole(position, f"log position {position} lies above the commit position")
        return None

    def close(self) -> None:
        """Give mapped segments back."""
        self._segments.close()
