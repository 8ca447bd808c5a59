"""Control records: one table says what each kind carries, and every reader of the log knows every kind."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest

from horolog.cli.inspection import log_file
from horolog.delay.state import EntryState
from horolog.errors import ErrorCode, HorologError
from horolog.log import control_records, half_records, record
from horolog.log.controls import (
    CONTENTS,
    CONTROL_KINDS,
    ENDING,
    UNREADABLE,
    Outcome,
    control_at,
    ended_in,
)
from horolog.log.frame import HEADER_BYTES, parse, seal
from horolog.log.record import Kind

SRC = Path(__file__).resolve().parents[2] / "src" / "horolog"
ORIGINS = control_records.origins_of(np.array([64, 640]), np.array([0, 3]))
MANY = np.array([(64, 0, 5_000), (640, 3, 6_000)], control_records.RECALLED)
GRANTED = np.array([(7, 1, 2)], control_records.GRANTED)
LANES = np.array([0, 4], np.uint16)
HALF = np.zeros(1, record.HEAD)
HALF["size"], HALF["key"] = record.HEAD_BYTES, 99
SAMPLES = {
    Kind.HAND_OVER: control_records.encode_hand_over(12, ORIGINS),
    Kind.RECALL: control_records.encode_recall(3, 99, 5_000, ORIGINS, LANES, moved=True),
    Kind.RECALL_MANY: control_records.encode_recall_many(3, MANY),
    Kind.TOPIC: control_records.encode_topic_end(3, "t"),
    Kind.GROUP: control_records.encode_group(4, "g"),
    Kind.GRANT: control_records.encode_grant(4, 3, 0, 8, 60_000, GRANTED),
    Kind.ACK: control_records.encode_ack(4, 3, 0, [7, 9]),
    Kind.OFFSETS: control_records.encode_offsets(4, 3, [(0, 7)]),
    Kind.EPOCH: control_records.encode_epoch(),
    Kind.ADOPT: control_records.encode_adopt({"app": "a", "version": 1}),
    Kind.OFFLOAD: control_records.encode_offload({"step": "begin"}, b"xyz"),
    Kind.HALF: half_records.half_envelope(HALF.nbytes, 7_000) + HALF.tobytes(),
    Kind.HALF_CHECK: half_records.encode_half_checks(
        np.array([(64, 9_000, 2)], half_records.HALF_CHECKED)
    ),
    Kind.HALF_END: half_records.encode_half_ends([(64, half_records.HalfOutcome.COMMITTED)]),
    Kind.SCHEDULE: control_records.encode_schedule_end(5, "s"),
}


def frame_of(*records: bytes):
    body = b"".join(records)
    sealed = seal(
        log_id=7,
        shard=0,
        base=4_096,
        durable=0,
        append_ms=1,
        epoch=2,
        count=len(records),
        body=body,
    )
    header = parse(sealed)
    assert header is not None
    return header, body, record.offsets_of(body, len(records))


def test_the_table_has_every_kind_and_its_words_are_those_of_entries() -> None:
    assert CONTENTS.keys() == CONTROL_KINDS == set(SAMPLES)
    assert {outcome.name for outcome in Outcome} <= EntryState.__members__.keys()
    assert set(ENDING) == {Kind.HAND_OVER, Kind.RECALL, Kind.RECALL_MANY}


@pytest.mark.parametrize("kind", sorted(CONTROL_KINDS), ids=lambda kind: kind.name)
def test_a_record_comes_back(kind: Kind) -> None:
    header, body, offsets = frame_of(control_records.encode_epoch(), SAMPLES[kind])
    control = control_at(header, body, int(offsets[1]))
    assert control.kind is kind
    assert control.position == 4_096 + HEADER_BYTES + len(control_records.encode_epoch())
    content = control.content
    match kind:
        case Kind.TOPIC:
            assert content == {"number": 3, "name": "t", "deleted": True}
        case Kind.GROUP:
            assert content == {"number": 4, "name": "g"}
        case Kind.ADOPT:
            assert content == {"app": "a", "version": 1}
        case Kind.OFFLOAD:
            assert content == ({"step": "begin"}, b"xyz")
        case Kind.SCHEDULE:
            assert content == {"id": 5, "name": "s", "deleted": True}
        case Kind.EPOCH:
            assert content is None
        case Kind.GRANT:
            assert (content.next_offset, content.granted.tolist()) == (8, [(7, 1, 2)])
        case Kind.ACK:
            assert content.offsets.tolist() == [7, 9]
        case Kind.HALF:
            assert (int(content.head["key"]), content.record) == (99, HALF.tobytes())
            assert control.due_ms == 7_000
        case Kind.HALF_CHECK:
            assert content.tolist() == [(64, 9_000, 2)]
        case Kind.HALF_END:
            assert content.tolist() == [(64, half_records.HalfOutcome.COMMITTED)]
        case Kind.OFFSETS:
            assert content.committed.tolist() == [(0, 7)]
        case _:
            ended = control.ended()
            assert ended is not None
            assert ended.origins["position"].tolist() == [64, 640]
    assert (control.ended() is not None) == (kind in ENDING)


def test_what_ends_has_its_due_times_and_lanes() -> None:
    moved = control_and_end(SAMPLES[Kind.RECALL])
    assert (moved.outcome, moved.due_ms.tolist()) == (Outcome.MOVED, [5_000, 5_000])
    assert moved.lanes.tolist() == [0, 4]
    many = control_and_end(SAMPLES[Kind.RECALL_MANY])
    assert (many.outcome, many.due_ms.tolist()) == (Outcome.RECALLED, [5_000, 6_000])
    heads = np.zeros(2, record.HEAD)
    heads["size"], heads["kind"] = record.HEAD_BYTES, Kind.HANDED
    heads["due_ms"], heads["lane"] = [43, 44], [0, 5]
    of_an_hour = SAMPLES[Kind.HAND_OVER], heads[:1].tobytes(), heads[1:].tobytes()
    handed = control_and_end(*of_an_hour, *of_an_hour)  # a frame may hand over two hours
    assert (handed.outcome, handed.due_ms.tolist()) == (Outcome.HANDED_OVER, [43, 44])
    assert handed.lanes.tolist() == [0, 5]


def control_and_end(*records: bytes):
    header, body, offsets = frame_of(*records)
    return ended_in(body, offsets, 0, control_at(header, body, 0))


def test_a_kind_of_a_newer_horolog_is_refused() -> None:
    header, body, _ = frame_of(record.ENVELOPE.pack(16, 99, 0, 0, 0))
    with pytest.raises(HorologError, match="log position 4096: record kind 99") as refused:
        control_at(header, body, 0)
    assert refused.value.code is ErrorCode.VERSION_UNSUPPORTED


@pytest.mark.parametrize("kind", sorted(CONTROL_KINDS - {Kind.EPOCH}), ids=lambda kind: kind.name)
def test_a_payload_that_is_cut_off_is_unreadable(kind: Kind) -> None:
    sample = SAMPLES[kind]
    short = record.ENVELOPE.pack(17, kind, 0, 0, 0) + sample[16:17]
    header, body, _ = frame_of(short)
    with pytest.raises(UNREADABLE):
        _ = control_at(header, body, 0).content


def test_nobody_decodes_control_records_but_the_table() -> None:
    """Readers have tables of all kinds, checked where they are made; see `log.controls`."""
    theirs = {f"decode_{name}" for name in ("hand_over", "recall", "recall_many", "grant", "ack")}
    theirs |= {"decode_offsets", "decode_offload"}
    theirs |= {"decode_half", "decode_half_checks", "decode_half_ends"}
    for path in sorted(SRC.rglob("*.py")):
        if path.name in ("controls.py", "control_records.py", "half_records.py", "halves.py"):
            continue
        named = {
            alias.name
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.ImportFrom)
            and node.module in ("horolog.log.control_records", "horolog.log.half_records")
            for alias in node.names
        }
        assert not named & theirs, f"{path}: {named & theirs} (ask `log.controls`)"
    assert log_file.DETAILS.keys() == CONTROL_KINDS
