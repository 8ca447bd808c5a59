"""`horolog inspect`: what each reader says about good files, harmed files and anything else."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from horolog.backup.manifest import MANIFEST_NAME, Manifest, StoredFile, write_manifest
from horolog.broker.life.quarantine import NOTE, Note, write_note
from horolog.cli.inspection.files import inspect_file, inspect_tree
from horolog.cli.inspection.report import Report
from horolog.delay.entry import ENTRY, entry_sums, record_crcs
from horolog.delay.far.run_state import RunState, encode_run_state
from horolog.delay.key_run import encode_key_run, key_run_name
from horolog.delay.state import EntryState, HourState, empty_heads, encode_state, state_name
from horolog.delay.tier import state_name as tier_state_name
from horolog.errors import ErrorCode, HorologError
from horolog.lake.core.recalled_set import LAKE_ROW
from horolog.lake.core.state import Lake
from horolog.lake.core.state_file import COUNT, NAME
from horolog.log import control_records, record
from horolog.log.checkpoint import Checkpoint, checkpoint_name, encode_checkpoint
from horolog.log.frame import HEADER_BYTES, seal
from horolog.log.key_index import KeyIndex
from horolog.log.key_rows import chunk_name
from horolog.log.queue_names import queue_file_name
from horolog.log.queue_unit import UNIT
from horolog.log.segment import segment_name
from horolog.protocol.rocketmq.message import encode
from horolog.storage.disk import Disk

RUN_STATE = "0000000001.state.0000000001"
LAKE_STATE = tier_state_name(NAME, 3)
HOUR = 492_490
HOUR_MS = HOUR * 3_600_000
LOG_ID = 0xABCD


def message(due_ms: int) -> bytes:
    """A scheduled record."""
    made = encode(topic="reminders", body=b"x" * 20, message_id="01AB", due_ms=due_ms)
    head = np.zeros(1, record.HEAD)
    head["size"], head["kind"], head["due_ms"] = len(made.record), record.Kind.SCHEDULED, due_ms
    return head.tobytes() + made.record[record.HEAD_BYTES :]


def segment(*bodies: bytes, durable: int = 0, epoch: int = 1) -> bytes:
    """Frames of one record each, and the blank rest of a segment."""
    content = b""
    for body in bodies:
        head = seal(
            log_id=LOG_ID, shard=0, base=len(content), durable=min(durable, len(content)),
            append_ms=HOUR_MS, epoch=epoch, count=1, body=body,
        )  # fmt: skip
        content += head + body
    return content.ljust(1 << 16, b"\0")


def write_hour(directory: Path) -> None:
    """Two messages, filed as an hour."""
    records = [message(HOUR_MS + 7_500), message(HOUR_MS + 9_000)]
    entries = np.zeros(2, ENTRY)
    entries["position"] = [0, len(records[0])]
    entries["size"] = [len(each) for each in records]
    entries["previous"] = -1
    entries["due_ms"] = [HOUR_MS + 7_500, HOUR_MS + 9_000]
    entries["origin"] = [64, 500]
    entries["crc"] = record_crcs(records, entries["origin"])
    entries["sum"] = entry_sums(entries)
    (directory / "delay.log").write_bytes(b"".join(records))
    (directory / "delay.idx").write_bytes(entries.tobytes())
    heads = empty_heads()
    heads[7] = (0, 1, 1)
    heads[9] = (1, 1, 0)
    states = np.array([EntryState.WAITING, EntryState.HANDED_OVER], np.uint8)
    state = HourState(HOUR, 2, sum(map(len, records)), 1, 0, heads, {1: 1}, states)
    (directory / state_name(1)).write_bytes(encode_state(state))
    keys = np.array([5, 9], np.uint64)
    (directory / key_run_name(0, 2)).write_bytes(encode_key_run(0, keys, np.arange(2)))


def inspect(path: Path, *, show_records: bool = False, limit: int = 50) -> Report:
    """As the command does."""
    return inspect_file(path, limit=limit, show_records=show_records)


def flip(path: Path, at: int) -> None:
    """One bit."""
    content = bytearray(path.read_bytes())
    content[at] ^= 0x10
    path.write_bytes(content)


def test_frames_and_records_of_a_segment(tmp_path: Path) -> None:
    """One row a frame; with `records` one a record, with topic, id and the CRC of the body."""
    path = tmp_path / segment_name(0)
    path.write_bytes(
        segment(
            control_records.encode_epoch(),
            message(HOUR_MS),
            control_records.encode_ack(1, 2, 0, [7]),
        )
    )
    report = inspect(path)
    assert report.problems == report.notes == []
    assert [row[-1] for row in report.rows] == ["1 EPOCH", "1 SCHEDULED", "1 ACK"]
    assert report.fields["records"] == "1 ACK, 1 EPOCH, 1 SCHEDULED"
    rows = inspect(path, show_records=True).rows
    assert rows[1][1:] == (
        "SCHEDULED", len(message(HOUR_MS)), "2026-03-08T10:00:00.000Z", "reminders 01AB", "ok",
    )  # fmt: skip
    assert rows[2][4] == "group 1, topic 2, queue 0, offsets 7"
    limited = inspect(path, limit=1)
    assert (len(limited.rows), limited.fields["rows"]) == (1, 3)


def test_every_kind_of_control_record_is_explained(tmp_path: Path) -> None:
    """In words."""
    origins = control_records.origins_of(np.array([64, 500], np.uint64))
    granted = np.zeros(1, control_records.GRANTED)
    path = tmp_path / segment_name(0)
    path.write_bytes(
        segment(
            control_records.encode_hand_over(HOUR, origins),
            control_records.encode_recall(1, 5, HOUR_MS, origins),
            control_records.encode_topic(
                {"number": 1, "name": "reminders", "type": "delay", "queues": 4}
            ),
            control_records.encode_group(1, "me"),
            control_records.encode_grant(1, 2, 0, 1, 30_000, granted),
        )
    )
    details = [str(row[4]) for row in inspect(path, show_records=True).rows]
    assert details[0] == f"hour {HOUR}, origins 64 500"
    assert details[1] == "topic 1, origins 64 500"
    assert '"name":"reminders"' in details[2]
    assert '"name":"me"' in details[3]
    assert details[4] == "group 1, topic 2, queue 0, for 30000 ms, offsets 0"


def test_a_torn_tail_is_a_note(tmp_path: Path) -> None:
    """Nothing after it had been promised."""
    path = tmp_path / segment_name(0)
    path.write_bytes(segment(control_records.encode_epoch(), message(HOUR_MS)))
    flip(path, HEADER_BYTES + record.ENVELOPE_BYTES + HEADER_BYTES + 40)
    report = inspect(path)
    assert report.problems == []
    assert "torn tail" in report.notes[0]
    assert report.rows[-1][6] == "BAD"


@pytest.mark.parametrize("at", [3, 30, HEADER_BYTES + 5])
def test_a_bad_frame_below_what_was_promised_is_damage(tmp_path: Path, at: int) -> None:
    """In its header or its body; the frames after it are still read."""
    path = tmp_path / segment_name(0)
    bodies = [control_records.encode_epoch(), message(HOUR_MS), message(HOUR_MS + 1)]
    path.write_bytes(segment(*bodies, durable=1 << 40))
    flip(path, at)
    report = inspect(path)
    assert "bad frame at log position 0" in report.problems[0]
    assert [row[-1] for row in report.rows][-2:] == ["1 SCHEDULED", "1 SCHEDULED"]


def test_frames_of_a_newer_version_are_named(tmp_path: Path) -> None:
    """Not taken for damage."""
    from zlib_ng.zlib_ng import crc32

    content = bytearray(segment(control_records.encode_epoch()))
    content[4] = 9
    content[60:64] = crc32(bytes(content[:60])).to_bytes(4, "little")
    path = tmp_path / segment_name(0)
    path.write_bytes(content)
    assert "written by a newer horolog" in inspect(path).problems[0]


def test_an_hour(tmp_path: Path) -> None:
    """Index, log, state and key run, each with its verdicts."""
    write_hour(tmp_path)
    index = inspect(tmp_path / "delay.idx")
    assert index.problems == []
    assert [row[-2:] for row in index.rows] == [("ok", "ok"), ("ok", "ok")]
    log = inspect(tmp_path / "delay.log")
    assert [row[3] for row in log.rows] == ["reminders 01AB", "reminders 01AB"]
    state = inspect(tmp_path / state_name(1))
    assert state.fields["states"] == "1 WAITING, 1 HANDED_OVER"
    assert [row[0] for row in state.rows] == ["2026-03-08T10:00:07Z", "2026-03-08T10:00:09Z"]
    assert inspect(tmp_path / key_run_name(0, 2)).rows == [(f"{5:016x}", 0), (f"{9:016x}", 1)]


@pytest.mark.parametrize(
    ("name", "at", "text"),
    [
        ("delay.idx", 9, "bad entry check sums"),
        ("delay.log", 60, "not verified"),
        (state_name(1), 100, "not intact"),
        (key_run_name(0, 2), 33, "not intact"),
    ],
)
def test_a_flipped_bit_in_an_hour(tmp_path: Path, name: str, at: int, text: str) -> None:
    """Every file says so itself; of the log, its index does."""
    write_hour(tmp_path)
    flip(tmp_path / name, at)
    assert text in inspect(tmp_path / name).problems[0]


def test_checkpoint_queue_and_meta(tmp_path: Path) -> None:
    """The rest of a data directory."""
    units = np.array([(64, 200, 7), (300, 200, 7)], UNIT)
    queue = tmp_path / queue_file_name(0)
    queue.write_bytes(units.tobytes() + b"half")
    assert inspect(queue).rows == [(0, 64, 200, 7), (1, 300, 200, 7)]
    assert "4 bytes after the last whole unit" in inspect(queue).notes[0]
    columns = {name: np.empty(0, dtype) for name, dtype in _columns().items()}
    checkpoint = Checkpoint(
        0, 1, LOG_ID, 500, 400, 500, HOUR_MS, {"topics": [{"name": "t"}]}, columns
    )
    path = tmp_path / checkpoint_name(500)
    path.write_bytes(encode_checkpoint(checkpoint))
    report = inspect(path)
    assert report.fields["position"] == 500
    assert report.rows == [("topics", '{"name":"t"}')]
    (tmp_path / "meta").write_text('{"format": 1}')
    assert inspect(tmp_path / "meta").fields == {"format": 1}
    assert {each.kind for each in inspect_tree(tmp_path)} == {"consume queue", "checkpoint", "meta"}


def test_an_unreadable_file_is_not_reported_as_intact(tmp_path, monkeypatch) -> None:
    """The kernel's refusal is acted: whoever runs the tests may be root, whom it refuses nothing."""
    (tmp_path / "meta").write_bytes(b"x")

    def refuse(*_: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(Path, "open", refuse)
    (report,) = inspect_tree(tmp_path)
    assert report.problems == [f"FILE: cannot read {tmp_path / 'meta'}: Permission denied"]
    with pytest.raises(HorologError) as refused:
        inspect_file(tmp_path / "meta", limit=1, show_records=False)
    assert refused.value.code is ErrorCode.DISK_FAILED


def _columns() -> dict[str, np.dtype[np.void]]:
    from horolog.log.checkpoint import COLUMNS

    return COLUMNS


def write_far_and_keys(directory: Path) -> None:
    """The states of a run of ten rows and of the lake, a sealed and an open chunk of the key index, a note and a manifest."""
    bits = np.packbits(np.arange(10) % 3 == 0, bitorder="little")
    state = RunState(10, {(HOUR, 1): 4}, {EntryState.MOVED: bits})
    (directory / RUN_STATE).write_bytes(encode_run_state(state))
    offloaded = Lake()
    offloaded.begin(2, "job", HOUR_MS)
    offloaded.add_waiting(2, np.array([(2, HOUR, 1, 5), (2, HOUR + 1, 1, 7)], COUNT))
    offloaded.recall(np.array([(2, 960, 0, 1, HOUR_MS + 3), (2, 480, 9, 1, HOUR_MS)], LAKE_ROW))
    (directory / LAKE_STATE).write_bytes(offloaded.encode())
    index = KeyIndex(Disk(directory), "keys", log_id=LOG_ID, chunk_rows=64)
    for first in range(0, 100, 20):
        keys = np.arange(first, first + 20, dtype=np.uint64) << np.uint64(57)
        index.add(keys, np.arange(first, first + 20, dtype=np.uint64) * np.uint64(300))
        index.flush()
    index.close()
    for each in (directory / "keys").iterdir():
        each.rename(directory / each.name)
    note = Note("shard-00/hours/q", ("0000000007",), 500, 14, 10, HOUR, HOUR, "it is bad")
    write_note(Disk(directory), note._replace(place=""))
    manifest = Manifest(2, LOG_ID, "0.1", HOUR_MS, 500, 400, 7, [StoredFile("meta", 115, 0xAB, 1)])
    write_manifest(Disk(directory), manifest)


def test_run_state_key_index_note_and_manifest(tmp_path: Path) -> None:
    """What the far store, the index, a quarantine and a backup have beside their messages."""
    write_far_and_keys(tmp_path)
    state = inspect(tmp_path / RUN_STATE)
    assert state.fields["marked"] == "4 MOVED"
    assert state.rows == [("2026-03-08T10:00Z", 1, 4)]
    of_lake = inspect(tmp_path / LAKE_STATE)
    assert (of_lake.fields["waiting"], of_lake.fields["recalled"]) == (10, 2)
    assert of_lake.rows == [(2, "2026-03-08T10:00Z", 1, 3, 2), (2, "2026-03-08T11:00Z", 1, 7, 0)]
    sealed, tail = inspect(tmp_path / chunk_name(0)), inspect(tmp_path / chunk_name(64))
    assert (sealed.fields["sealed"], sealed.fields["heads crc"]) == ("yes", "ok")
    assert (tail.fields["sealed"], tail.fields["rows"], tail.fields["before"]) == ("no", 36, 18_900)
    assert tail.rows[1] == (65, f"{65 << 57 & (1 << 64) - 1:016x}", 19_500, 1, "ok")
    note = inspect(tmp_path / NOTE)
    assert (note.fields["lost"], note.fields["why"]) == (10, "it is bad")
    manifest = inspect(tmp_path / MANIFEST_NAME)
    assert manifest.rows == [("meta", 115, "000000ab", 1)]
    reports = list(inspect_tree(tmp_path))
    assert [each.problems for each in reports] == [[]] * 6
    assert {each.kind for each in reports} == {
        "run state", "lake state", "key index chunk", "quarantine note", "backup manifest",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "at", "text"),
    [
        ("RUN_STATE", 40, "not intact"),
        ("LAKE_STATE", 0, "not intact"),
        ("LAKE_STATE", 20, "not intact"),
        ("LAKE_STATE", 90, "not intact"),
        ("sealed", 20, "not intact"),
        ("sealed", 60, "1 bad row sums"),
        ("sealed", 40 + 24 * 64 + 2, "heads"),
        ("manifest.json", 40, "not an intact manifest"),
    ],
)
def test_a_flipped_bit_beside_messages(tmp_path: Path, name: str, at: int, text: str) -> None:
    """Every file says so itself."""
    write_far_and_keys(tmp_path)
    names = {"RUN_STATE": RUN_STATE, "LAKE_STATE": LAKE_STATE, "sealed": chunk_name(0)}
    path = tmp_path / names.get(name, name)
    flip(path, at)
    assert text in inspect(path).problems[0]


@pytest.mark.parametrize("name", ["meta", NOTE, MANIFEST_NAME])
@pytest.mark.parametrize("content", ["0", "[]", "null", '"x"', "{}"])
def test_json_that_is_no_object_is_damage(tmp_path: Path, name: str, content: str) -> None:
    """It has no check sum that could say so."""
    (tmp_path / name).write_text(content)
    assert inspect(tmp_path / name).problems


def test_missing_and_foreign_files(tmp_path: Path) -> None:
    """NOT_FOUND and BAD_REQUEST."""
    with pytest.raises(HorologError) as caught:
        inspect(tmp_path / "none")
    assert caught.value.code is ErrorCode.NOT_FOUND
    (tmp_path / "holiday.jpg").write_bytes(b"sea")
    with pytest.raises(HorologError) as caught:
        inspect(tmp_path / "holiday.jpg")
    assert caught.value.code is ErrorCode.BAD_REQUEST


NAMES = (
    segment_name(0), checkpoint_name(5), state_name(1), key_run_name(0, 2), "delay.idx", "delay.log",
    queue_file_name(0), "meta", "0000000001.run", RUN_STATE, LAKE_STATE, chunk_name(0), NOTE, MANIFEST_NAME,
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(
    name=st.sampled_from(NAMES),
    noise=st.one_of(st.binary(max_size=300), st.tuples(st.integers(0, 400), st.binary(max_size=9))),
    show_records=st.booleans(),
)
def test_any_bytes_are_reported_and_never_crash(
    tmp_path_factory: pytest.TempPathFactory,
    name: str,
    noise: bytes | tuple[int, bytes],
    show_records: bool,
) -> None:
    """Noise, and good files with noise in them: a report or a HorologError."""
    directory = tmp_path_factory.mktemp("any")
    write_hour(directory)
    write_far_and_keys(directory)
    path = directory / name
    if isinstance(noise, bytes):
        path.write_bytes(noise)
    else:
        good = path.read_bytes() if path.exists() else segment(control_records.encode_epoch())
        at, harm = noise
        path.write_bytes(good[:at] + harm + good[at + len(harm) :])
    with suppress(HorologError):
        assert inspect(path, show_records=show_records).kind
