"""docs/reference/formats.md says what the code's structs say: sizes, types, magics, versions."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from horolog.backup import manifest
from horolog.broker.life import quarantine
from horolog.delay import entry, key_run, state
from horolog.delay.far import buffer as far_buffer
from horolog.delay.far import run_state as far_state
from horolog.delay.run import format as run_format
from horolog.lake.core import state_file as lake
from horolog.log import (
    checkpoint,
    control_records,
    frame,
    half_records,
    key_index,
    key_rows,
    queue_unit,
    record,
)
from horolog.protocol.rocketmq import layout
from horolog.protocol.rocketmq.message import USER_KEY_SEED

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "formats.md").read_text(encoding="utf-8")
CODES = {"u8": "B", "u16": "H", "u32": "I", "i32": "i", "u64": "Q", "i64": "q", "4 bytes": "4s"}
CODES |= {"20 bytes": "20s", "24 bytes": "24s"}
SIZES = {"u8": 1, "u16": 2, "u32": 4, "i32": 4, "u64": 8, "i64": 8, "4 bytes": 4}
SIZES |= {"20 bytes": 20, "24 bytes": 24}
STRUCTS = {
    "Frame header": frame._HEAD.format + frame._CRC.format[1:],
    "Record envelope": record.ENVELOPE.format,
    "Stored layout": layout.HEAD.format,
    "Checkpoint": checkpoint._HEAD.format + checkpoint._CRC.format[1:],
    "Hour state": state._HEAD.format + state._CRC.format[1:],
    "Key run": key_run._HEAD.format + key_run._CRC.format[1:],
    "Run file": run_format._HEAD.format + run_format._CRC.format[1:],
    "Lake state": lake._HEAD.format + lake._CRC.format[1:],
    "Run footer": run_format._FOOT.format + run_format._CRC.format[1:],
    "Run state": far_state._HEAD.format + far_state._CRC.format[1:],
    "Key index chunk": key_rows._HEAD.format + key_rows.CRC.format[1:],
}
DTYPES = {
    "Message records": record.HEAD,
    "Consume queue unit": queue_unit.UNIT,
    "Delay index entry": entry.ENTRY,
    "Key index row": key_rows.ROW,
}
MODULES = {
    "Frame header": frame,
    "Checkpoint": checkpoint,
    "Hour state": state,
    "Key run": key_run,
    "Run file": run_format,
    "Lake state": lake,
    "Run state": far_state,
    "Key index chunk": key_rows,
}
FIELDS = {
    record.Kind.HAND_OVER: (control_records._HAND_OVER, control_records.ORIGIN),
    record.Kind.RECALL: (control_records._RECALL, control_records.ORIGIN),
    record.Kind.RECALL_MANY: (control_records._RECALL_MANY, control_records.RECALLED),
    record.Kind.GRANT: (control_records._GRANT, control_records.GRANTED),
    record.Kind.ACK: (control_records._ACK, np.dtype([("offset", "<u8")])),
    record.Kind.OFFSETS: (control_records._OFFSETS, control_records.COMMITTED),
    record.Kind.HALF_CHECK: (half_records.HALF_ROWS, half_records.HALF_CHECKED),
    record.Kind.HALF_END: (half_records.HALF_ROWS, half_records.HALF_ENDED),
}


def section(title: str) -> str:
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def rows(title: str, width: int) -> list[list[str]]:
    """Cells of the table under a title that has so many columns, without its head."""
    lines = [line for line in section(title).splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    return [row for row in cells if len(row) == width and not row[0].startswith("---")][1:]


def types_in(text: str) -> list[str]:
    return re.findall(r"\b[ui]\d+\b", text)


def types_of(dtype: np.dtype[Any]) -> list[str]:
    assert dtype.names is not None
    assert all(dtype[name].byteorder in "<|=" for name in dtype.names)
    return [f"{dtype[name].kind}{8 * dtype[name].itemsize}" for name in dtype.names]


@pytest.mark.parametrize("title", [*STRUCTS, *DTYPES])
def test_offsets_and_sizes_of_a_table_add_up(title: str) -> None:
    table = [
        (int(at), int(size), SIZES[kind]) for at, size, _field, kind, _meaning in rows(title, 5)
    ]
    assert all(size == of_type for _, size, of_type in table)
    assert table[0][0] == 0
    assert all(at + size == after for (at, size, _), (after, _, _) in pairwise(table))
    described = re.search(r"(\d+) bytes", section(title))
    assert described is not None
    assert int(described[1]) == table[-1][0] + table[-1][1]


@pytest.mark.parametrize("title", STRUCTS)
def test_a_table_is_its_struct(title: str) -> None:
    order = ">" if title == "Stored layout" else "<"
    made = order + "".join(CODES[row[3]] for row in rows(title, 5))
    assert made == STRUCTS[title]


@pytest.mark.parametrize("title", DTYPES)
def test_a_table_is_its_dtype(title: str) -> None:
    table = [(int(row[0]), row[3]) for row in rows(title, 5)]
    dtype = DTYPES[title]
    assert dtype.fields is not None
    offsets = [dtype.fields[name][1] for name in dtype.names or ()]
    assert table == list(zip(offsets, types_of(dtype), strict=True))


@pytest.mark.parametrize("title", MODULES)
def test_magic_and_version(title: str) -> None:
    module: Any = MODULES[title]
    assert f"Magic `{module.MAGIC.decode()}`, version {module.VERSION}," in section(title)
    assert f"0x{layout.MAGIC:X}" in section("Stored layout")


def test_fields_of_a_backup_manifest() -> None:
    files = [manifest.StoredFile("meta", 1, 2, 3)]
    damaged = [manifest.Damaged("meta", manifest.SHORT, 1, "")]
    made = manifest.Manifest(1, 1, "", 0, 0, 0, 0, files, damaged)
    fields = orjson.loads(manifest.encode_manifest(made))
    assert [row[0].strip("`") for row in rows("Backup manifest", 3)] == list(fields)
    found = [row[0].strip("`") for row in rows("Backup manifest", 2)]
    assert found[-10:-6] == list(fields["files"][0])
    assert found[-5:] == list(fields["damaged"][0])
    assert f"format {manifest.FORMAT}:" in section("Backup manifest")
    assert f"`{manifest.number_name(3)}/" in section("Backup manifest")


def test_record_kinds() -> None:
    table = rows("Record kinds", 5)
    assert [(int(row[0]), row[1].strip("`")) for row in table] == [(k, k.name) for k in record.Kind]
    for number, _name, fields, row, _meaning in table:
        if int(number) in FIELDS:
            packed, dtype = FIELDS[record.Kind(int(number))]
            assert "<" + "".join(CODES[kind] for kind in types_in(fields)) == packed.format
            assert types_in(row) == types_of(dtype)
        else:
            assert not fields


def test_columns_of_a_checkpoint() -> None:
    columns = checkpoint.COLUMNS | checkpoint.OPTIONAL_COLUMNS
    table = [(name.strip("`"), types_in(row)) for name, row in rows("Checkpoint", 2)]
    assert table == [(name, types_of(dtype)) for name, dtype in columns.items()]


def test_parts_of_an_hour_state() -> None:
    found = [types_in(row) for _, row in rows("Hour state", 2)]
    assert found == [types_of(state.HEAD), types_of(state.TOPIC_ROW), ["u8"]]
    for name in ("WAITING", "HANDED_OVER", "RECALLED", "QUARANTINED", "MOVED"):
        word = f"{state.EntryState[name].value} {name.lower().replace('_', ' ')}"
        assert word in section("Hour state").replace("\n", " ")


def test_parts_of_a_run() -> None:
    found = {part: types_in(row) for part, row in rows("Run file", 2) if types_in(row)}
    assert found == {
        "key groups": ["u64", "u16"],
        "fences": ["i64"],
        "key directory": types_of(run_format.KEY_GROUP),
        "directory": types_of(run_format.TOPIC_HOUR),
    }
    numbers = section("Run file").replace(" ", "")
    assert f"every{run_format.FENCE_ROWS}throw" in numbers
    assert f"each{run_format.GROUP_ROWS}rows" in numbers
    assert f"`{run_format.END_MAGIC.decode()}`" in section("Run footer")


def test_parts_of_a_run_state() -> None:
    found = [types_in(row) for _, row in rows("Run state", 2)]
    assert found == [types_of(far_state.GONE), ["u8"]]
    described = section("Run state").replace("\n", " ")
    for kind in far_state.MAPPED_STATES:
        assert f"{kind.value} {kind.name.lower()}" in described


def test_parts_of_a_key_index_chunk() -> None:
    head = key_rows.ChunkHeader(1, 0, key_rows.NOTHING_BEFORE, 2_048)
    assert [types_in(row) for _, row in rows("Key index chunk", 2)] == [
        [],
        ["u32"],
        ["u32"],
        ["u32"],
    ]
    size = key_rows.HEADER_BYTES + (key_rows.ROW_BYTES + 4) * head.capacity + 2 * 4 + 4
    assert size == key_rows.sealed_bytes(head.capacity)
    described = section("Key index chunk")
    assert f"at most {key_index.CHUNK_ROWS:,}".replace(",", " ") in described
    assert f"one for {key_rows.BLOCK:,} heads".replace(",", " ") in described
    assert f"(seed {USER_KEY_SEED})" in section("Key index row")


def test_fields_of_a_quarantine_note() -> None:
    found = [row[0].strip("`") for row in rows("Quarantine note", 3)]
    assert found == [name for name in quarantine.Note._fields if name != "place"]
    assert f"`{quarantine.NOTE}`" in section("Quarantine note")


def test_names_in_the_directory_tree() -> None:
    tree = PAGE.split("```")[1]
    for name in (
        f"{far_buffer.buffer_name(1).partition('.')[0]}.<number>/",
        "<name>.state.<version>",
        f"keys/<first row>.{key_rows.chunk_name(0).partition('.')[2]}",
        f"{quarantine.ASIDE}<name>/",
    ):
        assert name in tree
