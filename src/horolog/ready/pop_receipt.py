"""Receipt handles of pop consumers: RocketMQ's POP_CK, which clients take apart and rebuild.

A handle has eight words, separated by spaces.

====  ===============  =====================================================================
word  RocketMQ's name  here
====  ===============  =====================================================================
0     ck offset        queue offset: each message is acknowledged by itself
1     pop time         epoch milliseconds of the grant
2     invisible time   milliseconds
3     revive queue     serial: the lowest 7 bits of the epoch, the lowest 24 of the grant
4     topic type       0: the topic of the message itself
5     broker           name of the broker
6     queue id
7     queue offset
====  ===============  =====================================================================

After a change of invisible time a client keeps offset, broker and queue, and takes only pop time,
invisible time and revive queue from the response; so these three words must identify a grant.  They
name one grant among all grants of an offset: the lease states when it was granted, and a serial
repeats only after 16 million grants of one epoch.  The whole epoch and the whole id of the grant,
which do not fit, are taken from the lease; if the record of the grant was lost with its process,
the epoch is the newest one that the serial may mean.
"""

from __future__ import annotations

from typing import NamedTuple

from horolog.ready.leases import Lease
from horolog.ready.receipt import Receipt, invalid_receipt

_WORDS = 8
_EPOCH_BITS, _GRANT_BITS = 7, 24
_EPOCH_MASK, _GRANT_MASK = (1 << _EPOCH_BITS) - 1, (1 << _GRANT_BITS) - 1
assert _EPOCH_BITS + _GRANT_BITS == 31, "a client reads it as a Java int"


class PopReceipt(NamedTuple):
    """A decoded pop handle."""

    granted_ms: int
    invisible_ms: int
    serial: int
    queue: int
    offset: int


def is_pop(handle: str) -> bool:
    """Return whether a handle has the form of a pop handle."""
    return " " in handle


def serial_of(epoch: int, grant: int) -> int:
    """Return the serial of a grant for word 3."""
    return (epoch & _EPOCH_MASK) << _GRANT_BITS | grant & _GRANT_MASK


def encode_pop(receipt: Receipt, invisible_ms: int, broker: str) -> str:
    """Encode a pop handle; `invisible_ms` is how long the lease lasts from its grant on."""
    granted_ms = receipt.expires_ms - invisible_ms
    serial = serial_of(receipt.epoch, receipt.grant)
    return (
        f"{receipt.offset} {granted_ms} {invisible_ms} {serial} 0 {broker} "
        f"{receipt.queue} {receipt.offset}"
    )


def decode_pop(handle: str) -> PopReceipt:
    """Decode a pop handle; INVALID_RECEIPT_HANDLE if it is malformed."""
    words = handle.split(" ")
    if len(words) != _WORDS:
        raise invalid_receipt(f"{len(words)} words; a pop receipt has {_WORDS}")
    values = [words[at] for at in (1, 2, 3, 6, 7)]
    if not all(word.isascii() and word.isdecimal() and len(word) <= 18 for word in values):
        raise invalid_receipt("not one of ours")
    return PopReceipt(*map(int, values))


def resolved(pop: PopReceipt, lease: Lease | None, group: int, topic: int, epoch: int) -> Receipt:
    """Resolve a pop handle to a receipt; INVALID_RECEIPT_HANDLE if the message was given out again.

    lease  newest lease of the queue offset; None if there is none
    epoch  the current epoch
    """
    expires_ms = pop.granted_ms + pop.invisible_ms
    if lease is not None:
        of_epoch, grant = lease.grant >> 32, lease.grant & 0xFFFFFFFF
        if (lease.granted_ms, serial_of(of_epoch, grant)) != (pop.granted_ms, pop.serial):
            raise invalid_receipt("superseded: the message was given out again")
        return Receipt(
            group, topic, pop.queue, lease.attempt, grant, of_epoch, pop.offset, expires_ms
        )
    age = (epoch - (pop.serial >> _GRANT_BITS)) & _EPOCH_MASK
    grant = pop.serial & _GRANT_MASK
    return Receipt(group, topic, pop.queue, 1, grant, epoch - age, pop.offset, expires_ms)
