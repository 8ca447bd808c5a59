"""What the stored properties of messages ask for: the full parser (`shapes` is the fast path)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from horolog.errors import HorologError, refused
from horolog.limits import STORED_PROPERTIES_MAX
from horolog.protocol.rocketmq.delays import Levels, due_of, with_separator, without
from horolog.protocol.rocketmq.message import check_id, check_stored_size
from horolog.protocol.rocketmq.properties import CANCELS, IN_REGION, REGION

_ID, _KEYS, _TAGS = b"\x02UNIQ_KEY\x01", b"\x02KEYS\x01", b"\x02TAGS\x01"
_GROUP = b"\x02__SHARDINGKEY\x01"
_ASKS, _CLUSTER = b"\x02REPLY_TO_CLIENT\x01", b"\x02CLUSTER\x01"
_POP, _HALF, _PRODUCERS = b"\x02POP_CK\x01", b"\x02TRAN_MSG\x01", b"\x02PGROUP\x01"
_CANCELS = f"\x02{CANCELS}\x01".encode()
_REGION = f"\x02{REGION}\x01".encode()


class SendContext(NamedTuple):
    """Context of a send that the properties of its messages do not have.

    delayed_properties  for each message: the properties stored in addition if it is delayed
    """

    levels: Levels
    delayed_properties: Sequence[bytes]
    new_ids: Callable[[int], list[bytes]]
    cluster: bytes  # tells a client where to send the reply to a request
    takes_halves: bool = False


class Wanted(NamedTuple):
    """What the properties of messages ask for, as columns."""

    texts: Sequence[bytes]  # properties as they are stored
    ids: Sequence[bytes]
    keyed: Sequence[bool]  # whether there is a KEYS property
    tags: Sequence[bytes]  # empty: none
    groups: Sequence[bytes]  # message groups; empty: none
    due_ms: Sequence[int]  # as in a head as sent
    lanes: Sequence[int]

    @classmethod
    def of(cls, texts: Sequence[bytes], context: SendContext) -> Wanted:
        """Read properties one by one; HorologError for the first message that cannot be stored."""
        found = [
            _read(text, context, added)
            for text, added in zip(texts, context.delayed_properties, strict=True)
        ]
        return cls(*zip(*found, strict=True))


def _read(
    stored: bytes, context: SendContext, delayed_properties: bytes
) -> tuple[bytes, bytes, bool, bytes, bytes, int, int]:
    if len(stored) > 2 * STORED_PROPERTIES_MAX:  # what may be dropped is shorter than that
        check_stored_size(len(stored))
    marked = b"\x02" + stored
    if _REGION not in marked:
        marked = b"\x02" + IN_REGION + stored
    if _POP in marked:  # the handle of a received message: its lease is over
        marked = without(marked, _POP)
    message_id = _last(marked, _ID)
    if not message_id:  # none, or an empty one, which RocketMQ's broker replaces too
        (message_id,) = context.new_ids(1)
        marked = with_separator(without(marked, _ID)) + _ID[1:] + message_id + b"\x02"
    if _ASKS in marked:
        marked = (
            with_separator(without(marked, _CLUSTER)) + _CLUSTER[1:] + context.cluster + b"\x02"
        )
    if not message_id.isalnum() or len(message_id) > 40:
        check_id(message_id.decode())
    if not context.takes_halves and _marks_half(marked):
        raise half_message()
    due_ms = lane = 0
    if b"DEL" in marked:  # the name of every property that delays has these letters
        due_ms, lane, marked = due_of(marked, context.levels, delayed_properties)
        if due_ms and not lane and _CANCELS in marked:
            raise refused(
                CANCELS,
                "a message that cancels another one cannot stand among others; send it alone",
            )
    if len(marked) - 1 > STORED_PROPERTIES_MAX:
        check_stored_size(len(marked) - 1)
    tag, group = _last(marked, _TAGS), _last(marked, _GROUP)
    return marked[1:], message_id, _KEYS in marked, tag, group, due_ms, lane


def _last(marked: bytes, mark: bytes) -> bytes:
    """Return the value of the last property with a name; empty if there is none."""
    at = marked.rfind(mark)
    if at < 0:
        return b""
    at += len(mark)
    end = marked.find(b"\x02", at)
    return marked[at:end] if end >= 0 else marked[at:]


def cancelled_by(stored: bytes, levels: Levels) -> tuple[str, int] | None:
    """Return id and due time of the message that properties cancel; None if they cancel none.

    The due time is as in a head: below 0, so many milliseconds from now.  The id may follow the
    topic and a plus sign.  A message that is delayed by a level cancels nothing, as in RocketMQ.
    """
    marked = b"\x02" + stored
    if _CANCELS not in marked:
        return None
    due = due_of(marked, levels, b"")
    if not due.due_ms or due.lane:
        return None
    named = _last(marked, _CANCELS).decode("utf-8", "replace")
    return named.rpartition("+")[2], due.due_ms


def half_message() -> HorologError:
    """Build the refusal of a half message in a batch."""
    return refused("TRAN_MSG", "a message of a transaction in a batch; send it alone")


def is_half(stored: bytes) -> bool:
    """Return whether properties are those of a half message."""
    return _marks_half(b"\x02" + stored)


def _marks_half(marked: bytes) -> bool:
    """Return whether TRAN_MSG is true, in upper or lower case, as RocketMQ's broker reads it."""
    return _HALF in marked and _last(marked, _HALF).lower() == b"true"


def as_half_properties(stored: bytes, group: str) -> bytes:
    """Return properties with those that mark a half message and name its producer group."""
    marked = b"\x02" + stored
    if not _marks_half(marked):
        marked = with_separator(marked) + _HALF[1:] + b"true\x02"
    if _PRODUCERS not in marked:
        marked = with_separator(marked) + _PRODUCERS[1:] + group.encode() + b"\x02"
    return marked[1:]
