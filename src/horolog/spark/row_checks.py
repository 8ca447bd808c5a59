"""Check for rows of an Arrow table that may not become messages, with the reason a send would give.

A quick check of whole columns finds the rows that might be refused; each of these rows then goes
through `encode`, as a message that is sent does, and the refusal is the reason.  So the quick check
may be too strict, but never too lenient.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from horolog import limits
from horolog.errors import HorologError
from horolog.protocol.commands import MessageType
from horolog.protocol.rocketmq import properties as names
from horolog.protocol.rocketmq.message import encode
from horolog.spark.rows import one_array
from horolog.spark.sink_columns import TIME_OF_DAY, Target
from horolog.spark.text_files import LOST
from horolog.units import format_time_ms

_CONTROL = r"[\x00-\x1f\x7f-\x{9f}]"
_CONTROL_OR_SPACE = r"[\x00-\x20\x7f-\x{9f}]"
_CONTROL_OR_WHITE = r"[\x00-\x20\x7f-\x{a0}\p{Z}]"
_CONTROL_OR_BAR = r"[\x00-\x1f\x7f-\x{9f}|]"
_SHOWN_MAX = 60  # most characters of a value that a reason shows

Mask = npt.NDArray[np.bool_]


def refusals(table: pa.Table, due_ms: npt.NDArray[np.int64], target: Target) -> dict[int, str]:
    """Return row → reason for the rows that may not become messages.

    table   columns as `sink_columns.normalised` returns them
    due_ms  of every row, 0 where `deliver_at` is null
    """
    suspect = np.flatnonzero(_suspects(table, due_ms, target))
    found = {}
    for row in suspect.tolist():
        reason = _reason(table, int(due_ms[row]), target, row)
        if reason:
            found[row] = reason
    return found


def described(table: pa.Table, row: int) -> str:
    """Return the values of a row as text: "deliver_at=…, tag=…, body=…"."""
    parts = []
    for name in table.column_names:
        value, _ = _value(table.column(name)[row])
        if value is not None:
            parts.append(f"{name}={str(value)[:_SHOWN_MAX]}")
    return ", ".join(parts)


def _suspects(table: pa.Table, due_ms: npt.NDArray[np.int64], target: Target) -> Mask:
    suspect: Mask = (due_ms < target.min_due_ms) | (due_ms > target.max_due_ms)
    body = table.column("body")
    size = _numbers(pc.binary_length(body))
    suspect |= (size == 0) | (size > limits.BODY_MAX)
    total = np.zeros(len(due_ms), np.int64)
    columns = set(table.column_names)
    if "malformed_text" in columns:
        suspect |= _true(pc.is_valid(table.column("malformed_text")))
    if "message_id" in columns:
        suspect |= _suspect_text(table.column("message_id"), _CONTROL_OR_SPACE, null_is_bad=True)
        size = _numbers(pc.binary_length(table.column("message_id")))
        suspect |= size > limits.MESSAGE_ID_MAX
    if "tag" in columns:
        suspect |= _suspect_text(table.column("tag"), _CONTROL_OR_BAR, null_is_bad=False)
        total += _numbers(pc.binary_length(table.column("tag")))
    if "keys" in columns:
        total += _look_into(table.column("keys"), suspect)
    if "properties" in columns:
        total += _look_into_properties(table.column("properties"), suspect)
    return suspect | (total > limits.PROPERTIES_MAX)


def _look_into(lists: pa.ChunkedArray, suspect: Mask) -> npt.NDArray[np.int64]:
    """Mark the rows whose list holds a suspect text; return the bytes of each row's texts."""
    array = one_array(lists)
    texts, parents = array.flatten(), _numbers(pc.list_parent_indices(array))
    suspect[parents[_suspect_text(texts, _CONTROL_OR_WHITE, null_is_bad=True)]] = True
    return _sums(texts, parents, len(suspect))


def _look_into_properties(maps: pa.ChunkedArray, suspect: Mask) -> npt.NDArray[np.int64]:
    array = one_array(maps)
    entries = array.cast(pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())])))
    parents = _numbers(pc.list_parent_indices(entries))
    flat = entries.flatten()
    keys, values = flat.field("key"), flat.field("value")
    bad = _suspect_text(keys, _CONTROL, null_is_bad=True)
    bad |= _true(pc.match_substring_regex(values, _CONTROL)) | _true(pc.is_null(values))
    bad |= _not_utf8(values)
    bad |= _true(pc.is_in(keys, pa.array(sorted(names.HIDDEN))))
    bad |= _true(pc.starts_with(keys, names.HIDDEN_PREFIX))
    suspect[parents[bad]] = True
    count = np.bincount(parents, minlength=len(suspect))
    suspect |= count > limits.USER_PROPERTIES_MAX
    return _sums(keys, parents, len(suspect)) + _sums(values, parents, len(suspect))


def _suspect_text(texts: Any, pattern: str, *, null_is_bad: bool) -> Mask:
    broken = _not_utf8(texts)
    if broken.any():
        texts = pc.if_else(pa.array(broken), "", texts)  # an empty text is refused as well
    bad = _true(pc.match_substring_regex(texts, pattern)) | _true(pc.utf8_is_space(texts))
    bad |= _numbers(pc.fill_null(pc.binary_length(texts), -1 if not null_is_bad else 0)) == 0
    return bad


def _not_utf8(texts: Any) -> Mask:
    """Return which texts are not UTF-8.

    Spark makes a string from any bytes, as in `cast(payload as string)`.
    """
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        return np.array([_is_broken(each) for each in texts.cast(pa.binary()).to_pylist()], bool)
    return np.zeros(len(texts), bool)


def _is_broken(text: bytes | None) -> bool:
    try:
        (text or b"").decode()
    except UnicodeDecodeError:
        return True
    return False


def _sums(texts: pa.Array, parents: npt.NDArray[np.int64], rows: int) -> npt.NDArray[np.int64]:
    sizes = _numbers(pc.binary_length(texts))
    return np.bincount(parents, sizes, minlength=rows).astype(np.int64)


def _reason(table: pa.Table, due_ms: int, target: Target, row: int) -> str:
    """Return why a row is refused; "" if it is not."""
    values = {name: _value(table.column(name)[row]) for name in table.column_names}
    cells = {name: value for name, (value, _) in values.items()}
    if (text := cells.get("malformed_text")) is not None:
        return _malformed(text)
    if cells["deliver_at"] is None:
        text = cells.get("deliver_at_text")
        return "deliver_at: is null" if text is None else f"deliver_at: {_unread(text)}"
    if due_ms <= 0:
        return f"deliver_at: {due_ms} ms is not after 1970"
    if due_ms < target.min_due_ms:
        return (
            f"deliver_at: {due_ms} ms is {format_time_ms(due_ms)}, and what was due before "
            f"{format_time_ms(target.min_due_ms)} is refused; is the unit right? (a longer "
            "overdueMax takes it)"
        )
    if due_ms > target.max_due_ms:
        return (
            f"deliver_at: {due_ms} ms is beyond the latest time the broker takes, "
            f"{target.max_due_ms} ms ({format_time_ms(target.max_due_ms)}); is the unit right?"
        )
    if cells["body"] is None:
        return "body: is null"
    for name, (_, is_readable) in values.items():
        if not is_readable:
            what = "holds a text that" if cells[name] is None else repr(cells[name])
            return f"{name}: {what} is not UTF-8"
    if "message_id" in cells and cells["message_id"] is None:
        return "message_id: is null"
    keys = _keys(cells.get("keys"))
    user = dict(cells.get("properties") or ())
    if None in keys or None in user.values():
        return f"{'keys' if None in keys else 'properties'}: holds a null"
    try:
        encode(
            topic=target.topic,
            body=cells["body"],
            message_id=cells.get("message_id", "0"),
            type=MessageType.DELAY,
            due_ms=due_ms,
            tag=cells.get("tag"),
            keys=keys,
            user_properties=user,
        )
    except HorologError as refusal:
        return refusal.message.replace("user_properties:", "properties:", 1)
    return ""


def _value(cell: pa.Scalar) -> tuple[Any, bool]:
    """Return the value of a cell, or a text in its place, and whether its texts are UTF-8.

    None stands for a list or map whose texts are not UTF-8.
    """
    try:
        return cell.as_py(), True
    except OverflowError:  # Python's years are 1 to 9999, Spark's go further
        return f"{cell.value} {cell.type.unit} since 1970", True
    except UnicodeDecodeError:
        if pa.types.is_nested(cell.type):
            return None, False
        return cell.cast(pa.binary()).as_py()[:_SHOWN_MAX].decode(errors="replace"), False


def _malformed(text: str) -> str:
    shown = f"row: {text[:_SHOWN_MAX]!r}"
    if LOST in text:
        return (
            f"{shown} holds bytes that are not in the encoding of the file; say it with "
            "--read-option encoding=…"
        )
    return (
        f"{shown} is no row of the file (texts with line breaks need --read-option multiLine=true)"
    )


def _unread(text: str) -> str:
    if text.strip().removeprefix("-").isdigit():
        return (
            f"{text[:_SHOWN_MAX]!r} is a number without a unit; say what it counts with "
            "deliverAtUnit"
        )
    if re.match(TIME_OF_DAY, text):
        return f"{text[:_SHOWN_MAX]!r} has no date"
    return f"{text[:_SHOWN_MAX]!r} is no time"


def _keys(cell: Any) -> Sequence[str]:
    if cell is None:
        return ()
    return list(cell)


def _numbers(array: Any) -> npt.NDArray[np.int64]:
    filled = pc.fill_null(array, 0)
    found: npt.NDArray[np.int64] = np.asarray(filled).astype(np.int64, copy=False)
    return found


def _true(array: Any) -> Mask:
    found: Mask = np.asarray(pc.fill_null(array, False)).astype(bool)
    return found
