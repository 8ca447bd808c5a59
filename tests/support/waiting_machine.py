"""What state machines of a store under a wheel share: filing, hand-over, and the model of both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bare_records import unfiled
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from horolog.delay.state import EntryState
from horolog.delay.store import DelayStore
from horolog.limits import HOUR_MS
from horolog.wheel.wheel import Wheel

BASE_MS = 472_222 * HOUR_MS


class WaitingMachine(RuleBasedStateMachine):
    """The model: origin → (due, key) of what waits."""

    def begin(self, store: DelayStore) -> None:
        """Begin with an empty store, in the rule that initializes the machine."""
        self.store = store
        self.wheel = Wheel(store)
        self.now = BASE_MS
        self.next_origin = 1
        self.waiting: dict[int, tuple[int, int]] = {}

    def file_all(
        self, due_ms: list[int], append_ms: int, keys: int, topics: int | Sequence[int]
    ) -> None:
        """File messages with these due times, whose keys begin at `keys`."""
        key_of = [(self.next_origin + i) % 5 + keys for i in range(len(due_ms))]
        records = unfiled(due_ms, self.next_origin, append_ms, keys=key_of, topics=topics)
        filed, rest = self.store.file(records)
        assert rest is None
        self.wheel.insert(*filed)
        for i, at in enumerate(due_ms):
            self.waiting[self.next_origin + i] = (at, key_of[i])
        self.next_origin += len(due_ms)

    @rule(chunk=st.integers(1, 9))
    def load_a_little(self, chunk: int) -> None:
        """What follows, a step of the clock for one, finds seconds that are being loaded."""
        self.wheel.load(self.now, chunk)

    def take(self, limit: int, chunk: int) -> tuple[Any, Any, Any]:
        """Return what is due and waits: refs, entries, records."""
        while not self.wheel.load(self.now, chunk):
            pass
        taken = self.wheel.take(self.now, limit).ref
        refs = taken[self.store.states(taken) == EntryState.WAITING]
        return self.store.read_intact(refs, self.store.entries(refs))

    def note_handed_over(self, entries: Any) -> None:
        """Check that nothing is early (P1) or there twice (P3), and that all is in order (P7)."""
        for due, origin in zip(entries["due_ms"].tolist(), entries["origin"].tolist(), strict=True):
            assert due <= self.now, "P1"
            assert self.waiting.pop(origin)[0] == due, "P3"
            earlier = [o for o, (d, _) in self.waiting.items() if (d, o) < (due, origin)]
            assert not earlier, f"P7: {earlier} should have come before {origin}"

    def chosen(self, key: int, pick: int) -> tuple[int, set[int]]:
        """Choose the due time of a message that waits; return it, and the origins with the key."""
        due, _ = sorted(self.waiting.values())[pick % len(self.waiting)]
        return due, {o for o, (d, k) in self.waiting.items() if d == due and k == key}
