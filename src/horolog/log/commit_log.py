"""The commit log: where records get their positions, frames are sealed, and messages are read back.

Pure: `append` only fills buffers; `take_writes` gives them to whoever performs the effects, who later says how
far the log is committed and durable.  Nothing above `commit_position` is visible to anybody.

    start          what lay below it has been dropped by retention
    log end        appended, perhaps only in memory
    commit         durable as promised by the flush policy; replies are released up to here
    durable        survived an fsync; stated in every frame
"""

from __future__ import annotations

from collections import OrderedDict

from horolog.errors import ErrorCode, HorologError
from horolog.log.frame import HEADER_BYTES, body_intact, seal
from horolog.log.frame_index import FrameIndex
from horolog.log.segment import SegmentReader, Write
from horolog.storage.api import Storage

_VERIFIED_MAX = 65_536  # frames of former processes remembered as checked


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
        self._own_from = 0
        self._writes: list[Write] = []
        self._reader = SegmentReader(storage, directory, segment_bytes)
        self.frames = FrameIndex(segment_bytes, self._reader.bytes_at)
        self._verified: OrderedDict[int, None] = OrderedDict()

    def resume(self, *, end: int, epoch: int, last_frame: int) -> None:
        """Go on at `end`, behind the last valid frame; everything below it is durable."""
        self.end = self.commit_position = self.durable_position = self._own_from = end
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
        self.frames.drop_below(position)
        self._reader.drop_below(position)

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
        """Log position that the body of the next frame will have, if it has `length` bytes."""
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

    def append(self, body: bytes | bytearray, count: int, append_ms: int) -> int:
        """Append one frame; gives the log position of its body, as `place` foretold.

        The frame is durable only after the Sync effect of the same turn.
        """
        at = self.place(len(body)) - HEADER_BYTES
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
        self.frames.add(at)
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

    def read(self, position: int, size: int) -> bytes:
        """The `size` bytes of the record at `position`; its frame's CRC is checked once per process.

        DAMAGED if that frame is not intact, NOT_FOUND if it lies below the start of the log.  `position` must
        come from our own derived files.
        """
        if position < self.start:
            raise HorologError(
                ErrorCode.NOT_FOUND,
                f"log position {position} is older than the retention; the log begins at {self.start}",
            )
        if position + size > self.commit_position:
            raise HorologError(
                ErrorCode.DAMAGED, f"log position {position} lies above the commit position"
            )
        if position < self._own_from:
            self._verify(position)
        return self._reader.bytes_at(position, size)

    def _verify(self, position: int) -> None:
        header = self.frames.find(position, self.commit_position)
        if header is not None:
            if header.base in self._verified:
                return
            body = self._reader.bytes_at(header.base + HEADER_BYTES, header.length)
            if body_intact(header, body):
                self._verified[header.base] = None
                if len(self._verified) > _VERIFIED_MAX:
                    self._verified.popitem(last=False)
                return
        raise HorologError(
            ErrorCode.DAMAGED,
            f"commit log: the frame at or before log position {position} is not intact",
        )

    def close(self) -> None:
        """Give mapped segments back."""
        self._reader.close()
