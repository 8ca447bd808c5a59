"""The commit log against a list of frames: appends, group commits, power cuts, torn tails, segment ends (P2)."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from horolog.log.commit_log import CommitLog
from horolog.log.frame import HEADER_BYTES
from horolog.log.frame_reader import Hole
from horolog.log.scan import Identity, LogEnd, LogScan
from horolog.log.segment import SegmentReader, SegmentWriter, segment_bases, segment_name
from horolog.testing.disk import FaultyDisk

SEGMENT = 1_024
LOG_ID = 0xABCDEF
DIRECTORY = "log"


class LogMachine(RuleBasedStateMachine):
    """What survives a crash is a prefix of what was appended, with everything that was synced."""

    @initialize(seed=st.integers(0, 1 << 20))
    def start(self, seed: int) -> None:
        self.disk = FaultyDisk(seed)
        self.disk.make_dir(DIRECTORY)
        self.appended: list[bytes] = []
        self.synced = 0  # frames of `appended` that are durable
        self.written = 0
        self.n = 0
        self.open(end=0, epoch=0)
        self.append(0)
        self.write(True)

    def open(self, end: int, epoch: int) -> None:
        self.log = CommitLog(self.disk, DIRECTORY, log_id=LOG_ID, shard=0, segment_bytes=SEGMENT)
        self.log.resume(end=end, epoch=epoch + 1, last_frame=-1)
        self.writer = SegmentWriter(self.disk, DIRECTORY, SEGMENT)
        self.own_from = len(self.appended)
        self.positions: list[int] = []

    @rule(size=st.one_of(st.integers(0, 80), st.integers(0, SEGMENT - HEADER_BYTES)))
    def append(self, size: int) -> None:
        self.n += 1
        body = self.n.to_bytes(4, "big") * (size // 4 + 1)
        body = body[: min(len(body), SEGMENT - HEADER_BYTES)]
        position = self.log.next_body_position(len(body))
        self.log.append(body, 1, self.n)
        assert self.log.end == position + len(body)
        assert position // SEGMENT == (position + len(body) - 1) // SEGMENT, "never straddles"
        self.appended.append(body)
        self.positions.append(position)

    @rule(sync=st.booleans())
    def write(self, sync: bool) -> None:
        self.writer.write(self.log.take_writes())
        self.written = len(self.appended)
        if sync:
            self.writer.sync()
            self.synced = self.written
            self.log.commit_position = self.log.durable_position = self.log.end

    @rule(pick=st.integers(0, 1_000))
    def read_back(self, pick: int) -> None:
        bodies = self.appended[self.own_from : self.synced]
        if bodies:
            i = pick % len(bodies)
            position, body = self.positions[i], bodies[i]
            frame = self.log.frame(position)
            assert frame.body == body
            assert frame.base == position - HEADER_BYTES
            assert isinstance(self.log.frame(position - 1), Hole)

    @rule(power_cut=st.booleans())
    def crash(self, power_cut: bool) -> None:
        self.disk.crash(power_cut=power_cut)
        reader = SegmentReader(self.disk, DIRECTORY, SEGMENT)
        bases = segment_bases(self.disk, DIRECTORY, SEGMENT)
        scan = LogScan(
            reader,
            Identity(LOG_ID, 0),
            start=0,
            limit=bases[-1] + SEGMENT if bases else 0,
            epoch=0,
            durable=0,
        )
        found = [body for header, body in scan.frames() if header.count]
        assert scan.outcome in (LogEnd.WHOLE, LogEnd.TORN), "nothing that was promised is damaged"
        assert found == self.appended[: len(found)], "a prefix, no ghosts"
        assert len(found) >= (self.synced if power_cut else self.written)
        assert scan.epoch <= self.log.epoch
        for base in bases:
            if base + SEGMENT > scan.end:
                file = self.disk.open(f"{DIRECTORY}/{segment_name(base)}")
                file.truncate(max(0, scan.end - base))
                file.allocate(SEGMENT)
                file.sync()
            else:
                self.disk.open(f"{DIRECTORY}/{segment_name(base)}").sync()
        self.disk.sync_dir(DIRECTORY)
        self.appended = found
        self.synced = self.written = len(found)
        self.open(end=scan.end, epoch=self.log.epoch)
        self.append(0)
        self.write(True)


TestLog = LogMachine.TestCase
TestLog.settings = settings(max_examples=150, stateful_step_count=25)
