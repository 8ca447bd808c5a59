"""The commit log: assigns log positions to records, seals frames, and reads records back.

Pure: `append` only fills buffers.  `take_writes` returns them to the caller that performs the
effects, which later sets how far the log is committed and durable.  No reader sees anything above
`commit_position`.

    start          the log below this position has been dropped by retention
    log end        appended up to here, perhaps only in memory
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
    """The commit log of one shard.

    storage, directory  where the segments are
    log_id, shard       written into every frame

    Recovery calls `resume` before the first append.
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
        self.start = 0  # the log below this position has been dropped
        self.newest_ms: dict[int, int] = {}  # base of a segment → append ms of its newest frame
        self.end = 0
        self.commit_position = 0
        self.durable_position = 0
        self.stated_durable = 0  # stated by the newest frame; after a mark, the end of the mark
        self.last_frame = -1  # base of the newest frame
        self._writes: list[Write] = []
        self._segments = SegmentReader(storage, directory, segment_bytes)
        self._frames = FrameReader(self._segments, log_id)

    def resume(self, *, end: int, epoch: int, last_frame: int) -> None:
        """Continue at `end`, after the last valid frame; everything below `end` is durable."""
        self.end = self.commit_position = self.durable_position = end
        self.epoch = epoch
        self.last_frame = last_frame

    def note_append_time(self, position: int, append_ms: int) -> None:
        """Record when the frame at `position` was appended, by this process or a former one."""
        base = position - position % self.segment_bytes
        self.newest_ms[base] = max(self.newest_ms.get(base, 0), append_ms)

    def drop_below(self, position: int) -> None:
        """Move the start of the log to `position`: retention has dropped the segments below."""
        self.start = position
        for base in [base for base in self.newest_ms if base < position]:
            del self.newest_ms[base]
        self._frames.drop_below(position)
        self._segments.drop_below(position)

    def check_invariants(self) -> None:
        """Assert start ≤ commit ≤ end, durable ≤ commit, stated ≤ end; the writes reach the end.

        The start may be above the durable position, which counts only the syncs of writes: retention
        goes by checkpoints, which sync the log themselves.  A mark counts as stated up to its own
        end, so `stated_durable` may be above both; after a start it is 0.
        """
        assert 0 <= self.start <= self.commit_position <= self.end, (self.start, self.end)
        assert self.durable_position <= self.commit_position, self.durable_position
        assert 0 <= self.stated_durable <= self.end, (self.stated_durable, self.end)
        assert self.start % self.segment_bytes == 0, self.start
        assert -1 <= self.last_frame < max(self.end, 1), (self.last_frame, self.end)
        assert all(self.start <= base < self.end for base in self.newest_ms), self.newest_ms
        at = self._writes[0].position if self._writes else self.end
        for write in self._writes:
            assert 0 <= write.position - at < self.segment_bytes, (write.position, at)
            at = write.position + len(write.content)
        assert at == self.end, (at, self.end)

    def next_body_position(self, length: int) -> int:
        """Return the log position that the next frame's body of `length` bytes will have.

        BAD_REQUEST if such a frame does not fit a segment.
        """
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
        """Most bytes of a frame of several units: at least four such frames fit any segment."""
        return min(FRAME_BYTES_MAX, self.segment_bytes // 4)

    def in_frames(self, units: Iterable[_T], size: Callable[[_T], int]) -> Iterator[list[_T]]:
        """Cut units into lists that fit one frame each; a larger unit is alone in its list.

        size  returns the bytes of a unit
        """
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

    def append(self, body: bytes | bytearray, count: int, append_ms: int) -> None:
        """Append one frame, whose body is at the `next_body_position`.

        The frame is durable only after the Sync effect of the same turn.
        """
        assert bool(count) == bool(body), (count, len(body))
        at = self.next_body_position(len(body)) - HEADER_BYTES
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
        self.note_append_time(at, append_ms)
        self.stated_durable = self.durable_position
        self.last_frame = at
        self.end = at + HEADER_BYTES + len(body)

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
        """Return the writes appended since the last call, in log order."""
        writes, self._writes = self._writes, []
        return writes

    # --- reading ----------------------------------------------------------------------------------

    @property
    def problems(self) -> list[Problem]:
        """Damage found since the caller last cleared the list; each frame is reported once."""
        return self._frames.problems

    @property
    def repairs(self) -> list[Repair]:
        """Repairs of frames since the caller last cleared the list."""
        return self._frames.repairs

    def segment_path(self, position: int) -> str:
        """Return the path of the segment file that holds a log position."""
        return self._segments.path(position)

    def record(self, position: int, size: int = 0) -> bytes | Hole:
        """Read the record at a log position, or return a hole that says why there is none.

        Every reader of a record goes through here.  Position and size (0: any) come from derived
        files and are not trusted.  The frame's CRC is checked when the frame is opened.
        """
        return self._hole_at(position) or self._frames.record(position, size, self.commit_position)

    def message(self, position: int, size: int = 0) -> bytes | Hole:
        """Read the record of a message; return a hole if the record holds no message."""
        found = self.record(position, size)
        if isinstance(found, Hole) or found[KIND_AT] in MESSAGE_KINDS:
            return found
        return Hole(position, f"commit log: there is no message at log position {position}")

    def run(self, position: int, topic: int, queue: int) -> QueueRun | None:
        """Return a queue's messages in the frame around `position`; None: read them singly."""
        found = self.frame(position)
        return None if isinstance(found, Hole) else found.run(topic, queue)

    def run_in(self, base: int, topic: int, queue: int) -> QueueRun | None:
        """Return a queue's messages in the frame at `base`; None if it is not in memory."""
        found = self._frames.opened(base)
        return None if found is None else found.run(topic, queue)

    def frame(self, position: int) -> OpenFrame | Hole:
        """Read the frame whose body holds a log position, or return a hole that says why not."""
        return self._hole_at(position) or self._frames.frame(position, self.commit_position)

    def intact_frames(self, start: int, stop: int) -> Iterator[tuple[FrameHeader, bytes]]:
        """Yield the intact frames that begin in [start, stop), the first at `start`; skip gaps."""
        identity = Identity(self.log_id, self.shard)
        stop = min(stop, self.commit_position)
        return SalvageScan(self._segments, identity, start=start, stop=stop).frames()

    def frames_around(self, start: int, stop: int) -> Iterator[tuple[FrameHeader, bytes]]:
        """Yield the intact frames that begin below `stop`, from the one around `start` on."""
        first = self.frame(start)
        return self.intact_frames(start if isinstance(first, Hole) else first.base, stop)

    def _hole_at(self, position: int) -> Hole | None:
        if position < self.start:
            why = (
                f"log position {position} is older than the retention; the log begins at "
                f"{self.start}"
            )
            return Hole(position, why, dropped=True)
        if position >= self.commit_position:
            return Hole(position, f"log position {position} lies above the commit position")
        return None

    def close(self) -> None:
        """Close the segment files."""
        self._segments.close()
