"""The rows of a simulated lake: read from frozen runs, and staged for adoption."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from horolog.broker.adopt.staging import ShardFiles
from horolog.delay.entry import ENTRY, is_readable, record_crcs
from horolog.delay.run.reader import Run
from horolog.log.record import HEAD_BYTES
from horolog.protocol.rocketmq import layout, properties
from horolog.protocol.tier_commands import FrozenView, OffloadView
from horolog.testing.adopted_runs import write_entries
from horolog.testing.sim_adoptions import Transaction
from horolog.testing.sim_checks import PromiseBroken


class LakeMessage(NamedTuple):
    """A row of the table."""

    due_ms: int
    position: int  # origin
    row: int
    key: int
    tags: int
    topic: int
    record: bytes

    @property
    def message_id(self) -> str:
        """The message id."""
        decoded = properties.decode(layout.topic_and_properties(self.record[HEAD_BYTES:])[1])
        return decoded[properties.UNIQ_KEY]

    @property
    def origin(self) -> tuple[int, int]:
        """The origin, which identifies the message."""
        return self.position, self.row


def frozen_messages(place: ShardFiles, view: OffloadView) -> list[LakeMessage]:
    """Return what a job would write of the frozen runs, sorted; every row is verified."""
    return sorted(message for run in view.runs for message in _messages_of(place, run))


def _messages_of(place: ShardFiles, frozen: FrozenView) -> list[LakeMessage]:
    stem = frozen.path.removeprefix(f"{place.runs}/").removesuffix(".run")
    run = Run.open(place.storage, place.runs, stem, place.log_id)
    try:
        rows = np.arange(frozen.first, frozen.stop)
        if frozen.removed:
            bits = np.unpackbits(np.frombuffer(frozen.removed, np.uint8), bitorder="little")
            rows = rows[bits[: len(rows)] == 0]
        entries = run.entries(rows)
        records = [bytes(record) for record in run.records(entries)]
        good = is_readable(entries)
        good &= record_crcs(records, entries["origin"], entries["row"]) == entries["crc"]
        if not bool(good.all()):
            raise PromiseBroken(f"P2: rows of {frozen.path} do not verify")
    finally:
        run.close()
    if frozen.adopted is not None:
        entries["origin"], first = frozen.adopted
        entries["row"] += np.uint32(first)
    columns = (entries[name].tolist() for name in ("due_ms", "origin", "row", "key", "local"))
    topics = entries["topic"].tolist()
    return [LakeMessage(*each) for each in zip(*columns, topics, records, strict=True)]


def stage(made: Transaction, name: str, rows: list[LakeMessage]) -> Any:
    """Write rows as a run into the staging directory of a transaction, and return its claim."""
    entries = np.zeros(len(rows), ENTRY)
    entries["size"] = [len(row.record) for row in rows]
    entries["row"] = np.arange(len(rows))
    entries["due_ms"] = [row.due_ms for row in rows]
    entries["key"] = [row.key for row in rows]
    entries["local"] = [row.tags for row in rows]
    entries["topic"] = [row.topic for row in rows]
    place = made.place
    folder = place.staging(made.begun.token)
    records = [row.record for row in rows]
    return write_entries(place.storage, folder, name, entries, records, log_id=place.log_id)
