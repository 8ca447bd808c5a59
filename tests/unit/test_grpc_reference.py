"""docs/reference/grpc.md says what the code says."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from horolog import limits
from horolog.protocol.grpc import messaging_pb2 as pb
from horolog.protocol.grpc.status import CODES, RECALL_CODES
from horolog.protocol.http2.events import Limits
from horolog.protocol.http2.floods import BYTES_A_FRAME, FRAMES_AN_ANSWER
from horolog.server.grpc_front import GrpcFront
from horolog.server.grpc_unary import NOT_IMPLEMENTED, SERVICE

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "grpc.md").read_text(encoding="utf-8")


def rows(title: str) -> list[list[str]]:
    """Cells of the last table under a title, without the head."""
    section = PAGE.split(f"## {title}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines[2:]]


def test_every_error_has_its_status_on_the_page() -> None:
    made = [[f"`{e}`", f"`{pb.Code.Name(c)}`", str(int(c))] for e, c in CODES.items()]
    assert rows("Status codes") == made


def test_every_recall_status_is_on_the_page() -> None:
    made = [(f"`{s}`", f"`{pb.Code.Name(c)}` {int(c)}") for s, c in RECALL_CODES.items()]
    assert [(word, status) for word, status, _ in rows("Recall handles")] == made


def test_every_call_is_on_the_page() -> None:
    calls = {name.strip("`"): text for name, text in rows("Calls")}
    assert {f"/{SERVICE}/{name}".encode() for name in calls} == GrpcFront(None).paths
    missing = {name for name, text in calls.items() if text == "`NOT_IMPLEMENTED`"}
    assert missing == set(NOT_IMPLEMENTED)


def test_the_limits_on_the_page_are_those_of_the_code() -> None:
    found = dict(rows("Limits"))
    assert found["request"] == (
        f"{limits.REQUEST_BYTES_MAX >> 20} MiB; {limits.CALL_BYTES_MAX >> 20} MiB without messages, "
        f"{limits.TELEMETRY_BYTES_MAX >> 20} MiB on a Telemetry stream, "
        f"{limits.UNPACKED_BYTES_MAX >> 20} MiB unpacked from gzip"
    )
    assert found["fields of one `SendMessage`"] == (
        f"{limits.SEND_FIELDS_MAX}, and {limits.SEND_PROPERTIES_BYTES >> 20} MiB besides bodies"
    )
    assert found["messages of one `SendMessage`"].startswith(f"1 to {limits.MESSAGES_PER_SEND_MAX}")
    assert str(limits.BODY_MAX) in found["body"]
    assert found["user properties"] == str(limits.USER_PROPERTIES_MAX)
    assert found["user properties, tag and keys"] == f"{limits.PROPERTIES_MAX} bytes"
    assert found["`x-mq-client-id`"] == f"{limits.HEARTBEAT_NAME_MAX} characters"
    assert found["topic name"].startswith(f"{limits.TOPIC_NAME_MAX} ")
    assert found["consumer group name"].startswith(f"{limits.GROUP_NAME_MAX} ")
    assert found["entries of one `AckMessage`"] == str(limits.ACKS_PER_REQUEST_MAX)
    assert found["settings on a Telemetry stream"] == f"{limits.CALL_BYTES_MAX >> 20} MiB"
    endpoints = found["endpoints of `QueryRoute` and `QueryAssignment`"]
    assert endpoints == f"{limits.ENDPOINTS_BYTES_MAX} bytes"
    assert found["message group"] == f"{limits.MESSAGE_GROUP_MAX} bytes"
    assert found["message id"].startswith(f"{limits.MESSAGE_ID_MAX} bytes")
    delay_d = limits.MAX_DELAY_MS // limits.DAY_MS
    assert f"at most {delay_d} days ahead" in found["`delivery_timestamp`"]
    assert found["messages of one `ReceiveMessage`"].startswith(f"{limits.RECEIVE_BATCH_MAX};")
    longest = f"{limits.INVISIBLE_MAX_MS // limits.HOUR_MS} h"
    shortest = f"{limits.INVISIBLE_MIN_MS // limits.SECOND_MS} s"
    assert found["`invisible_duration` of a receive"].startswith(f"{shortest} to {longest};")
    change = found["`invisible_duration` of a change"]
    assert change.startswith(f"0 to {longest}; below {limits.REDELIVERY_MIN_MS} ms")
    poll_s = limits.POLL_MAX_MS // limits.SECOND_MS
    assert found["`long_polling_timeout`"].startswith(
        f"{poll_s} s, and {limits.POLL_MARGIN_MS} ms less"
    )
    assert found["waiting receives"] == str(limits.PARKED_POLLS_MAX)
    assert found["live leases"].startswith(f"{limits.LEASES_MAX};")
    assert found["calls at a time on one connection"].startswith(f"{limits.STREAMS_MAX};")


def test_what_the_page_says_of_connections() -> None:
    usual = inspect.signature(GrpcFront).parameters
    words = " ".join(PAGE.split())
    assert f"quiet for {usual['quiet_ms'].default // 1000} s is pinged" in words
    assert f"nothing answers within {usual['unanswered_ms'].default // 1000} s" in words
    assert f"Up to {limits.CONNECTIONS_MAX} connections" in words
    assert f"more than {limits.BYTES_UNDER_WAY_MAX >> 20} MiB are without" in words
    floods = Limits()
    assert f"({floods.resets_burst} at once, {floods.resets_per_second} a second" in words
    assert f"({floods.frames_burst} at once, {floods.frames_per_second} a second, four" in words
    assert (FRAMES_AN_ANSWER, BYTES_A_FRAME) == (4, 4_096)
    assert f"more than {floods.header_pieces} pieces" in words
    pace = f"({floods.messages_burst} at once, {floods.messages_per_second} a second)"
    assert f"too many commands on such streams {pace}" in words
    assert f"more than {floods.header_bytes} bytes of header fields" in words
    assert f"more than {floods.queued_bytes >> 20} MiB of answers" in words
