"""Export: what frozen runs have, as Parquet files and a Delta table, row by row."""

from __future__ import annotations

import base64
import errno
import os
import re
import stat
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from horolog.delay.entry import ENTRY, entry_sums, record_crcs
from horolog.delay.row_sum import MASK, row_sum
from horolog.delay.run.merge import flush
from horolog.errors import ErrorCode, HorologError
from horolog.lake.frozen_run import FrozenRun
from horolog.lake.jobs.rows import Unit, plan, write_unit
from horolog.lake.table import delta, given_up, reading
from horolog.lake.table.schema import LakeFile, day_of, partition_of
from horolog.limits import DAY_MS, HOUR_MS
from horolog.log.record import HEAD, HEAD_BYTES, Kind
from horolog.pipeline.offload import divide_units
from horolog.pipeline.promote import entries_of
from horolog.protocol.commands import MessageType
from horolog.protocol.rocketmq import layout
from horolog.protocol.rocketmq.message import encode, key_hash
from horolog.spark.due_lake import LakeTable
from horolog.spark.due_pieces import messages_of
from horolog.spark.due_runs import Piece
from horolog.spark.message_columns import DUE_SCHEMA, arrow_schema
from horolog.storage.disk import Disk

LOG_ID = 0xFEED
START_MS = 20_000 * DAY_MS  # a whole day
TOPICS = ["alpha", "beta"]


def record_of(i: int, due_ms: int, packed: bytes = b"") -> tuple[str, bytes]:
    """Topic and record; `packed` is a body that its producer compressed."""
    topic = TOPICS[i % 2]
    message = encode(
        topic=topic,
        body=packed or f"body {i}".encode(),
        sys_flag=layout.COMPRESSED if packed else 0,
        message_id=f"m{i}",
        type=MessageType.DELAY,
        due_ms=due_ms,
        tag="even" if i % 2 == 0 else None,
        keys=[f"k{i}", "all"],
    )
    record = bytearray(message.record)
    head = np.frombuffer(record, HEAD, 1)
    head["size"], head["kind"], head["due_ms"] = len(record), Kind.SCHEDULED, due_ms
    head["topic"], head["key"] = i % 2, key_hash(topic, f"m{i}")
    assert len(record) > HEAD_BYTES
    return topic, bytes(record)


def write_run(root, name: str, dues: list[int], first: int = 0) -> None:
    records = [record_of(first + i, due)[1] for i, due in enumerate(dues)]
    write_records(root, name, dues, records, first)


def write_records(root, name: str, dues: list[int], records: list[bytes], first: int = 0) -> None:
    heads = np.frombuffer(b"".join(r[:HEAD_BYTES] for r in records), HEAD)
    entries = np.zeros(len(dues), ENTRY)
    entries["size"] = [len(r) for r in records]
    entries["position"] = np.cumsum(entries["size"]) - entries["size"]
    entries["due_ms"], entries["key"], entries["topic"] = dues, heads["key"], heads["topic"]
    entries["local"] = np.arange(len(dues))
    entries["origin"] = 1_000 + 10 * (first + np.arange(len(dues)))
    entries["crc"] = record_crcs(records, entries["origin"])
    entries["sum"] = entry_sums(entries)
    content = b"".join(records)

    def read(wanted):
        pairs = zip(wanted["position"].tolist(), wanted["size"].tolist(), strict=True)
        return [memoryview(content)[at : at + size] for at, size in pairs]

    disk = Disk(root)
    disk.make_dir("runs")
    flush(disk, "runs", name, log_id=LOG_ID, entries=entries, read=read)


def frozen(root, name: str, rows: int, gone: list[int] = (), first: int = 0) -> FrozenRun:
    bits = np.zeros(rows - first, np.uint8)
    bits[[row - first for row in gone]] = 1
    packed = zlib.compress(np.packbits(bits, bitorder="little").tobytes())
    return FrozenRun(
        {
            "path": str(root / "runs" / f"{name}.run"),
            "log_id": f"{LOG_ID:016x}",
            "first": first,
            "stop": rows,
            "gone": base64.b64encode(packed).decode() if len(gone) else "",
        }
    )


@pytest.fixture
def runs(tmp_path):
    """Two runs over three days; what is due is mixed, and some ties."""
    one = [START_MS + (i * 7_919_000) % (3 * DAY_MS) for i in range(300)]
    two = [START_MS + (i * 104_729_00) % (3 * DAY_MS) for i in range(200)] + [START_MS] * 5
    write_run(tmp_path, "0000000001", one)
    write_run(tmp_path, "0000000002", two, 300)
    return [frozen(tmp_path, "0000000001", 300, [3, 4, 299]), frozen(tmp_path, "0000000002", 205)]


def export(runs, uri, from_ms: int, number: int = 7) -> list[LakeFile]:
    written = [
        write_unit(runs, unit, str(uri), partition_of(number, unit.day))
        for unit in plan(runs, from_ms, unit_rows=60)
    ]
    return [file for file in written if file is not None]


def test_bodies_that_grow_when_they_are_unpacked_make_further_row_groups(
    tmp_path, monkeypatch
) -> None:
    """Each of some kilobytes can be 4 MiB: 50,000 of them are no column of Arrow's, and no task's memory."""
    monkeypatch.setattr("horolog.lake.jobs.rows.BODIES_BYTES", 300_000)
    plain = {i: bytes([i]) * (100_000 if i % 2 else 10) for i in range(20)}
    plain[7] = b"x" * 1_000_000
    dues = [START_MS + i for i in plain]
    packed = [
        record_of(i, due, zlib.compress(plain[i])) for i, due in zip(plain, dues, strict=True)
    ]
    write_records(tmp_path, "0000000001", dues, [record for _, record in packed])
    (file,) = export([frozen(tmp_path, "0000000001", len(dues))], tmp_path / "lake", START_MS)
    with pq.ParquetFile(tmp_path / "lake" / file.path) as made:
        groups = [made.read_row_group(i)["body"].to_pylist() for i in range(made.num_row_groups)]
        assert made.read()["record"].to_pylist() == [record for _, record in packed]
        assert made.read()["due_ms"].to_pylist() == dues
    assert [body for group in groups for body in group] == list(plain.values())
    assert len(groups) > 3
    assert all(len(group) == 1 or sum(map(len, group)) <= 300_000 for group in groups)
    assert file.rows == len(dues)


def test_all_rows_but_the_recalled_ones_in_order(runs, tmp_path) -> None:
    uri = tmp_path / "lake"
    files = export(runs, uri, START_MS)
    assert sum(file.rows for file in files) == 505 - 3
    got = []
    for file in sorted(files, key=lambda file: file.first_ms):
        table = pq.ParquetFile(uri / file.path).read()
        assert {day_of(due) for due in table["due_ms"].to_pylist()} == {file.day}
        got += zip(table["due_ms"].to_pylist(), table["origin_position"].to_pylist(), strict=True)
        for row in table.to_pylist():
            number = int(row["message_id"][1:])
            assert (row["topic"], row["record"]) == record_of(number, row["due_ms"])
            assert row["body"] == f"body {number}".encode()
            assert row["keys"] == [f"k{number}", "all"]
            assert row["tag"] == ("even" if number % 2 == 0 else None)
            assert row["key_hash"] % (1 << 64) == key_hash(row["topic"], row["message_id"])
            assert row["deliver_at"].timestamp() * 1000 == row["due_ms"]
            assert row["origin_position"] == 1_000 + 10 * number
    assert got == sorted(got)
    assert len(set(got)) == 502


def test_tasks_share_the_rows() -> None:
    units = [Unit("d", i, i + 1, rows) for i, rows in enumerate([5, 0, 90, 1, 1, 1, 40, 2])]
    for count in (1, 2, 3, 8, 100):
        shares = divide_units(units, count)
        assert len(shares) <= count
        assert all(shares)
        assert [unit for share in shares for unit in share] == units
        wanted = -(-140 // count)
        assert all(sum(unit.rows for unit in share[:-1]) < wanted for share in shares)
    assert len(divide_units(units, 8)) == 3


def test_the_checksum_is_that_of_the_rows_and_only_later_hours_are_taken(runs, tmp_path) -> None:
    from_ms = START_MS + DAY_MS + 5 * HOUR_MS
    files = export(runs, tmp_path / "lake", from_ms)
    assert min(file.first_ms for file in files) >= from_ms
    expected = 0
    count = 0
    for each in runs:
        rows = each.rows_between(from_ms, 1 << 60)
        entries = each.entries(rows)
        expected += row_sum(entries["key"], entries["due_ms"], *each.origins(entries))
        count += len(rows)
    assert (sum(f.rows for f in files), sum(f.checksum for f in files) & MASK) == (
        count,
        expected & MASK,
    )


def test_a_delta_commit_is_made_once_and_names_only_its_files(runs, tmp_path) -> None:
    uri = str(tmp_path / "lake")
    lost = export(runs, uri, START_MS)  # an attempt that never committed
    files = export(runs, uri, START_MS)
    assert not delta.is_committed(uri, "feed", 7)
    assert delta.commit_files(uri, "feed", 7, files)
    assert delta.is_committed(uri, "feed", 7)
    assert not delta.commit_files(uri, "feed", 7, lost)
    with pytest.raises(HorologError, match="is the table of"):
        delta.commit_files(uri, "beef", 7, lost)
    assert len(delta.files_of(uri, 7)) == len(files)
    assert reading.sum_of(uri, 7) == (502, sum(file.checksum for file in files) & MASK)
    hour = (START_MS + DAY_MS) // HOUR_MS
    rows = [row for t in reading.rows_of_hour(uri, 7, hour) for row in t.to_pylist()]
    assert rows
    assert all(row["due_ms"] // HOUR_MS == hour for row in rows)
    assert not any("body" in row for row in rows), "which may be large, and is in the record"
    day = day_of(START_MS + DAY_MS)
    assert delta.forget(uri, day, 7) == sum(file.day < day for file in files)
    assert len(delta.files_of(uri, 7)) == sum(file.day >= day for file in files)
    assert delta.is_committed(uri, "feed", 7)


def test_a_table_is_written_where_no_directory_can_be_synced(
    runs, tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on object stores that are mounted; a failed sync of a file still ends the job."""
    fsync, may_fail = os.fsync, [stat.S_ISDIR]

    def refuse(fd: int) -> None:
        if any(fails(os.fstat(fd).st_mode) for fails in may_fail):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", refuse)
    uri = str(tmp_path / "lake")
    files = export(runs, uri, START_MS)
    assert delta.commit_files(uri, "feed", 7, files)
    assert reading.sum_of(uri, 7).rows == 502
    given_up.note(uri, "feed", 8)
    assert given_up.noted(uri, "feed") == [8]
    may_fail.append(stat.S_ISREG)
    with pytest.raises(OSError, match="Invalid argument"):
        export(runs, uri, START_MS)


def test_the_guides_vacuum_removes_what_nothing_names(runs, tmp_path) -> None:
    """Without `full`, Delta's default, files of attempts that were killed stay for ever."""
    guide = Path(__file__).parents[2] / "docs" / "guides" / "lake.md"
    (block,) = re.findall(r"```python\n(from deltalake.*?)```", guide.read_text(), re.DOTALL)
    uri = str(tmp_path / "lake")
    lost = [Path(uri, file.path) for file in export(runs, uri, START_MS)]
    files = export(runs, uri, START_MS)
    delta.commit_files(uri, "feed", 7, files)
    given_up.note(uri, "feed", 8)
    for path in Path(uri).rglob("*"):
        os.utime(path, (0, 0))
    exec(block.replace("/lake/pending", uri), {})
    assert not any(path.exists() for path in lost)
    assert reading.sum_of(uri, 7).rows == 502
    assert given_up.noted(uri, "feed") == [8]


def flipped(path: Path, step: int) -> Iterator[int]:
    """Flip one bit of a file at a time, in every `step`-th byte; yield where."""
    content = path.read_bytes()
    for at in range(4, len(content), step):
        changed = bytearray(content)
        changed[at] ^= 1 << at % 8
        path.write_bytes(changed)
        yield at


def test_a_flipped_byte_of_a_file_is_reported_and_never_promoted(runs, tmp_path) -> None:
    """The broker makes fresh sums of what comes back, so nobody would notice later."""
    uri = str(tmp_path / "lake")
    delta.commit_files(uri, "feed", 7, export(runs, uri, START_MS))
    hour = START_MS // HOUR_MS

    def rows() -> list[tuple[object, ...]]:
        """As a promotion takes them."""
        found = [entries_of(table) for table in reading.rows_of_hour(uri, 7, hour)]
        return [(e.tobytes(), bytes(r)) for each in found for e, r in zip(*each, strict=True)]

    whole = rows()
    path = Path(delta.files_of(uri, 7)[0])
    refusals = 0
    for at in flipped(path, 131):
        try:
            found = rows()
            assert found == whole or len(found) < len(whole), at  # which a promotion refuses
        except HorologError as error:
            assert error.code is ErrorCode.DAMAGED
            assert f"lake: {path} cannot be read (" in error.message
            assert "\n" not in error.message
            refusals += 1
    assert refusals > 10


def test_a_flipped_byte_of_a_file_is_reported_and_never_delivered(runs, tmp_path) -> None:
    """Neither at another time nor as another message, when Spark delivers from the table."""
    uri = str(tmp_path / "lake")
    delta.commit_files(uri, "feed", 7, export(runs, uri, START_MS))
    ((name, span), *_) = LakeTable(uri).files().items()
    schema = arrow_schema(DUE_SCHEMA)

    def rows() -> list[object]:
        lake, piece = LakeTable(uri), Piece(name, span.rows, 0, span.rows)
        due = [lake.due_of(name, row) for row in range(span.rows)]
        return [due, *(b.to_pylist() for b in messages_of(uri, piece, "", schema, lossy=False))]

    whole = rows()
    path = Path(uri, name)
    refusals = 0
    for at in flipped(path, 37):
        try:
            assert rows() == whole, at
        except HorologError as error:
            assert error.code is ErrorCode.DAMAGED
            assert path.name in error.message
            refusals += 1
    assert refusals > 10


def test_adopted_runs_have_the_origins_of_their_adoption(tmp_path) -> None:
    write_run(tmp_path, "0000000003", [START_MS + i for i in range(10)])
    fields = {
        "path": str(tmp_path / "runs" / "0000000003.run"),
        "log_id": f"{LOG_ID:016x}",
        "first": 2,
        "stop": 10,
        "position": 77,
        "first_row": 100,
    }
    each = FrozenRun(fields)
    positions, rows = each.origins(each.entries(each.rows_between(0, 1 << 60)))
    assert positions.tolist() == [77] * 8
    assert rows.tolist() == [100] * 8  # rows of these entries are 0; in adopted runs 0, 1, 2 …


def test_damage_and_missing_files_stop_the_export(runs, tmp_path) -> None:
    path = tmp_path / "runs" / "0000000001.run"
    content = bytearray(path.read_bytes())
    content[64 + 64 * 300 + 50] ^= 1  # in the records
    path.write_bytes(content)
    with pytest.raises(HorologError) as found:
        export(runs, tmp_path / "lake", START_MS)
    assert found.value.code is ErrorCode.DAMAGED
    assert "does not verify" in found.value.message
    path.unlink()
    with pytest.raises(HorologError) as found:
        plan([frozen(tmp_path, "0000000001", 300)], START_MS)
    assert "begin again" in found.value.message
