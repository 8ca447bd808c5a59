"""The records of one frame: envelopes, what they say, and whether messages agree with their routing."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import orjson
from zlib_ng.zlib_ng import crc32

from horolog.delay.far.adopted import Adoption
from horolog.errors import HorologError
from horolog.lake.core.steps import step_of
from horolog.limits import HOUR_MS
from horolog.log.frame import HEADER_BYTES, FrameHeader
from horolog.log.record import (
    ENVELOPE,
    ENVELOPE_BYTES,
    HEAD_BYTES,
    IS_MESSAGE,
    Kind,
    decode_ack,
    decode_grant,
    decode_hand_over,
    decode_offload,
    decode_offsets,
    decode_recall,
    decode_recall_many,
    heads_of,
    kinds_of,
    offsets_of,
)
from horolog.log.unaligned import get
from horolog.protocol.rocketmq import layout, properties
from horolog.protocol.rocketmq.message import key_hash
from horolog.protocol.rocketmq.tags import tags_code

_KINDS = np.array(sorted(Kind), np.uint8)
_UNREADABLE = (struct.error, ValueError, KeyError, TypeError, orjson.JSONDecodeError)


class Settled(NamedTuple):
    """Scheduled messages that a control record settles: columns of equal length."""

    hours: npt.NDArray[np.int64]
    origins: npt.NDArray[Any]  # rows with position and row


class Records(NamedTuple):
    """The records of a frame, as columns."""

    raw: npt.NDArray[np.uint8]  # the body
    base: int  # log position of the body
    at: npt.NDArray[np.int64]  # of the message records, in the body
    heads: npt.NDArray[Any]  # log.record.HEAD of the message records
    settled: list[Settled]
    adoptions: list[Adoption]
    offloaded: dict[str, int]  # adopted file → rows that went to the lake


class RecordCheck:
    """Checks the records of one frame after the other.

    names   topic number → name; topics that the log makes are added
    told    called with a log position and what is wrong there
    """

    def __init__(self, names: dict[int, str], told: Callable[[int, str], None]) -> None:
        self._names = names
        self._told = told

    def read(self, header: FrameHeader, body: bytes) -> Records | None:
        """The records; None if the frame cannot be taken apart, which is told."""
        base = header.base + HEADER_BYTES
        try:
            offsets = offsets_of(body, header.count)
        except HorologError as error:
            self._told(header.base, error.message)
            return None
        kinds = kinds_of(body, offsets)
        raw = np.frombuffer(body, np.uint8)
        self._check_envelopes(raw, base, offsets, kinds)
        is_message = IS_MESSAGE[kinds]
        settled: list[Settled] = []
        for row in np.flatnonzero(~is_message).tolist():
            self._control(header, body, offsets, row, settled)
        at = offsets[is_message]
        heads = heads_of(body, at) if len(at) else np.empty(0, np.uint8)
        if len(at):
            self._check_messages(body, raw, base, at, heads)
        adoptions = self._adoptions(body, base, offsets, kinds)
        offloaded = self._offloaded(body, base, offsets, kinds)
        return Records(raw, base, at, heads, settled, adoptions, offloaded)

    def _offloaded(
        self, body: bytes, base: int, offsets: npt.NDArray[np.int64], kinds: npt.NDArray[np.uint8]
    ) -> dict[str, int]:
        found: dict[str, int] = {}
        for at in offsets[kinds == Kind.OFFLOAD].tolist():
            size = ENVELOPE.unpack_from(body, at)[0]
            try:
                fields, table = decode_offload(body[at + ENVELOPE_BYTES : at + size])
                step_of(fields, table)
                found |= fields.get("adopted", {})
            except _UNREADABLE as error:
                self._told(base + at, f"record OFFLOAD: cannot be read: {error}")
        return found

    def _adoptions(
        self, body: bytes, base: int, offsets: npt.NDArray[np.int64], kinds: npt.NDArray[np.uint8]
    ) -> list[Adoption]:
        found = []
        for at in offsets[kinds == Kind.ADOPT].tolist():
            size = ENVELOPE.unpack_from(body, at)[0]
            try:
                fields = orjson.loads(body[at + ENVELOPE_BYTES : at + size])
                found.append(Adoption.of(base + at, fields))
            except _UNREADABLE as error:
                self._told(base + at, f"record ADOPT: cannot be read: {error}")
        return found

    def _tell(self, base: int, at: npt.NDArray[np.int64], what: str) -> None:
        for offset in at.tolist():
            self._told(base + offset, what)

    def _check_envelopes(
        self,
        raw: npt.NDArray[np.uint8],
        base: int,
        at: npt.NDArray[np.int64],
        kinds: npt.NDArray[np.uint8],
    ) -> None:
        self._tell(base, at[~np.isin(kinds, _KINDS)], "a record of an unknown kind")
        lanes = get(raw, at + 4, "<u4") >> 16  # behind kind and flags
        has_none = (lanes != 0) & ~np.isin(kinds, (Kind.SCHEDULED, Kind.HANDED))
        self._tell(base, at[has_none], "a record of a kind that has no lane has one")

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
        stored = at + HEAD_BYTES
        told = get(raw, stored, ">u4").astype(np.int64)
        self._tell(
            base, at[told != sizes - HEAD_BYTES], "the layout has another size than its record"
        )
        places = get(raw, stored + layout.POSITION_AT, ">i8")
        self._tell(base, at[places != at + base], "the layout names another log position")
        rows = zip(
            at.tolist(),
            sizes.tolist(),
            heads["topic"].tolist(),
            heads["key"].tolist(),
            heads["tags"].tolist(),
            strict=True,
        )
        for offset, size, topic, key, tags in rows:
            why = self._message_fault(body[offset + HEAD_BYTES : offset + size], topic, key, tags)
            if why:
                self._told(base + offset, why)

    def _message_fault(self, content: bytes, topic: int, key: int, tags: int) -> str:
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
        if tags_code(found.get(properties.TAGS, "")) != tags:
            return "the tags code is not that of its tag"
        return ""

    # --- control records --------------------------------------------------------------------------

    def _control(
        self,
        header: FrameHeader,
        body: bytes,
        offsets: npt.NDArray[np.int64],
        row: int,
        settled: list[Settled],
    ) -> None:
        at = int(offsets[row])
        size, kind, _, _, due_ms = ENVELOPE.unpack_from(body, at)
        payload = body[at + ENVELOPE_BYTES : at + size]
        try:
            why = self._read_control(kind, due_ms, payload, body, offsets[row + 1 :], settled)
        except _UNREADABLE as error:
            why = f"cannot be read: {error}"
        if why:
            name = Kind(kind).name if kind in _KINDS else str(kind)
            self._told(header.base + HEADER_BYTES + at, f"record {name}: {why}")

    def _read_control(
        self,
        kind: int,
        due_ms: int,
        payload: bytes,
        body: bytes,
        after: npt.NDArray[np.int64],
        settled: list[Settled],
    ) -> str:
        match kind:
            case Kind.HAND_OVER:
                hand_over = decode_hand_over(payload)
                n = len(hand_over.origins)
                settled.append(Settled(np.full(n, hand_over.hour), hand_over.origins))
                if not bool((kinds_of(body, after[:n]) == Kind.HANDED).all()) or len(after) < n:
                    return f"{n} messages must follow it"
            case Kind.RECALL:
                origins = decode_recall(payload).origins
                settled.append(Settled(np.full(len(origins), due_ms // HOUR_MS), origins))
            case Kind.RECALL_MANY:
                messages = decode_recall_many(payload).messages
                settled.append(Settled(messages["due_ms"] // HOUR_MS, messages))
            case Kind.TOPIC:
                fields = orjson.loads(payload)
                self._names[int(fields["number"])] = str(fields["name"])
            case Kind.GROUP:
                fields = orjson.loads(payload)
                str(fields["name"]), int(fields["number"])
            case Kind.GRANT:
                decode_grant(payload)
            case Kind.ACK:
                decode_ack(payload)
            case Kind.OFFSETS:
                decode_offsets(payload)
            case _:
                pass
        return ""
