"""Reader of a segment of the commit log: its frames, or with `show_records` the records in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from horolog.cli.inspection.report import Report, instant, verdict
from horolog.errors import HorologError
from horolog.log import control_records
from horolog.log import record as records
from horolog.log.controls import CONTROL_KINDS, Control, read_control
from horolog.log.file_names import number_of
from horolog.log.frame import (
    HEADER_BYTES,
    KNOWN_INCOMPATIBLE,
    VERSION,
    FrameHeader,
    body_intact,
    parse,
)
from horolog.log.half_records import HalfMessage, HalfOutcome
from horolog.log.record import MESSAGE_KINDS, Kind, offsets_of
from horolog.log.resync import headers_in
from horolog.protocol.rocketmq import properties
from horolog.protocol.rocketmq.layout import decode
from horolog.units import counted

_BLOCK = 1 << 20
_FRAME_HEAD = ("POSITION", "EPOCH", "COUNT", "BYTES", "DURABLE", "APPENDED", "CRC", "RECORDS")
RECORD_HEAD = ("POSITION", "KIND", "BYTES", "DUE", "DETAIL", "LAYOUT")


class SegmentFile:
    """The frames of one mapped segment."""

    def __init__(self, path: Path, content: memoryview) -> None:
        self._content = content
        base, first = number_of(path.name, "log"), parse(content)
        self.base = base if base is not None else (first.base if first else 0)
        self.end = 0  # offset after the last good frame
        self.stated_durable = 0
        self.ghosts = 0
        self.notes: list[str] = []
        self.problems: list[str] = []

    def frames(self) -> Iterator[tuple[FrameHeader, memoryview, bool]]:
        """Yield good frames, and frames whose body is bad (False).

        After a bad frame the search continues at the next intact header.
        """
        at = epoch = 0
        bad: list[int] = []
        while at + HEADER_BYTES <= len(self._content):
            header = parse(self._content, at)
            if header is None or header.base != self.base + at:
                if self._is_blank(at):
                    break
                bad.append(at)
                at = self._next_header(at + 1)
                continue
            if header.version > VERSION or header.incompatible & ~KNOWN_INCOMPATIBLE:
                self.problems.append(
                    f"frame at {header.base} has version {header.version}, flags"
                    f" {header.incompatible:#x}: written by a newer horolog"
                )
                return
            body = self._content[at + HEADER_BYTES : at + HEADER_BYTES + header.length]
            good = body_intact(header, body)
            if header.epoch < epoch:
                self.ghosts += 1
                at = self._next_header(at + 1)
                continue
            if not good:
                bad.append(at)
            epoch = header.epoch
            self.stated_durable = max(self.stated_durable, header.durable)
            yield header, body, good
            at += HEADER_BYTES + header.length
            self.end = at if good and not bad else self.end
        self._judge(bad)

    def _is_blank(self, at: int) -> bool:
        for start in range(at, len(self._content), _BLOCK):
            if np.frombuffer(self._content[start : start + _BLOCK], np.uint8).any():
                return False
        return True

    def _next_header(self, at: int) -> int:
        """Return the offset of the next intact header in its place, or the end of the file."""
        base, content = self.base, self._content

        def read(position: int, length: int) -> memoryview:
            return content[position - base : position - base + length]

        following = next(headers_in(read, base + at, base + len(content)), None)
        return len(content) if following is None else following.base - base

    def _judge(self, bad: list[int]) -> None:
        for at in bad:
            position = self.base + at
            if self.stated_durable > position:
                self.problems.append(
                    f"bad frame at log position {position}: durable up to {self.stated_durable}"
                    " had been promised, so this is damage"
                )
            else:
                self.notes.append(
                    f"bad frame at log position {position}: torn tail, nothing after it was"
                    " promised here; a start cuts it off"
                )
        if self.ghosts:
            self.notes.append(
                f"{counted(self.ghosts, 'frame')} of an older epoch: ghosts of a tail that was cut"
            )


def read_segment(path: Path, content: memoryview, *, limit: int, show_records: bool) -> Report:
    """Read a segment as a table of frames, or of records."""
    report = Report(str(path), "commit log segment")
    segment = SegmentFile(path, content)
    kinds: Counter[str] = Counter()
    counted: list[FrameHeader] = []

    def rows() -> Iterator[tuple[object, ...]]:
        for header, body, good in segment.frames():
            counted[:] = [counted[0] if counted else header, header]
            found = _records_of(header, body) if good and not header.padding else []
            kinds.update(kind.name for _, kind, _ in found)
            if show_records:
                for offset, kind, raw in found:
                    yield record_row(header.base + HEADER_BYTES + offset, kind, raw)
            else:
                yield _frame_row(header, good, [kind for _, kind, _ in found])

    report.head = RECORD_HEAD if show_records else _FRAME_HEAD
    try:
        report.take(rows(), limit)
    except HorologError as error:
        segment.problems.append(error.message)
    report.fields |= {
        "base": segment.base,
        "log id": f"{counted[0].log_id:016x}" if counted else "",
        "epochs": f"{counted[0].epoch} to {counted[1].epoch}" if counted else "",
        "end": segment.base + segment.end,
        "durable as stated": segment.stated_durable,
        "records": ", ".join(f"{count} {name}" for name, count in sorted(kinds.items())),
    }
    report.notes += segment.notes
    report.problems += segment.problems
    return report


def _records_of(header: FrameHeader, body: memoryview) -> list[tuple[int, Kind, memoryview]]:
    offsets = [*offsets_of(body, header.count).tolist(), len(body)]
    return [(start, Kind(body[start + 4]), body[start:stop]) for start, stop in pairwise(offsets)]


def _frame_row(header: FrameHeader, good: bool, kinds: Sequence[Kind]) -> tuple[object, ...]:
    text = ", ".join(f"{count} {kind.name}" for kind, count in sorted(Counter(kinds).items()))
    if header.padding:
        text = "given up by a salvage" if header.salvaged else "padding"
    elif not header.count:
        text = "mark"
    return (
        header.base,
        header.epoch,
        header.count,
        HEADER_BYTES + header.length,
        header.durable,
        instant(header.append_ms),
        verdict(good),
        text,
    )


def record_row(position: int, kind: Kind, raw: memoryview) -> tuple[object, ...]:
    """Return position, kind, bytes, due time, detail, and the verdict on the body of a message."""
    size, _, _, _, due_ms = records.ENVELOPE.unpack_from(raw)
    if kind in MESSAGE_KINDS:
        detail, layout = message_detail(bytes(raw[records.HEAD_BYTES :]))
    else:
        detail, layout = DETAILS[kind](read_control(raw, 0, position)), ""
    return position, kind.name, size, instant(due_ms) if due_ms else "", detail, layout


def message_detail(layout: bytes) -> tuple[str, str]:
    """Return topic and message id of a stored layout, and the verdict on its own body CRC."""
    from zlib_ng.zlib_ng import crc32

    try:
        stored = decode(layout)
    except HorologError as error:
        return error.message, verdict(good=False)
    message_id = properties.decode(stored.properties).get(properties.UNIQ_KEY, "")
    good = crc32(stored.body) & 0x7FFFFFFF == stored.body_crc
    return f"{stored.topic} {message_id}", verdict(good)


def _hand_over(control: Control) -> str:
    hand_over: control_records.HandOver = control.content
    return f"hour {hand_over.hour}, origins {_first_few(hand_over.origins['position'].tolist())}"


def _recall(control: Control) -> str:
    recall: control_records.RecallRecord = control.content
    moved = "moved, " if control.flags & control_records.IS_MOVED else ""
    return f"{moved}topic {recall.topic}, origins {_first_few(recall.origins['position'].tolist())}"


def _recall_many(control: Control) -> str:
    many: control_records.RecallMany = control.content
    return f"topic {many.topic}, origins {_first_few(many.messages['position'].tolist())}"


def _grant(control: Control) -> str:
    grant: control_records.Grant = control.content
    holder = grant.holder.client_id
    return (
        f"group {grant.group}, topic {grant.topic}, queue {grant.queue}, for"
        f" {grant.duration_ms} ms{f' and longer for client {holder}' if holder else ''},"
        f" offsets {_first_few(grant.granted['offset'].tolist())}"
    )


def _ack(control: Control) -> str:
    ack: control_records.AckRecord = control.content
    offsets = _first_few(ack.offsets.tolist())
    return f"group {ack.group}, topic {ack.topic}, queue {ack.queue}, offsets {offsets}"


def _offsets(control: Control) -> str:
    record: control_records.OffsetsRecord = control.content
    rows = _first_few([f"{queue}:{offset}" for queue, offset in record.committed.tolist()])
    return f"group {record.group}, topic {record.topic}, queues and offsets {rows}"


def _half(control: Control) -> str:
    half: HalfMessage = control.content
    return message_detail(half.layout)[0]


def _half_checks(control: Control) -> str:
    return f"positions {_first_few(control.content['position'].tolist())}"


def _half_ends(control: Control) -> str:
    ends = control.content.tolist()
    return _first_few([f"{position} {HalfOutcome(end).name.lower()}" for position, end in ends])


def _payload_text(control: Control) -> str:
    return control.payload.decode("utf-8", "replace")


def _no_detail(_: Control) -> str:
    return ""


DETAILS: Mapping[Kind, Callable[[Control], str]] = {
    Kind.HAND_OVER: _hand_over,
    Kind.RECALL: _recall,
    Kind.RECALL_MANY: _recall_many,
    Kind.TOPIC: _payload_text,
    Kind.GROUP: _payload_text,
    Kind.GRANT: _grant,
    Kind.ACK: _ack,
    Kind.OFFSETS: _offsets,
    Kind.EPOCH: _no_detail,
    Kind.ADOPT: _payload_text,
    Kind.OFFLOAD: _no_detail,
    Kind.HALF: _half,
    Kind.HALF_CHECK: _half_checks,
    Kind.HALF_END: _half_ends,
    Kind.SCHEDULE: _payload_text,
}
assert DETAILS.keys() == CONTROL_KINDS


def _first_few(numbers: list[Any]) -> str:
    shown = " ".join(str(number) for number in numbers[:4])
    return shown if len(numbers) <= 4 else f"{shown} … ({len(numbers)})"
