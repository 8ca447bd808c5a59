"""Check of the records of one frame: envelopes, content, and the routing of messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from zlib_ng.zlib_ng import crc32

from horolog.delay.far.adopted import Adoption
from horolog.errors import HorologError
from horolog.lake.core.steps import step_of
from horolog.limits import HOUR_MS
from horolog.log.control_records import HandOver
from horolog.log.controls import CONTROL_KINDS, UNREADABLE, Control, control_at
from horolog.log.frame import HEADER_BYTES, FrameHeader
from horolog.log.half_records import FOLLOWED, HalfMessage
from horolog.log.record import (
    HEAD_BYTES,
    IS_MESSAGE,
    LANE_AT,
    MANY_TAGS,
    Kind,
    heads_of,
    kinds_of,
    offsets_of,
)
from horolog.log.stored import stored
from horolog.log.unaligned import get
from horolog.protocol.rocketmq import layout, properties
from horolog.protocol.rocketmq.message import key_hash
from horolog.protocol.rocketmq.tags import bits_of, split_tags, tags_code

_KINDS = np.array(sorted(Kind), np.uint8)
_COMMITTED = (Kind.MESSAGE, Kind.SCHEDULED)


class Settled(NamedTuple):
    """Scheduled messages that a control record settles: columns of equal length."""

    hours: npt.NDArray[np.int64]
    origins: npt.NDArray[Any]  # rows with position and row


class Records(NamedTuple):
    """The records of a frame, as columns."""

    raw: npt.NDArray[np.uint8]  # the body
    base: int  # log position of the body
    at: npt.NDArray[np.int64]  # where each message record begins in the body
    heads: npt.NDArray[Any]  # log.record.HEAD of the message records
    settled: list[Settled]
    adoptions: list[Adoption]
    offloaded: dict[str, int]  # adopted file → rows that went to a tier


@dataclass(slots=True)
class _Frame:
    """The kinds of a frame's records, and the content of its control records."""

    kinds: npt.NDArray[np.uint8]
    settled: list[Settled] = field(default_factory=list)
    adoptions: list[Adoption] = field(default_factory=list)
    offloaded: dict[str, int] = field(default_factory=dict)


class RecordCheck:
    """Check of the records of frames, one frame after another.

    names   topic id → name; topics that the log creates are added
    report  called with a log position and what is wrong there
    """

    def __init__(self, names: dict[int, str], report: Callable[[int, str], None]) -> None:
        self._names = names
        self._report = report
        self._by_kind: Mapping[Kind, Callable[[_Frame, int, Control], str]] = {
            Kind.HAND_OVER: self._hand_over,
            Kind.RECALL: self._recall,
            Kind.RECALL_MANY: self._recall,
            Kind.TOPIC: self._topic,
            Kind.GROUP: self._group,
            Kind.GRANT: self._decodes,
            Kind.ACK: self._decodes,
            Kind.OFFSETS: self._decodes,
            Kind.EPOCH: self._decodes,
            Kind.ADOPT: self._adopt,
            Kind.OFFLOAD: self._offload,
            Kind.HALF: self._half,
            Kind.HALF_CHECK: self._decodes,
            Kind.HALF_END: self._half_end,
            Kind.SCHEDULE: self._decodes,
        }
        assert self._by_kind.keys() == CONTROL_KINDS

    def read(self, header: FrameHeader, body: bytes) -> Records | None:
        """Check and return the records; report a frame that cannot be parsed, and return None."""
        base = header.base + HEADER_BYTES
        try:
            offsets = offsets_of(body, header.count)
        except HorologError as error:
            self._report(header.base, error.message)
            return None
        kinds = kinds_of(body, offsets)
        raw = np.frombuffer(body, np.uint8)
        self._check_envelopes(raw, base, offsets, kinds)
        is_message = IS_MESSAGE[kinds]
        frame = _Frame(kinds)
        for row in np.flatnonzero(~is_message & np.isin(kinds, _KINDS)).tolist():
            self._control(frame, row, control_at(header, body, int(offsets[row])))
        at = offsets[is_message]
        heads = heads_of(body, at) if len(at) else np.empty(0, np.uint8)
        if len(at):
            self._check_messages(body, raw, base, at, heads)
        return Records(raw, base, at, heads, frame.settled, frame.adoptions, frame.offloaded)

    def _add_finding(self, base: int, at: npt.NDArray[np.int64], what: str) -> None:
        for offset in at.tolist():
            self._report(base + offset, what)

    def _check_envelopes(
        self,
        raw: npt.NDArray[np.uint8],
        base: int,
        at: npt.NDArray[np.int64],
        kinds: npt.NDArray[np.uint8],
    ) -> None:
        self._add_finding(base, at[~np.isin(kinds, _KINDS)], "a record of an unknown kind")
        lanes = get(raw, at + LANE_AT, "<u2")
        has_none = (lanes != 0) & ~np.isin(kinds, (Kind.SCHEDULED, Kind.HANDED))
        self._add_finding(base, at[has_none], "a record of a kind that has no lane has one")

    # --- messages ---------------------------------------------------------------------------------

    def _check_messages(
        self,
        body: bytes,
        raw: npt.NDArray[np.uint8],
        base: int,
        at: npt.NDArray[np.int64],
        heads: npt.NDArray[Any],
    ) -> None:
        sizes = heads["size"].astype(np.int64)
        stated = stored(raw, at + HEAD_BYTES, "total_size").astype(np.int64)
        self._add_finding(
            base, at[stated != sizes - HEAD_BYTES], "the layout has another size than its record"
        )
        places = stored(raw, at + HEAD_BYTES, "position")
        self._add_finding(base, at[places != at + base], "the layout names another log position")
        rows = zip(
            at.tolist(),
            sizes.tolist(),
            heads["topic"].tolist(),
            heads["key"].tolist(),
            heads["tags"].tolist(),
            (heads["flags"] & MANY_TAGS != 0).tolist(),
            strict=True,
        )
        for offset, size, topic, key, tags, is_many in rows:
            content = body[offset + HEAD_BYTES : offset + size]
            why = self._message_fault(content, topic, key, tags, is_many=is_many)
            if why:
                self._report(base + offset, why)

    def _message_fault(
        self, content: bytes, topic: int, key: int, tags: int, *, is_many: bool
    ) -> str:
        try:
            message = layout.decode(content)
        except HorologError as error:
            return error.message
        if crc32(message.body) & 0x7FFFFFFF != message.body_crc:
            return "the body of the message does not match its CRC"
        if self._names.get(topic) != message.topic:
            named = self._names.get(topic)
            return f"routed to topic {topic} ({named!r}), but it names topic {message.topic!r}"
        found = properties.decode(message.properties)
        if key_hash(message.topic, found.get(properties.UNIQ_KEY, "")) != key:
            return "the key hash is not that of its topic and message id"
        if is_many and not layout.has_many_tags(content):
            return "its head says that it has several tags, and its sysFlag does not"
        text = found.get(properties.TAGS, "")
        if is_many:
            tags &= (1 << 32) - 1
        if (bits_of(split_tags(text)) if is_many else tags_code(text)) != tags:
            return "the tags code is not that of its tag"
        return ""

    # --- control records: one check a kind, which returns what is wrong or "" ---------------------

    def _control(self, frame: _Frame, row: int, control: Control) -> None:
        try:
            why = self._by_kind[control.kind](frame, row, control)
        except UNREADABLE as error:
            why = f"cannot be read: {error}"
        if why:
            self._report(control.position, f"record {control.kind.name}: {why}")

    def _hand_over(self, frame: _Frame, row: int, control: Control) -> str:
        hand_over: HandOver = control.content
        n = len(hand_over.origins)
        frame.settled.append(Settled(np.full(n, hand_over.hour), hand_over.origins))
        after = frame.kinds[row + 1 : row + 1 + n]
        if len(after) < n or not bool((after == Kind.HANDED).all()):
            return f"{n} messages must follow it"
        return ""

    def _recall(self, frame: _Frame, _: int, control: Control) -> str:
        ended = control.ended()
        assert ended is not None
        assert ended.due_ms is not None, "only a HAND_OVER leaves them to its messages"
        frame.settled.append(Settled(ended.due_ms // HOUR_MS, ended.origins))
        return ""

    def _topic(self, _frame: _Frame, _: int, control: Control) -> str:
        fields = control.content
        self._names[int(fields["number"])] = str(fields["name"])
        return ""

    def _group(self, _frame: _Frame, _: int, control: Control) -> str:
        fields = control.content
        str(fields["name"]), int(fields["number"])
        return ""

    def _half(self, _frame: _Frame, _: int, control: Control) -> str:
        half: HalfMessage = control.content
        head = half.head
        return self._message_fault(
            half.layout, int(head["topic"]), int(head["key"]), int(head["tags"]), is_many=False
        )

    def _half_end(self, frame: _Frame, row: int, control: Control) -> str:
        ended = control.content
        n = int(np.isin(ended["outcome"], list(FOLLOWED)).sum())
        after = frame.kinds[row + 1 : row + 1 + n]
        if len(after) < n or not bool(np.isin(after, _COMMITTED).all()):
            return f"{n} messages must follow it"
        return ""

    def _decodes(self, _frame: _Frame, _: int, control: Control) -> str:
        _ = control.content
        return ""

    def _adopt(self, frame: _Frame, _: int, control: Control) -> str:
        frame.adoptions.append(Adoption.of(control.position, control.content))
        return ""

    def _offload(self, frame: _Frame, _: int, control: Control) -> str:
        fields, table = control.content
        step_of(fields, table)
        frame.offloaded |= fields.get("adopted", {})
        return ""
