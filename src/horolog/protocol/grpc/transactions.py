"""Transactions as 5.x clients see them: ids, which are log positions, and checks."""

from __future__ import annotations

import re

from horolog.errors import ErrorCode, refused
from horolog.limits import TRANSACTION_RECOVERY_MAX_MS
from horolog.protocol.commands import Delivered
from horolog.protocol.grpc import messaging_pb2 as pb
from horolog.protocol.grpc.deliveries import received
from horolog.protocol.grpc.message_fields import transaction_id
from horolog.protocol.grpc.status import OK
from horolog.protocol.http2.grpc_wire import PREFIX_BYTES
from horolog.protocol.rocketmq import properties
from horolog.protocol.rocketmq.layout import queue_id_of
from horolog.protocol.transaction_commands import TransactionCheck

_ID = re.compile(r"[0-9A-F]{16}\Z")


def transaction_of(text: str) -> int:
    """Return the log position of an id; INVALID_TRANSACTION_ID if this broker gives no such id."""
    if not _ID.match(text):
        why = f"{text[:40]!r} is none that this broker gives" if text.strip() else "blank"
        raise refused("transaction_id", why, code=ErrorCode.INVALID_TRANSACTION_ID)
    return int(text, 16)


def half_properties(system: pb.SystemProperties) -> bytes:
    """Return the properties that mark a half message.

    BAD_REQUEST if the producer wants its first check too late.
    """
    stored = {properties.TRANSACTION: "true"}
    if system.HasField("orphaned_transaction_recovery_duration"):
        wished = system.orphaned_transaction_recovery_duration
        wished_ms = wished.seconds * 1000 + wished.nanos // 1_000_000
        if wished_ms > TRANSACTION_RECOVERY_MAX_MS:
            raise refused(
                "orphaned_transaction_recovery_duration",
                f"{wished_ms} ms; at most {TRANSACTION_RECOVERY_MAX_MS} ms are allowed",
                f"{TRANSACTION_RECOVERY_MAX_MS} ms",
            )
        if wished_ms > 0:
            stored[properties.CHECK_IMMUNITY] = str(-(-wished_ms // 1000))
    return properties.encode(stored)


def check_command(check: TransactionCheck, topic: pb.Resource) -> pb.TelemetryCommand:
    """Build the command that asks a producer for the outcome of its transaction.

    topic  as the producer names it: it ends the transaction with this topic
    """
    delivered = Delivered(check.layout, queue_id_of(check.layout), check.half_offset, 1, "")
    framed = received(topic.SerializeToString(), delivered)
    message = pb.ReceiveMessageResponse.FromString(framed[PREFIX_BYTES:]).message
    message.system_properties.message_type = pb.TRANSACTION
    for field in ("receipt_handle", "delivery_attempt"):
        message.system_properties.ClearField(field)
    return pb.TelemetryCommand(
        status=OK,
        recover_orphaned_transaction_command=pb.RecoverOrphanedTransactionCommand(
            message=message, transaction_id=transaction_id(check.position)
        ),
    )
