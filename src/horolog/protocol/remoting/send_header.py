"""Headers of sends (codes 10, 310 and 320): what the frames of a producer have in common, read once for all of them."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from horolog.protocol.remoting.codes import Code
from horolog.protocol.remoting.frame import Frame
from horolog.protocol.remoting.request import flag, integer, text
from horolog.protocol.rocketmq import layout
from horolog.protocol.rocketmq.names import check_topic
from horolog.protocol.send_commands import ANY_QUEUE

_V1 = (
    "topic", "queueId", "sysFlag", "bornTimestamp", "flag", "properties", "reconsumeTimes", "batch",
)  # fmt: skip
_V2 = ("b", "e", "f", "g", "h", "i", "j", "m")  # the same, in the short header

_STORED_FLAGS = 0x703  # of the sender's flags: compressed and how, several tags
_I32 = 1 << 31


class Shared(NamedTuple):
    """What the sends of a producer have in common, but for the time and the properties."""

    topic: str
    name: bytes  # the topic, in UTF-8
    queue_id: int
    sys_flag: int
    flag: int
    attempts: int
    is_batch: bool
    real: bytes  # what is stored with a delayed message
    is_half: bool  # of a transaction, by its flags


def names_of(code: int) -> tuple[str, ...]:
    """Fields of a send: topic, queueId, sysFlag, bornTimestamp, flag, properties, reconsumeTimes, batch."""
    return _V1 if code == Code.SEND_MESSAGE else _V2


@lru_cache(maxsize=4_096)
def shared_by(code: int, *given: str | None) -> Shared:
    """From the fields in the order of topic, queue, sysFlag, flag, reconsumeTimes, batch; a bad one is refused."""
    topic, queue, sys_flags, _, flags, _, attempts, batch = names_of(code)
    named = (topic, queue, sys_flags, flags, attempts, batch)
    fields = {name: value for name, value in zip(named, given, strict=True) if value is not None}
    frame = Frame(code, fields=fields)
    sys_flag = integer(frame, sys_flags, 0, low=-_I32, high=_I32 - 1)
    queue_id = max(ANY_QUEUE, integer(frame, queue, ANY_QUEUE, low=-_I32, high=_I32 - 1))
    name = check_topic(text(frame, topic)).encode()
    real = b"REAL_TOPIC\x01%b\x02" % name
    if queue_id >= 0:
        real += b"REAL_QID\x01%d\x02" % queue_id
    return Shared(
        name.decode(),
        name,
        queue_id,
        sys_flag & _STORED_FLAGS,
        integer(frame, flags, 0, low=-_I32, high=_I32 - 1),
        integer(frame, attempts, 0, low=0, high=_I32 - 1),
        flag(frame, batch) or code == Code.SEND_BATCH_MESSAGE,  # what is kept was looked at
        real,
        sys_flag & layout.TRANSACTION_BITS == layout.TRANSACTION_PREPARED,
    )
