"""Decoder of visible message records into Arrow columns.

Fixed fields are read with numpy, and each variable part with one join.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from zlib_ng.zlib_ng import crc32

from horolog.errors import ErrorCode, HorologError
from horolog.limits import BODY_MAX
from horolog.log.record import DUE_AT, HEAD_BYTES
from horolog.log.stored import stored
from horolog.log.unaligned import get
from horolog.protocol.rocketmq import layout, properties
from horolog.protocol.rocketmq.bodies import inflate
from horolog.spark.property_columns import PropertyColumns, pairs_of, uniform_of

Rows = npt.NDArray[np.int64]
_HEAD = layout.HEAD.size
_OF_ONE = {"message_id": properties.UNIQ_KEY, "tag": properties.TAGS}
_SEVERAL = {"keys", "properties"}  # several words of one property, or several properties
_OF_PROPERTIES = {*_OF_ONE, *_SEVERAL}
_GZIP = zlib.MAX_WBITS + 16
PACKED_MAX = 64
"""Most compressed bodies in a batch; decompressed they take at most 256 MiB."""
_TIMESTAMP = pa.timestamp("us", tz="UTC")


class Records:
    """Message records in one buffer.

    raw       the buffer: a mapped segment, a run, or an answer of the broker
    at        where each record begins in the buffer
    sizes     of the records, in bytes
    verified  the records were compared with CRCs of their own; else each body is compared with the
              CRC in its layout

    Errors: DAMAGED for a record that is not a message, so that its size differs from the end of its
    layout.
    """

    def __init__(
        self, raw: npt.NDArray[np.uint8], at: Rows, sizes: Rows, *, verified: bool = False
    ) -> None:
        self._raw = raw
        self._verified = verified
        self._at = at
        self._layout = at + HEAD_BYTES
        if len(at) and int(at[-1] + sizes[-1]) > len(raw):
            raise _damaged("a record is cut short")
        if bool((sizes < HEAD_BYTES + _HEAD).any()):
            raise _damaged("a record is too short for a message")
        flags = stored(raw, self._layout, "sys_flag")
        self._flags = flags
        self._born_shift = np.where(flags & layout.BORN_HOST_V6, 12, 0)
        shift = self._born_shift + np.where(flags & layout.STORE_HOST_V6, 12, 0)
        self._shift = shift
        self._body_at = self._layout + _HEAD + shift
        ends = at + sizes
        if bool((self._body_at > ends).any()):
            raise _damaged("a record is too short for a message")
        length = stored(raw, self._layout + shift, "body_length").astype(np.int64)
        self._body_end = self._body_at + length
        if bool((self._body_end + 3 > ends).any()):
            raise _damaged("a body is longer than its record")
        topic_bytes = raw[self._body_end].astype(np.int64)
        self._properties_at = self._body_end + 1 + topic_bytes + 2
        if bool((self._properties_at > ends).any()):
            raise _damaged("a topic is longer than its record")
        length = get(raw, self._properties_at - 2, ">u2").astype(np.int64)
        self._properties_end = self._properties_at + length
        magic = stored(raw, self._layout, "magic")
        if bool((self._properties_end != ends).any()) or bool((magic != layout.MAGIC).any()):
            raise _damaged("a record is not a message")

    def __len__(self) -> int:
        """Return how many records there are."""
        return len(self._at)

    def chosen(self, rows: npt.NDArray[Any]) -> Records:
        """Return the records at the chosen rows (a mask or row indices)."""
        return Records(
            self._raw,
            self._at[rows],
            self._properties_end[rows] - self._at[rows],
            verified=self._verified,
        )

    def pieces(self) -> Iterator[Records]:
        """Yield the records in order, in pieces of at most `PACKED_MAX` compressed bodies.

        So the unpacked bodies of a piece fit into memory.
        """
        packed = np.cumsum((self._flags & layout.COMPRESSED) != 0)
        if not len(packed) or int(packed[-1]) <= PACKED_MAX:
            yield self
            return
        cuts = np.searchsorted(packed, np.arange(PACKED_MAX, int(packed[-1]), PACKED_MAX), "right")
        for rows in np.split(np.arange(len(self)), cuts):
            yield self.chosen(rows)

    def as_bytes(self) -> list[bytes]:
        """Return each record as it is stored in the log."""
        view = self._raw.data
        starts, ends = self._at.tolist(), self._properties_end.tolist()
        return [bytes(view[a:b]) for a, b in zip(starts, ends, strict=True)]

    @property
    def queue_offsets(self) -> Rows:
        """Queue offset of each message."""
        return stored(self._raw, self._layout, "queue_offset").astype(np.int64)

    @property
    def queue_ids(self) -> npt.NDArray[np.int32]:
        """Queue of each message."""
        return stored(self._raw, self._layout, "queue_id").astype(np.int32)

    @property
    def positions(self) -> Rows:
        """Log position that each record states for itself."""
        return stored(self._raw, self._layout, "position").astype(np.int64)

    @property
    def store_ms(self) -> Rows:
        """When each message became visible, in epoch ms."""
        at = self._layout + self._born_shift
        return stored(self._raw, at, "store_ms").astype(np.int64)

    @property
    def due_ms(self) -> Rows:
        """When each message was due, in epoch ms; 0 for a message that was never scheduled."""
        return get(self._raw, self._at + DUE_AT, "<i8").astype(np.int64)

    def columns(self, wanted: Sequence[str]) -> dict[str, Any]:
        """Return the wanted columns as Arrow arrays; the reader adds `topic`, which it knows."""
        found: dict[str, Any] = {}
        if not _OF_PROPERTIES.isdisjoint(wanted):
            found.update(self._property_columns(wanted))
        for name in wanted:
            if name in found:
                continue
            match name:
                case "queue_id":
                    found[name] = pa.array(self.queue_ids)
                case "queue_offset":
                    found[name] = pa.array(self.queue_offsets)
                case "body":
                    found[name] = self._bodies()
                case "born_at":
                    born = stored(self._raw, self._layout, "born_ms").astype(np.int64)
                    found[name] = _timestamps(born)
                case "stored_at":
                    found[name] = _timestamps(self.store_ms)
                case "deliver_at":
                    due = self.due_ms
                    found[name] = _timestamps(due, due == 0)
                case "reconsume_times":
                    at = self._layout + self._shift
                    found[name] = pa.array(
                        stored(self._raw, at, "reconsume_times").astype(np.int32)
                    )
        return found

    def _property_columns(self, wanted: Sequence[str]) -> dict[str, Any]:
        content = self._joined(self._properties_at, self._properties_end)
        ends = np.cumsum(self._properties_end - self._properties_at)
        texts = {name: key for name, key in _OF_ONE.items() if name in wanted}
        alike = uniform_of(content, ends) if _SEVERAL.isdisjoint(wanted) else None
        if alike is not None:
            return {name: alike.text(key) for name, key in texts.items()}
        columns = PropertyColumns(pairs_of(content, ends))
        found = {name: columns.text(key) for name, key in texts.items()}
        if "keys" in wanted:
            found["keys"] = columns.words()
        if "properties" in wanted:
            found["properties"] = columns.user()
        return found

    def _joined(self, starts: Rows, ends: Rows) -> bytes:
        """Return the stretches [start, end) of the buffer, one after another."""
        lengths = ends - starts
        if len(starts) and int(lengths[0]) and bool((lengths == lengths[0]).all()):
            # All have one length, as ids and properties often do: no Python object for each.
            windows = np.lib.stride_tricks.sliding_window_view(self._raw, int(lengths[0]))
            return windows[starts].tobytes()
        view = self._raw.data
        return b"".join([view[a:b] for a, b in zip(starts.tolist(), ends.tolist(), strict=True)])

    def _bodies(self) -> Any:
        if not self._verified:
            self.verify_bodies()
        if (self._flags & layout.COMPRESSED).any():
            return pa.array(list(self._plain()), pa.binary())
        content = self._joined(self._body_at, self._body_end)
        offsets = np.zeros(len(self) + 1, np.int32)
        np.cumsum(self._body_end - self._body_at, out=offsets[1:])
        return pa.Array.from_buffers(
            pa.binary(), len(self), [None, pa.py_buffer(offsets), pa.py_buffer(content)]
        )

    def verify_bodies(self) -> None:
        """Compare each body with the CRC in its layout; raise DAMAGED for a changed body.

        A body that a file or a connection has changed is never passed on.
        """
        stated = stored(self._raw, self._layout, "body_crc")
        view = self._raw.data
        starts, ends = self._body_at.tolist(), self._body_end.tolist()
        found = np.array([crc32(view[a:b]) for a, b in zip(starts, ends, strict=True)], np.uint32)
        wrong = (found & 0x7FFFFFFF) != stated
        if wrong.any():
            raise _damaged(
                f"the body of queue offset {int(self.queue_offsets[wrong][0])} does not match its "
                "CRC"
            )
        self._verified = True

    def _plain(self) -> Iterator[bytes]:
        """Yield each body, decompressed."""
        view = self._raw.data
        packed = ((self._flags & layout.COMPRESSED) != 0).tolist()
        starts, ends = self._body_at.tolist(), self._body_end.tolist()
        for start, end, is_packed in zip(starts, ends, packed, strict=True):
            body = bytes(view[start:end])
            yield inflated(body) if is_packed else body

    def body_pieces(self, bytes_max: int) -> Iterator[Any]:
        """Yield the column `body` in order, as arrays of at most `bytes_max` bytes, or of one body.

        A body that its producer compressed may be a thousand times as large as its record.
        """
        if not (self._flags & layout.COMPRESSED).any():
            yield self._bodies()
            return
        if not self._verified:
            self.verify_bodies()
        piece: list[bytes] = []
        size = 0
        for body in self._plain():
            if piece and size + len(body) > bytes_max:
                yield pa.array(piece, pa.binary())
                piece, size = [], 0
            piece.append(body)
            size += len(body)
        yield pa.array(piece, pa.binary())

    def topics(self) -> Any:
        """Return the topic that each message names itself."""
        content = self._joined(self._body_end + 1, self._properties_at - 2)
        offsets = np.zeros(len(self) + 1, np.int32)
        np.cumsum(self._properties_at - 2 - (self._body_end + 1), out=offsets[1:])
        return pa.StringArray.from_buffers(len(self), pa.py_buffer(offsets), pa.py_buffer(content))


def inflated(body: bytes) -> bytes:
    """Decompress a body that its producer compressed.

    A body is returned unchanged if it is neither gzip nor zlib, or if its content is larger than a
    body may be.
    """
    wbits = _GZIP if body.startswith(b"\x1f\x8b") else zlib.MAX_WBITS
    plain, rest = b"", body
    while rest:
        found = inflate(rest, BODY_MAX - len(plain), wbits=wbits)
        if found is None:
            return body
        plain += found[0]
        # A gzip file may have several members, and zeros after the last member.
        rest = found[1].lstrip(b"\0") if wbits == _GZIP else b""
    return plain


def _timestamps(epoch_ms: Rows, missing: npt.NDArray[np.bool_] | None = None) -> Any:
    return pa.array(epoch_ms * 1000, pa.int64(), mask=missing).view(_TIMESTAMP)


def _damaged(what: str) -> HorologError:
    return HorologError(ErrorCode.DAMAGED, f"messages: {what}")
