"""The state file of a run: its rows that are gone early.  Rebuilt (truth, once log is dropped).

Written at a checkpoint as a new version, `runs/<name>.state.<version>`, and never changed.  A row
that was handed over needs no bit: all rows below the cursor, which the checkpoint holds, were
handed over, except for the rows in the map of state 0, which were passed over and wait.
Little-endian.

======  ======  ==================  ================================================================
offset  bytes   field               meaning
======  ======  ==================  ================================================================
0       4       magic               b"HLRS"
4       2       version             1
6       2       incompatible flags  unknown bit: refuse
8       8       rows                of the run
16      4       counts              rows of the table
20      4       maps                bit s is set: there is a bit map of the rows with `EntryState` s
24      4       body CRC            CRC-32 of all that follows the header
28      4       header CRC          CRC-32 of bytes 0–27
32      16 n    table               {hour u32, topic u32, gone u64}: rows that are handed over,
                                    recalled, moved, expired or quarantined
…       …       bit maps            by ascending s, (rows + 7) // 8 bytes each; row r is bit r % 8
                                    of byte r // 8
======  ======  ==================  ================================================================
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from zlib_ng.zlib_ng import crc32

from horolog.delay.state import EntryState
from horolog.errors import ErrorCode, HorologError

MAGIC = b"HLRS"
VERSION = 1
_HEAD = struct.Struct("<4sHHQIII")
_CRC = struct.Struct("<I")
HEADER_BYTES = _HEAD.size + _CRC.size
assert HEADER_BYTES == 32
GONE = np.dtype([("hour", "<u4"), ("topic", "<u4"), ("gone", "<u8")])
assert GONE.itemsize == 16
MAPPED_STATES = (
    EntryState.WAITING,
    EntryState.RECALLED,
    EntryState.QUARANTINED,
    EntryState.MOVED,
    EntryState.EXPIRED,
)


@dataclass
class RunState:
    """The content of a state file."""

    rows: int
    gone_by: dict[tuple[int, int], int]  # (hour, topic) → rows
    maps: dict[EntryState, npt.NDArray[np.uint8]]


def encode_run_state(state: RunState) -> bytes:
    """Encode the complete file."""
    table = np.array([(h, t, n) for (h, t), n in sorted(state.gone_by.items())], GONE)
    kinds = sorted(state.maps)
    body = b"".join([table.tobytes(), *(state.maps[kind].tobytes() for kind in kinds)])
    bits = sum(1 << kind for kind in kinds)
    head = _HEAD.pack(MAGIC, VERSION, 0, state.rows, len(table), bits, crc32(body))
    return head + _CRC.pack(crc32(head)) + body


def decode_run_state(content: bytes) -> RunState | None:
    """Decode a state file; None: not intact; VERSION_UNSUPPORTED: a newer horolog wrote it."""
    if len(content) < HEADER_BYTES or content[:4] != MAGIC:
        return None
    if crc32(content[: _HEAD.size]) != _CRC.unpack_from(content, _HEAD.size)[0]:
        return None
    _, version, flags, rows, counts, bits, crc = _HEAD.unpack_from(content)
    kinds = [kind for kind in MAPPED_STATES if bits & 1 << kind]
    if version > VERSION or flags or bits != sum(1 << kind for kind in kinds):
        raise HorologError(
            ErrorCode.VERSION_UNSUPPORTED,
            f"state of a run has version {version}, flags {flags:#x} and maps {bits:#x}; "
            f"this horolog reads version {VERSION}",
            field="state",
        )
    body = memoryview(content)[HEADER_BYTES:]
    width = (rows + 7) // 8
    if len(body) != counts * GONE.itemsize + width * len(kinds) or crc32(body) != crc:
        return None
    table = np.frombuffer(body, GONE, counts)
    maps = {
        kind: np.frombuffer(body, np.uint8, width, counts * GONE.itemsize + width * i).copy()
        for i, kind in enumerate(sorted(kinds))
    }
    gone_by = {(h, t): n for h, t, n in table.tolist()}
    return RunState(rows, gone_by, maps)
