"""Check of the files of one hour: entries and records, chains of seconds, state, key runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from horolog.delay.entry import ENTRY_BYTES, INDEX_NAME, LOG_NAME
from horolog.delay.state import (
    SECONDS,
    EntryState,
    HourState,
    decode_state,
    state_name,
)
from horolog.limits import HOUR_MS
from horolog.storage.api import read_file
from horolog.verify.balance import Balance
from horolog.verify.entries import Batch, OriginOrder, RecordsCheck, Rows, batches, check_key_runs
from horolog.verify.reading import LogBytes, Reading


def read_state(reading: Reading, directory: str, row: dict[str, Any]) -> HourState | None:
    """Read the state that a registry names.

    None, with a finding, if the state is missing, damaged or another one.
    """
    path = f"{directory}/{state_name(row['version'])}"
    with reading.part(path):
        content = read_file(reading.storage, path)
        reading.tick(path, len(content))
        state = decode_state(content)
        if state is None:
            reading.findings.add(path, 0, "is not intact: magic, length or a CRC is wrong")
            return None
        has = (state.hour, state.count, state.log_bytes)
        if has != (row["hour"], row["count"], row["log_bytes"]):
            reading.findings.add(
                path, 0, f"is of hour, entries, bytes {has}; the checkpoint names another"
            )
            return None
        for what, says, counted in state.disagreements():
            reading.findings.add(path, 0, f"{what}: says {says}, its states say {counted}")
        return state
    return None


class HourCheck:
    """Check of one hour as the newest checkpoint names it."""

    def __init__(
        self, reading: Reading, directory: str, row: dict[str, Any], state: HourState
    ) -> None:
        self._reading = reading
        self._directory = directory
        self._state = state
        self._index = f"{directory}/{INDEX_NAME}"
        self._state_path = f"{directory}/{state_name(row['version'])}"
        self._newest = np.full(SECONDS, -1, np.int64)
        self._filed = np.zeros(SECONDS, np.int64)
        self._waiting = np.zeros(SECONDS, np.int64)
        self._by_topic: dict[int, int] = {}
        self._order = OriginOrder(reading, self._index)
        self._bad = False

    def run(self, log: LogBytes, balance: Balance) -> None:
        """Read everything; entries that wait go into the balance."""
        reading, state = self._reading, self._state
        path = f"{self._directory}/{LOG_NAME}"
        with (
            reading.part(self._index),
            reading.source(self._index) as index,
            reading.source(path) as records,
        ):
            if index.size < state.count * ENTRY_BYTES or records.size < state.log_bytes:
                reading.findings.add(self._index, 0, "is shorter than its checkpoint says")
                return
            check = RecordsCheck(reading, self._index, records, 0, log)
            for batch in batches(reading, index, 0, state.count):
                check.take(batch)
                self._take(batch, balance)
            end = check.end()
            if end is not None and end != state.log_bytes:
                reading.findings.add(path, end, f"records end here, not at {state.log_bytes}")
            if not self._bad:
                self._check_heads()
        if not self._bad:
            check_key_runs(reading, self._directory, self._index, state.count)

    def _add_finding(self, rows: Rows, what: str) -> None:
        for row in rows.tolist():
            self._reading.findings.add(self._index, row, f"entry {row}: {what}")

    def _take(self, batch: Batch, balance: Balance) -> None:
        self._bad = self._bad or not bool(batch.good.all())
        rows = np.flatnonzero(batch.good)
        if not len(rows):
            return
        entries = batch.entries[rows]
        rows = rows + batch.first
        inside = entries["due_ms"] // HOUR_MS == self._state.hour
        self._add_finding(rows[~inside], "is not due in this hour")
        self._order.take(entries, rows)
        states = self._state.states[rows]
        waits = (states == EntryState.WAITING) | (states == EntryState.QUARANTINED)
        balance.add(entries["due_ms"][waits] // HOUR_MS, entries["origin"][waits], -1)
        if not self._bad and bool(inside.all()):
            self._follow_chains(entries, rows)
            self._count(entries, states == EntryState.WAITING)

    def _follow_chains(self, entries: npt.NDArray[Any], rows: Rows) -> None:
        """Check that each entry names the entry before it in its second, and its local index."""
        second = entries["due_ms"] // 1000 - self._state.hour * SECONDS
        order = np.argsort(second, kind="stable")
        ordered = second[order]
        firsts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
        lengths = np.diff(np.append(firsts, len(ordered)))
        touched = ordered[firsts]
        previous = np.append(-1, rows[order][:-1])
        previous[firsts] = self._newest[touched]
        local = np.arange(len(ordered)) - np.repeat(firsts - self._filed[touched], lengths)
        self._add_finding(
            rows[order][entries["previous"][order] != previous],
            "does not name the entry before it in its second",
        )
        self._add_finding(
            rows[order][entries["local"][order] != local], "has another number in its second"
        )
        self._newest[touched] = rows[order][np.append(firsts[1:], len(ordered)) - 1]
        self._filed[touched] += lengths

    def _count(self, entries: npt.NDArray[Any], waits: npt.NDArray[np.bool_]) -> None:
        waiting = entries[waits]
        second = waiting["due_ms"] // 1000 - self._state.hour * SECONDS
        self._waiting += np.bincount(second, minlength=SECONDS)
        topics, counts = np.unique(waiting["topic"], return_counts=True)
        for topic, n in zip(topics.tolist(), counts.tolist(), strict=True):
            self._by_topic[topic] = self._by_topic.get(topic, 0) + n

    def _check_heads(self) -> None:
        heads = self._state.heads
        for name, counted in (
            ("newest", self._newest),
            ("filed", self._filed),
            ("waiting", self._waiting),
        ):
            wrong = np.flatnonzero(heads[name].astype(np.int64) != counted)
            for second in wrong.tolist():
                self._reading.findings.add(
                    self._state_path,
                    second,
                    f"second {second}: {name} is {heads[name][second]}, the index says "
                    f"{counted[second]}",
                )
        if self._by_topic != self._state.by_topic:
            self._reading.findings.add(
                self._state_path,
                0,
                "the counts of what waits by topic are not those of the index",
            )
