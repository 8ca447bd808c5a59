"""Translation of horolog's errors to RocketMQ 5.x status codes, in this one place."""

from __future__ import annotations

from collections.abc import Iterable

from horolog.errors import ErrorCode, HorologError
from horolog.protocol.commands import RecallStatus
from horolog.protocol.grpc import messaging_pb2 as pb

CODES: dict[ErrorCode, pb.Code] = {
    ErrorCode.BAD_REQUEST: pb.BAD_REQUEST,
    ErrorCode.ILLEGAL_ACCESS_POINT: pb.ILLEGAL_ACCESS_POINT,
    ErrorCode.ILLEGAL_TOPIC: pb.ILLEGAL_TOPIC,
    ErrorCode.ILLEGAL_GROUP: pb.ILLEGAL_CONSUMER_GROUP,
    ErrorCode.ILLEGAL_TAG: pb.ILLEGAL_MESSAGE_TAG,
    ErrorCode.ILLEGAL_KEY: pb.ILLEGAL_MESSAGE_KEY,
    ErrorCode.ILLEGAL_MESSAGE_GROUP: pb.ILLEGAL_MESSAGE_GROUP,
    ErrorCode.ILLEGAL_PROPERTY_KEY: pb.ILLEGAL_MESSAGE_PROPERTY_KEY,
    ErrorCode.ILLEGAL_MESSAGE_ID: pb.ILLEGAL_MESSAGE_ID,
    ErrorCode.ILLEGAL_FILTER: pb.ILLEGAL_FILTER_EXPRESSION,
    ErrorCode.ILLEGAL_INVISIBLE_TIME: pb.ILLEGAL_INVISIBLE_TIME,
    ErrorCode.ILLEGAL_DELIVERY_TIME: pb.ILLEGAL_DELIVERY_TIME,
    ErrorCode.ILLEGAL_POLLING_TIME: pb.ILLEGAL_POLLING_TIME,
    ErrorCode.INVALID_RECEIPT_HANDLE: pb.INVALID_RECEIPT_HANDLE,
    ErrorCode.INVALID_TRANSACTION_ID: pb.INVALID_TRANSACTION_ID,
    ErrorCode.TYPE_CONFLICT: pb.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
    ErrorCode.MESSAGE_CORRUPTED: pb.MESSAGE_CORRUPTED,
    ErrorCode.CLIENT_ID_REQUIRED: pb.CLIENT_ID_REQUIRED,
    ErrorCode.UNRECOGNIZED_CLIENT: pb.UNRECOGNIZED_CLIENT_TYPE,
    ErrorCode.BODY_EMPTY: pb.MESSAGE_BODY_EMPTY,
    ErrorCode.BODY_TOO_LARGE: pb.MESSAGE_BODY_TOO_LARGE,
    ErrorCode.PROPERTIES_TOO_LARGE: pb.MESSAGE_PROPERTIES_TOO_LARGE,
    ErrorCode.TOPIC_NOT_FOUND: pb.TOPIC_NOT_FOUND,
    ErrorCode.TOPIC_EXISTS: pb.BAD_REQUEST,
    ErrorCode.SCHEDULE_EXISTS: pb.BAD_REQUEST,
    ErrorCode.SCHEDULE_CHANGED: pb.PRECONDITION_FAILED,
    ErrorCode.GROUP_NOT_FOUND: pb.CONSUMER_GROUP_NOT_FOUND,
    ErrorCode.NOT_FOUND: pb.NOT_FOUND,
    ErrorCode.ALREADY_DELIVERED: pb.BAD_REQUEST,
    ErrorCode.DUE_TIME_CHANGED: pb.PRECONDITION_FAILED,
    ErrorCode.IN_TIER: pb.PRECONDITION_FAILED,
    ErrorCode.UNAUTHORIZED: pb.UNAUTHORIZED,
    ErrorCode.FORBIDDEN: pb.FORBIDDEN,
    ErrorCode.TOO_MANY_REQUESTS: pb.TOO_MANY_REQUESTS,
    # Official brokers answer so when the store cannot take more; clients back off and try again.
    ErrorCode.DISK_FULL: pb.TOO_MANY_REQUESTS,
    ErrorCode.TOO_MANY_FILES: pb.TOO_MANY_REQUESTS,
    ErrorCode.NOT_IMPLEMENTED: pb.NOT_IMPLEMENTED,
    ErrorCode.INTERNAL: pb.INTERNAL_SERVER_ERROR,
    ErrorCode.DAMAGED: pb.INTERNAL_SERVER_ERROR,
}
"""Status code of each error that a 5.x client can meet; others become INTERNAL_SERVER_ERROR."""

RECALL_CODES: dict[RecallStatus, pb.Code] = {
    RecallStatus.CANCELLED: pb.OK,
    RecallStatus.ALREADY_DELIVERED: pb.BAD_REQUEST,
    RecallStatus.NOT_FOUND: pb.MESSAGE_NOT_FOUND,
}

OK = pb.Status(code=pb.OK, message="OK")


def status_of(error: HorologError) -> pb.Status:
    """Return the status that reports an error to a 5.x client."""
    return pb.Status(code=CODES.get(error.code, pb.INTERNAL_SERVER_ERROR), message=error.message)


def common_status_named(statuses: Iterable[pb.Status]) -> pb.Status:
    """Return `common_status` with the name of the code before its message.

    Clients show the message of an acknowledgement, and look for the name of the code in it.
    """
    common = common_status(statuses)
    if common.code == pb.OK:
        return common
    return pb.Status(code=common.code, message=f"{pb.Code.Name(common.code)}: {common.message}")


def common_status(statuses: Iterable[pb.Status]) -> pb.Status:
    """Return the status above entries: that of the entries if they agree, else MULTIPLE_RESULTS.

    statuses  of the entries, at least one: a request without messages or handles is refused before
    """
    found = list(statuses)
    assert found, "an answer without entries"
    if all(status.code == found[0].code for status in found):
        return found[0]
    return pb.Status(code=pb.MULTIPLE_RESULTS, message="see the entries")
