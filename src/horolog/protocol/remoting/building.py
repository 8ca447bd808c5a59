"""A send command under construction, while the messages of its frames are gathered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from horolog.protocol.remoting.batches import Batch
from horolog.protocol.remoting.frame import Frame
from horolog.protocol.remoting.gathered import Gathered, Request, Run
from horolog.protocol.remoting.known_codes import code_of_group, code_of_tag
from horolog.protocol.remoting.send_reader import Alike
from horolog.protocol.remoting.wanted import Wanted
from horolog.protocol.rocketmq.record_columns import Host, Messages, records_of
from horolog.protocol.send_commands import NewRecords, SendMessages
from horolog.protocol.transaction_commands import SendHalf, as_half


class Building:
    """A send command of one topic under construction.

    Messages are added as columns or as finished records, with the frames that they came in;
    `finish` returns the command.
    """

    def __init__(self, topic: str, name: bytes, *, is_half: bool = False) -> None:
        self._is_half = is_half
        self._topic = topic
        self._name = name
        self._columns: list[list[Any]] = [[] for _ in Messages._fields]
        self._records: list[bytes] = []  # records of messages that are no longer in `_columns`
        self._sizes: list[int] = []  # of the messages in `_records`
        self._ids: list[bytes] = []  # of the messages in `_records`
        self._taken: list[Request | Run] = []
        self._parts: list[int] = []

    def __len__(self) -> int:
        """Return the count of messages so far."""
        return len(self._sizes) + len(self._columns[0])

    def add(self, frames: Sequence[Frame], counts: Sequence[int], messages: Messages) -> None:
        """Add the messages of frames; `counts` has the messages of each frame."""
        self._take(frames, counts)
        self._add(messages)

    def add_records(
        self, batches: Sequence[Batch], records: NewRecords, ids: Sequence[bytes]
    ) -> None:
        """Add batches whose records are already built."""
        self._take([batch.frame for batch in batches], [batch.messages for batch in batches])
        self._make()
        self._records.append(records.records)
        self._sizes += records.sizes
        self._ids += ids

    def _take(self, frames: Sequence[Frame], counts: Sequence[int]) -> None:
        at = len(self)
        for frame, count in zip(frames, counts, strict=True):
            self._taken.append(Request(frame, range(at, at + count)))
            at += count
        self._parts += counts

    def add_runs(self, runs: Sequence[Alike], messages: Messages) -> None:
        """Add runs of frames with one message each."""
        at = len(self)
        for run in runs:
            self._taken.append(Run(run, range(at, at + len(run))))
            at += len(run)
        self._parts += [1] * len(messages.bodies)
        self._add(messages)

    def _add(self, messages: Messages) -> None:
        for column, values in zip(self._columns, messages, strict=True):
            column += values

    def _make(self) -> None:
        """Build records of the messages that are in columns."""
        if self._columns[0]:
            messages = Messages(*self._columns)
            made = records_of(self._name, messages)
            self._records.append(made.records)
            self._sizes += made.sizes
            self._ids += messages.ids
            self._columns = [[] for _ in Messages._fields]

    def finish(self) -> Gathered:
        """Return the finished command."""
        self._make()
        parts = () if len(self._parts) == len(self) else self._parts
        records = NewRecords(b"".join(self._records), self._sizes)
        if self._is_half:
            half = SendHalf(self._topic, as_half(records), reuses_ids=True, any_type=True)
            return Gathered(half, self._ids, self._taken)
        command = SendMessages(self._topic, records, parts, reuses_ids=True, any_type=True)
        return Gathered(command, self._ids, self._taken)


class Where(NamedTuple):
    """Columns of fields that messages have from their frames."""

    flags: list[int]
    queue_ids: list[int]
    sys_flags: list[int]
    attempts: list[int]
    born_ms: list[int]


def messages_of(
    bodies: Sequence[bytes], where: Where, wanted: Wanted, born_hosts: Sequence[Host]
) -> Messages:
    """Combine fields of frames and of properties into columns of messages."""
    codes = {tag: code_of_tag(tag) for tag in set(wanted.tags)}
    groups = {group: code_of_group(group) for group in set(wanted.groups)}
    return Messages(
        bodies,
        *where,
        wanted.texts,
        wanted.ids,
        wanted.keyed,
        [codes[tag] for tag in wanted.tags],
        [groups[group] for group in wanted.groups],
        wanted.due_ms,
        wanted.lanes,
        born_hosts,
    )
