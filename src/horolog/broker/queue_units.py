"""Units of consume queues for visible messages, and tags codes of several tags.

Where a topic allows several tags, the code of its messages is a Bloom filter of all of them.  It is
made here, when a message gets its queue offset, so it does not matter how the message arrived and
how long it waited; until then its code is the Java hash of the whole text, as everywhere else.  The
head of the record and the sysFlag of its layout say so (`log.record.MANY_TAGS`): a replay, a unit
and a consumer need not know what the settings of the topic were.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from horolog.broker.topics import Topic
from horolog.log.queue_unit import units_of
from horolog.log.record import HEAD_BYTES, MANY_TAGS
from horolog.log.stored import put_stored, stored
from horolog.log.unaligned import put
from horolog.protocol.rocketmq import layout, properties
from horolog.protocol.rocketmq.tags import bits_of, split_tags

_Column = npt.NDArray[np.int64]


def visible_units(
    body: bytearray,
    at: _Column,
    base: int,
    heads: npt.NDArray[Any],
    groups: Sequence[tuple[Topic, int, _Column]],
) -> list[tuple[Topic, int, npt.NDArray[Any]]]:
    """Build (topic, queue id, units) for message records of a frame body.

    Codes of several tags are written into body and heads.

    at      offsets of all records in the body, whose log position is `base`
    groups  (topic, queue id, row numbers) of the messages that are visible now (`Topics.assign`)
    """
    units = []
    for topic, queue_id, rows in groups:
        if topic.settings.multi_tag:
            _mark(body, at[rows], heads, rows)
        units.append((topic, queue_id, units_of(heads.take(rows), at[rows] + base)))
    return units


def _mark(body: bytearray, at: _Column, heads: npt.NDArray[Any], rows: _Column) -> None:
    view, raw = memoryview(body), np.frombuffer(body, np.uint8)
    ends = at + heads["size"][rows].astype(np.int64)
    codes = []
    for start, end in zip((at + HEAD_BYTES).tolist(), ends.tolist(), strict=True):
        text = properties.value_of(layout.properties_of(view[start:end]), properties.TAGS)
        codes.append(bits_of(split_tags(text or "")))
    marked = heads.take(rows)
    marked["tags"] = np.array(codes, np.uint32).view(np.int32)
    marked["flags"] |= MANY_TAGS
    heads[rows] = marked
    put(raw, at, marked)
    flags = stored(raw, at + HEAD_BYTES, "sys_flag") | layout.MULTI_TAGS
    put_stored(raw, at + HEAD_BYTES, "sys_flag", flags)
