"""Check of the far buffers and runs that a checkpoint names."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from horolog.delay.entry import ENTRY_BYTES, INDEX_NAME, LOG_NAME
from horolog.delay.far.buffer import buffer_name
from horolog.delay.far.run_state import RunState, decode_run_state
from horolog.delay.row_sum import MASK
from horolog.delay.run.format import run_path
from horolog.delay.state import RECALLED_STATES, EntryState
from horolog.limits import HOUR_MS
from horolog.storage.api import read_file
from horolog.verify.adoptions import AdoptionCheck, sum_of
from horolog.verify.balance import Balance
from horolog.verify.entries import Batch, OriginOrder, RecordsCheck, batches, check_key_runs
from horolog.verify.reading import LogBytes, Reading
from horolog.verify.runs import RunFile


def check_buffer(
    reading: Reading,
    place: str,
    row: dict[str, Any],
    settled: npt.NDArray[Any],
    log: LogBytes,
    balance: Balance,
) -> None:
    """Verify one far buffer; entries that wait go into the balance.

    settled  its rows of the checkpoint's FAR_SETTLED column
    """
    directory = f"{place}/{buffer_name(row['number'])}"
    path, count = f"{directory}/{INDEX_NAME}", row["count"]
    waits = _waiting_rows(reading, path, count, settled)
    order = OriginOrder(reading, path)
    is_whole = True
    with (
        reading.part(path),
        reading.source(path) as index,
        reading.source(f"{directory}/{LOG_NAME}") as records,
    ):
        if index.size < count * ENTRY_BYTES or records.size < row["log_bytes"]:
            reading.findings.add(path, 0, "is shorter than its checkpoint says")
            return
        check = RecordsCheck(reading, path, records, 0, log)
        for batch in batches(reading, index, 0, count):
            check.take(batch)
            is_whole = is_whole and bool(batch.good.all())
            rows = batch.first + np.flatnonzero(batch.good)
            entries = batch.entries[batch.good]
            order.take(entries, rows)
            waiting = entries[waits[rows]]
            balance.add(waiting["due_ms"] // HOUR_MS, waiting["origin"], -1)
        end = check.end()
        if end is not None and end != row["log_bytes"]:
            reading.findings.add(path, end, f"records end at {end}, not at {row['log_bytes']}")
    if is_whole:
        check_key_runs(reading, directory, path, count)


def _waiting_rows(
    reading: Reading, path: str, count: int, settled: npt.NDArray[Any]
) -> npt.NDArray[np.bool_]:
    """Return which rows of a buffer wait; all do if the checkpoint settles rows it has not."""
    waits = np.ones(count, bool)
    if bool((settled["index"] >= count).any()):
        reading.findings.add(path, count, "the checkpoint settles entries that the buffer has not")
    else:
        waits[settled["index"]] = ~np.isin(
            settled["state"], (EntryState.HANDED_OVER, *RECALLED_STATES)
        )
    return waits


def read_run_state(reading: Reading, place: str, row: dict[str, Any]) -> RunState | None:
    """Read the state of a run that a registry names.

    None, with a finding, if the state is missing or not intact.
    """
    if not row["version"]:
        return RunState(row["rows"], {}, {})
    path = f"{place}/{row['name']}.state.{row['version']:010d}"
    with reading.part(path):
        content = read_file(reading.storage, path)
        reading.tick(path, len(content))
        state = decode_run_state(content)
        if state is None:
            reading.findings.add(path, 0, "is not intact: magic, length or a CRC is wrong")
        elif state.rows != row["rows"]:
            reading.findings.add(path, 0, f"is of {state.rows} rows, the run has {row['rows']}")
        else:
            return state
    return None


def check_run(
    reading: Reading,
    place: str,
    row: dict[str, Any],
    *,
    log_id: int,
    log: LogBytes,
    balance: Balance,
    adoptions: AdoptionCheck,
) -> None:
    """Verify one run with its state.

    Rows that wait go into the balance; those of an adopted run are compared with the adoption.
    """
    adopted = "position" in row
    state = read_run_state(reading, place, row)
    path = run_path(place, row["name"])
    with reading.part(path), reading.source(path) as file:
        run = RunFile(reading, file, row["name"], log_id)
        has = (run.rows, run.footer.first_ms, run.footer.last_ms)
        if has != (row["rows"], row["first_ms"], row["last_ms"]):
            reading.findings.add(
                path, 0, f"has rows, first and last due {has}, its checkpoint others"
            )
            return
        if not 0 <= row["cursor"] <= row["limit"] <= run.rows:
            reading.findings.add(path, 0, "the checkpoint's cursor and limit lie outside its rows")
            return
        counts = _StateCounts(row, state)
        gone = total = 0
        for batch in run.batches(None if adopted else log):
            waits = counts.take(batch)
            entries = batch.entries[waits & batch.good]
            if adopted:
                rows = batch.first + np.flatnonzero(~waits)
                gone, total = gone + len(rows), (total + sum_of(rows)) & MASK
            else:
                balance.add(entries["due_ms"] // HOUR_MS, entries["origin"], -1)
        if adopted and state is not None and not run.damaged and not reading.quick:
            adoptions.compare(reading.findings, place, row, gone, total)
        if state is not None:
            for what in counts.faults(damaged=run.damaged):
                reading.findings.add(path, 0, what)


class _StateCounts:
    """Counts of a run's rows by state, to compare with its checkpoint and state."""

    def __init__(self, row: dict[str, Any], state: RunState | None) -> None:
        self._row = row
        self._state = state
        self._waiting = 0
        self._gone: dict[tuple[int, int], int] = {}  # (hour, topic) → rows that do not wait
        self._cursor_hour = row["limit_ms"] // HOUR_MS + 1

    def take(self, batch: Batch) -> npt.NDArray[np.bool_]:
        """Return which rows wait, quarantined ones included; none if the state is unreadable."""
        state, entries = self._state, batch.entries
        if state is None:
            return np.zeros(len(entries), bool)
        cursor, limit = self._row["cursor"], self._row["limit"]
        rows = batch.first + np.arange(len(entries))
        recalled = _bits(state, rows, RECALLED_STATES)
        quarantined = _bits(state, rows, (EntryState.QUARANTINED,))
        handed_over = (rows < cursor) & ~_bits(state, rows, (EntryState.WAITING,))
        mine = (rows < limit) & ~handed_over
        self._waiting += int((mine & ~recalled & ~quarantined).sum())
        first = rows[mine & (rows <= cursor)]  # ordered by due time
        if len(first):
            hour = int(entries["due_ms"][int(first[0]) - batch.first]) // HOUR_MS
            self._cursor_hour = min(self._cursor_hour, hour)
        gone = entries[(rows < limit) & (handed_over | recalled | quarantined)]
        both = (gone["due_ms"] // HOUR_MS << 32) | gone["topic"].astype(np.int64)
        numbers, amounts = np.unique(both, return_counts=True)
        for number, n in zip(numbers.tolist(), amounts.tolist(), strict=True):
            key = (number >> 32, number & 0xFFFFFFFF)
            self._gone[key] = self._gone.get(key, 0) + n
        waits: npt.NDArray[np.bool_] = mine & ~recalled
        return waits

    def faults(self, *, damaged: bool) -> list[str]:
        """Return what does not agree; damaged index rows leave out the counts by hour."""
        found = []
        stated = self._row["waiting"]
        if stated != self._waiting:
            found.append(f"the checkpoint says that {stated} wait, by its state {self._waiting} do")
        if self._state is None or damaged or EntryState.QUARANTINED in self._state.maps:
            return found
        stop = (self._row["limit_ms"] - 1) // HOUR_MS
        if self._kept_counts(self._gone, stop) != self._kept_counts(self._state.gone_by, stop):
            found.append("the state does not count what is gone of each hour and topic")
        return found

    def _kept_counts(
        self, counts: dict[tuple[int, int], int], stop: int
    ) -> dict[tuple[int, int], int]:
        """Return the counts of the hours from the cursor's on: earlier ones are not kept."""
        return {key: n for key, n in counts.items() if self._cursor_hour <= key[0] <= stop}


def _bits(
    state: RunState, rows: npt.NDArray[np.int64], kinds: tuple[EntryState, ...]
) -> npt.NDArray[np.bool_]:
    found = np.zeros(len(rows), bool)
    for kind in kinds:
        bits = state.maps.get(kind)
        if bits is not None:
            found |= (bits[rows >> 3] >> (rows & 7).astype(np.uint8)) & 1 == 1
    return found
