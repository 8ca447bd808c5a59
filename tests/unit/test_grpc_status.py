"""The status above the entries of an answer."""

from __future__ import annotations

import pytest

from horolog.protocol.grpc import messaging_pb2 as pb
from horolog.protocol.grpc.quick_acks import QuickAck, read_ack
from horolog.protocol.grpc.quick_sends import QuickSend, read_send
from horolog.protocol.grpc.status import OK, common_status, common_status_named

FULL = pb.Status(code=pb.TOO_MANY_REQUESTS, message="the disk is full")


def test_entries_that_agree_share_their_status() -> None:
    assert common_status([OK, OK]) == OK
    assert common_status_named(iter([OK])) == OK
    assert common_status([FULL, FULL]) == FULL
    assert common_status_named([FULL]).message == "TOO_MANY_REQUESTS: the disk is full"


def test_entries_that_differ_have_multiple_results() -> None:
    assert common_status([OK, FULL]).code == pb.MULTIPLE_RESULTS
    assert common_status_named([OK, FULL]).message == "MULTIPLE_RESULTS: see the entries"


def test_an_answer_without_entries_is_a_bug() -> None:
    """Front ends refuse requests without messages or handles (`test_grpc_front`)."""
    for status in (common_status, common_status_named):
        with pytest.raises(AssertionError, match="without entries"):
            status([])


def test_a_request_without_entries_is_never_read_quickly() -> None:
    """Quickly read requests skip the check that there is an entry."""
    names = {"group": pb.Resource(name="g"), "topic": pb.Resource(name="t")}
    for fields in ({}, names):
        raw = pb.AckMessageRequest(**fields).SerializeToString()
        assert not isinstance(read_ack(raw), QuickAck)
    assert not isinstance(read_send(b""), QuickSend)
