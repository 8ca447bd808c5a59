"""Leases of one group in one queue against a dict (DESIGN §4, Leases): at least once, acknowledged never again."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from horolog.clock import SimulatedClock
from horolog.errors import ErrorCode, HorologError
from horolog.protocol.commands import (
    Ack,
    ChangeInvisible,
    CreateTopic,
    DescribeGroup,
    Receive,
    SendMessages,
    TopicType,
)
from horolog.protocol.rocketmq import layout
from horolog.protocol.rocketmq.message import encode
from horolog.testing.disk import FaultyDisk
from horolog.testing.sim_broker import SimBroker

START_MS = 1_700_000_000_000


class LeaseMachine(RuleBasedStateMachine):
    """Send, receive, ack, change, wait, restart; the model knows who may see what."""

    @initialize()
    def start(self) -> None:
        self.clock = SimulatedClock(START_MS)
        self.broker = SimBroker(Random(1), FaultyDisk(1), self.clock, "sync", 65_536)
        self.broker.open()
        self.broker.ask(CreateTopic("t", TopicType.NORMAL, 1))
        self.sent = 0
        self.ends: dict[int, int] = {}  # offset → monotonic end of its newest grant
        self.handles: dict[int, str] = {}  # offset → newest handle
        self.old: list[str] = []  # handles that a newer grant replaced
        self.attempts: dict[int, int] = {}
        self.acked: set[int] = set()

    def now(self) -> int:
        return self.clock.monotonic_ms()

    @rule(n=st.integers(1, 5))
    def send(self, n: int) -> None:
        messages = [
            encode(topic="t", body=str(self.sent + i).encode(), message_id=f"m{self.sent + i}")
            for i in range(n)
        ]
        self.broker.ask(SendMessages("t", messages))
        self.sent += n

    @rule(batch=st.integers(1, 8), seconds=st.sampled_from([10, 30, 60]))
    def receive(self, batch: int, seconds: int) -> None:
        free = [
            offset
            for offset in range(self.sent)
            if offset not in self.acked and self.ends.get(offset, 0) <= self.now()
        ]
        got = self.broker.ask(
            Receive("g", "t", -1, "*", batch, seconds * 1_000, False, 0, "c")
        ).messages
        offsets = [m.queue_offset for m in got]
        assert len(offsets) == min(batch, len(free))
        assert set(offsets) <= set(free)
        for m in got:
            assert layout.decode(m.layout).body == str(m.queue_offset).encode()
            self.attempts[m.queue_offset] = self.attempts.get(m.queue_offset, 0) + 1
            assert m.attempt == self.attempts[m.queue_offset]
            if m.queue_offset in self.handles:
                self.old.append(self.handles[m.queue_offset])
            self.handles[m.queue_offset] = m.receipt_handle
            self.ends[m.queue_offset] = self.now() + seconds * 1_000

    @rule(pick=st.integers(0, 1_000))
    def ack(self, pick: int) -> None:
        live = sorted(o for o in self.handles if o not in self.acked)
        if not live:
            return
        offset = live[pick % len(live)]
        refused = self.broker.ask(Ack("g", "t", [self.handles[offset]])).refused[0]
        if self.ends[offset] > self.now():
            assert refused is None
            self.acked.add(offset)
        else:
            assert refused is not None
            assert refused.code is ErrorCode.INVALID_RECEIPT_HANDLE

    @rule(pick=st.integers(0, 1_000))
    def ack_with_an_old_handle(self, pick: int) -> None:
        if self.old:
            handle = self.old[pick % len(self.old)]
            before = self.broker.ask(DescribeGroup("g", "t"))[0]
            self.broker.ask(Ack("g", "t", [handle]))
            after = self.broker.ask(DescribeGroup("g", "t"))[0]
            assert after == before, "an old handle changes nothing"

    @rule(pick=st.integers(0, 1_000), wait_ms=st.sampled_from([1_000, 30_000]))
    def change(self, pick: int, wait_ms: int) -> None:
        live = sorted(o for o in self.handles if o not in self.acked)
        if not live:
            return
        offset = live[pick % len(live)]
        command = ChangeInvisible("g", "t", self.handles[offset], wait_ms)
        if self.ends[offset] <= self.now():
            with pytest.raises(HorologError):
                self.broker.ask(command)
            return
        self.old.append(self.handles[offset])
        self.handles[offset] = self.broker.ask(command).receipt_handle
        self.ends[offset] = self.now() + wait_ms

    @rule(by=st.sampled_from([1, 999, 10_000, 31_000]))
    def wait(self, by: int) -> None:
        self.clock.advance(by)

    @rule()
    def restart(self) -> None:
        """Nothing was lost (everything was settled): leases go on where they were."""
        self.broker.open()

    @rule()
    def clock_steps_do_not_move_leases(self) -> None:
        self.clock.step_wall(3_600_000)
        self.clock.step_wall(-3_600_000)

    def teardown(self) -> None:
        if not hasattr(self, "broker"):
            return
        floor = self.broker.ask(DescribeGroup("g", "t"))[0] if self.handles else None
        if floor is not None:
            expected = next(i for i in range(self.sent + 1) if i not in self.acked)
            assert floor.ack_floor == expected


TestLeases = LeaseMachine.TestCase
TestLeases.settings = settings(max_examples=40, stateful_step_count=30)
