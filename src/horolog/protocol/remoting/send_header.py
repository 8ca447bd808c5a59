"""Headers of sends (codes 10, 310 and 320): fields that many frames share are parsed once."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from horolog.protocol.remoting.codes import Code
from horolog.protocol.remoting.frame import Frame
from horolog.protocol.remoting.request import I32_MAX, I32_MIN, flag, integer, text
from horolog.protocol.rocketmq import layout
from horolog.protocol.rocketmq.names import check_topic
from horolog.protocol.send_commands import ANY_QUEUE

_V1 = (
    "topic", "queueId", "sysFlag", "bornTimestamp", "flag", "properties", "reconsumeTimes", "batch",
)  # fmt: skip
_V2 = ("b", "e", "f", "g", "h", "i", "j", "m")  # the same fields in the short header

_STORED_FLAGS = 0x703  # stored bits of the producer's flags: compressed and how, several tags


class Shared(NamedTuple):
    """Fields that the sends of a producer share: all but the time and the properties."""

    topic: str
    name: bytes  # the topic in UTF-8
    queue_id: int
    sys_flag: int
    flag: int
    attempts: int
    is_batch: bool
    delayed_properties: bytes  # stored in addition with a delayed message
    is_half: bool  # a half message, by its flags


def names_of(code: int) -> tuple[str, ...]:
    """Return the field names that a send of this code uses, in the order of `_V1`."""
    return _V1 if code == Code.SEND_MESSAGE else _V2


@lru_cache(maxsize=4_096)
def shared_by(code: int, *given: str | None) -> Shared:
    """Parse the fields topic, queue, sysFlag, flag, reconsumeTimes and batch; refuse bad ones."""
    topic, queue, sys_flags, _, flags, _, attempts, batch = names_of(code)
    named = (topic, queue, sys_flags, flags, attempts, batch)
    fields = {name: value for name, value in zip(named, given, strict=True) if value is not None}
    frame = Frame(code, fields=fields)
    sys_flag = integer(frame, sys_flags, 0, low=I32_MIN, high=I32_MAX)
    queue_id = max(ANY_QUEUE, integer(frame, queue, ANY_QUEUE, low=I32_MIN, high=I32_MAX))
    name = check_topic(text(frame, topic)).encode()
    delayed_properties = b"REAL_TOPIC\x01%b\x02" % name
    if queue_id >= 0:
        delayed_properties += b"REAL_QID\x01%d\x02" % queue_id
    return Shared(
        name.decode(),
        name,
        queue_id,
        sys_flag & _STORED_FLAGS,
        integer(frame, flags, 0, low=I32_MIN, high=I32_MAX),
        integer(frame, attempts, 0, low=0, high=I32_MAX),
        flag(frame, batch) or code == Code.SEND_BATCH_MESSAGE,  # `flag` checks it
        delayed_properties,
        sys_flag & layout.TRANSACTION_BITS == layout.TRANSACTION_PREPARED,
    )
