"""Leases of one group in one queue against a dict: at least once, acknowledged never again."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from horolog.clock import SimulatedClock
from horolog.errors import ErrorCode, HorologError
from horolog.protocol.commands import (
    Ack,
    CancelReceive,
    ChangeInvisible,
    CreateTopic,
    DescribeGroup,
    Receive,
    SendMessages,
    TopicType,
)
from horolog.protocol.queue_commands import CommitOffsets, GetOffsets
from horolog.protocol.rocketmq import layout
from horolog.protocol.rocketmq.message import encode
from horolog.testing.disk import FaultyDisk
from horolog.testing.sim_broker import Answer, SimBroker

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
        self.polls: list[tuple[Answer, int]] = []  # and when they end

    def ask(self, command):
        """The result of a command; polls that were served before it or after it are looked at."""
        self.settle()
        try:
            return self.broker.ask(command)
        finally:
            if not isinstance(command, Receive):  # that one's messages come first
                self.settle()

    def settle(self) -> None:
        self.broker.settle()
        for waiting in [each for each in self.polls if each[0].done]:
            self.polls.remove(waiting)
            got = waiting[0].result.messages
            assert got or waiting[1] <= self.now(), "an empty answer before its time"
            self.given(got, waiting[0].command)

    def given(self, got, command: Receive) -> None:
        """Messages that a receive was given: each was free, and the attempts are counted."""
        for m in got:
            assert layout.decode(m.layout).body == str(m.queue_offset).encode()
            assert m.queue_offset in self.free(), m
            self.attempts[m.queue_offset] = self.attempts.get(m.queue_offset, 0) + 1
            assert m.attempt == self.attempts[m.queue_offset]
            if m.queue_offset in self.handles:
                self.old.append(self.handles[m.queue_offset])
            self.handles[m.queue_offset] = m.receipt_handle
            self.ends[m.queue_offset] = self.now() + command.invisible_ms

    def free(self) -> list[int]:
        """Offsets that may be given out."""
        return [
            offset
            for offset in range(self.sent)
            if offset not in self.acked and self.ends.get(offset, 0) <= self.now()
        ]

    def now(self) -> int:
        return self.clock.monotonic_ms()

    @rule(n=st.integers(1, 5))
    def send(self, n: int) -> None:
        messages = [
            encode(topic="t", body=str(self.sent + i).encode(), message_id=f"m{self.sent + i}")
            for i in range(n)
        ]
        self.settle()
        self.sent += n
        self.ask(SendMessages("t", messages))

    @rule(batch=st.integers(1, 8), seconds=st.sampled_from([10, 30, 60]))
    def receive(self, batch: int, seconds: int) -> None:
        self.settle()
        free = self.free()
        command = Receive("g", "t", -1, "*", batch, seconds * 1_000, False, 0, "c")
        got = self.ask(command).messages
        assert len(got) == min(batch, len(free))
        self.given(got, command)

    @rule(batch=st.integers(1, 3), seconds=st.sampled_from([10, 30]), ms=st.integers(1, 20_000))
    def poll(self, batch: int, seconds: int, ms: int) -> None:
        """One that waits if there is nothing."""
        self.settle()
        answer = Answer(Receive("g", "t", -1, "*", batch, seconds * 1_000, False, ms, "c"))
        self.polls.append((answer, self.now() + ms))
        self.broker.step([answer])
        self.settle()

    @rule(pick=st.integers(0, 1_000))
    def cancel(self, pick: int) -> None:
        self.settle()
        if self.polls:
            answer, _ = self.polls.pop(pick % len(self.polls))
            self.ask(CancelReceive(answer))

    @rule(pick=st.integers(0, 1_000))
    def ack(self, pick: int) -> None:
        live = sorted(o for o in self.handles if o not in self.acked)
        if not live:
            return
        offset = live[pick % len(live)]
        refused = self.ask(Ack("g", "t", [self.handles[offset]])).refused[0]
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
            before = self.ask(DescribeGroup("g", "t"))[0]
            self.ask(Ack("g", "t", [handle]))
            after = self.ask(DescribeGroup("g", "t"))[0]
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
                self.ask(command)
            return
        self.old.append(self.handles[offset])
        self.handles[offset] = self.ask(command).receipt_handle
        self.ends[offset] = self.now() + wait_ms

    @rule(pick=st.integers(0, 1_000), afresh=st.booleans())
    def commit(self, pick: int, afresh: bool) -> None:
        """Forwards everything below is consumed; backwards, or afresh, nothing is known of what lies after."""
        self.settle()
        offset, floor = pick % (self.sent + 1), self.floor()
        if offset > floor and not afresh:
            self.acked.update(range(offset))
        elif offset < floor or afresh:
            self.acked = set(range(offset))
            for of_offset in (self.handles, self.ends, self.attempts):
                for gone in [each for each in of_offset if each >= offset]:
                    del of_offset[gone]
            self.old.clear()
        assert self.ask(CommitOffsets("g", "t", {0: offset}, afresh)) is None
        assert self.ask(GetOffsets("g", "t")) == {0: self.floor()}

    def floor(self) -> int:
        return next(i for i in range(self.sent + 1) if i not in self.acked)

    @rule(by=st.sampled_from([1, 999, 10_000, 31_000]))
    def wait(self, by: int) -> None:
        self.clock.advance(by)
        self.settle()

    @rule()
    def restart(self) -> None:
        """Nothing was lost (everything was settled): leases go on where they were; polls are gone."""
        self.settle()
        self.polls.clear()
        self.broker.open()

    @invariant()
    def nobody_waits_for_what_is_there(self) -> None:
        if hasattr(self, "broker"):
            self.settle()
            assert not (self.polls and self.free()), self.free()
            assert self.broker.shard.ready.parked == len(self.polls)

    @rule()
    def clock_steps_do_not_move_leases(self) -> None:
        self.clock.step_wall(3_600_000)
        self.clock.step_wall(-3_600_000)

    def teardown(self) -> None:
        if not hasattr(self, "broker"):
            return
        floor = self.ask(DescribeGroup("g", "t"))[0] if self.handles else None
        if floor is not None:
            assert floor.ack_floor == self.floor()


TestLeases = LeaseMachine.TestCase
TestLeases.settings = settings(max_examples=40, stateful_step_count=30)
