"""A process that runs out of descriptors: connections are refused, what the broker needs itself is kept."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from http2_frames import Http2Connection

from horolog.admin.client import AdminClient
from horolog.protocol.grpc import messaging_pb2 as pb
from horolog.server.grpc_unary import SERVICE
from horolog.testing.broker import BrokerProcess, installed_command

pytestmark = [pytest.mark.process, pytest.mark.usefixtures("installed")]
HOUR_MS = 3_600_000
ANSWERED_S = 5.0


@pytest.fixture
def narrow() -> Iterator[BrokerProcess]:
    """A broker that may have 256 descriptors."""
    command = ["sh", "-c", 'ulimit -n 256; exec "$0" "$@"', *installed_command()]
    with BrokerProcess(clock="system", command=command) as broker:
        broker.create_topic("t", "mixed")
        yield broker
        assert broker.stop() == 0


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


def channel_to(broker: BrokerProcess) -> grpc.Channel:
    """One with a connection of its own."""
    return grpc.insecure_channel(
        broker.grpc_endpoint, options=[("grpc.use_local_subchannel_pool", 1)]
    )


def send(channel: grpc.Channel, name: str) -> Any:
    call = channel.unary_unary(
        f"/{SERVICE}/SendMessage",
        request_serializer=pb.SendMessageRequest.SerializeToString,
        response_deserializer=pb.SendMessageResponse.FromString,
    )
    system = pb.SystemProperties(message_id=name)
    message = pb.Message(topic=pb.Resource(name="t"), body=b"x", system_properties=system)
    request = pb.SendMessageRequest(messages=[message])
    return call(request, metadata=[("x-mq-client-id", "c")], timeout=30)


def test_standard_files_that_are_closed(tmp_path) -> None:
    """Their numbers are given to no socket and no file of the broker."""
    command = ["sh", "-c", 'exec "$0" "$@" <&- 2>&-', *installed_command()]
    with BrokerProcess(tmp_path / "data", clock="system", command=command) as broker:
        for standard in (0, 2):
            assert os.readlink(f"/proc/{broker.pid}/fd/{standard}") == os.devnull
        assert broker.admin.get("/v1/topics") == {"topics": []}
        assert broker.stop() == 0


def test_stdout_that_cannot_be_written(tmp_path) -> None:
    """The broker serves without its ready line, and ends well."""
    command = [*installed_command(), "serve", f"--data-dir={tmp_path / 'data'}", "--no-remoting"]
    with (
        open("/dev/full", "wb") as full,
        subprocess.Popen(
            [*command, "--grpc-port=0", "--admin-port=0"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        ) as broker,
    ):
        assert broker.stderr is not None
        lines = iter(broker.stderr.readline, "")
        assert any("stdout takes no ready line (No space left on device)" in each for each in lines)
        ready = next(each for each in lines if " ready grpc-port=" in each)
        port = re.search(r"admin-port=(\d+)", ready)
        assert port is not None
        assert AdminClient(f"http://127.0.0.1:{port[1]}").get("/v1/topics") == {"topics": []}
        broker.terminate()
        assert broker.wait(30) == 0


def test_more_connections_than_descriptors_end_nothing(narrow: BrokerProcess) -> None:
    """Who is connected goes on, the newest are told why and hung up on, and the log says it once."""
    known = channel_to(narrow)
    assert send(known, "before").status.code == pb.OK
    flood = [Http2Connection(port_of(narrow.grpc_endpoint)) for _ in range(300)]
    try:
        flood[-1].until_closed()
        assert any(b"too many connections" in each.goaway for each in flood)
        assert send(known, "meanwhile").status.code == pb.OK
        # Every hour has files of its own: more than the reserve has descriptors for.
        now = narrow.now_ms()
        for hour in range(1, 24):
            due = {"topic": "t", "body": "x", "deliver_at_ms": now + hour * HOUR_MS}
            narrow.admin.post("/v1/messages", due)
        assert narrow.pending("t") == 23
        assert narrow.admin.get("/healthz")["healthy"] is True
        with (
            channel_to(narrow) as late,
            pytest.raises(grpc.RpcError) as no,
        ):
            send(late, "late")
        assert no.value.code() is grpc.StatusCode.UNAVAILABLE
    finally:
        for each in flood:
            each.close()
    with channel_to(narrow) as after:
        grpc.channel_ready_future(after).result(timeout=30)
        assert send(after, "after").status.code == pb.OK
    known.close()
    assert narrow.stop() == 0
    assert 1 <= narrow.stderr().count("connections refused") <= 10  # a line a second, not one each
    assert "Traceback" not in narrow.stderr()
    narrow.restart()
    assert narrow.pending("t") == 23


def test_idle_connections_do_not_take_the_admin_port(narrow: BrokerProcess) -> None:
    """Who has sent no whole request yet makes room for who comes."""
    port = port_of(narrow.admin_url)
    idle = [socket.create_connection(("127.0.0.1", port), timeout=30) for _ in range(300)]
    for each in idle[::2]:
        each.sendall(b"GET /healthz HTTP/1.1\r\nhost: loc")
    for _ in range(5):
        begun = time.monotonic()
        assert narrow.admin.get("/healthz")["healthy"] is True
        assert time.monotonic() - begun < ANSWERED_S
    for each in idle:
        each.close()


def test_slow_bodies_do_not_starve_the_admin_port() -> None:
    """800 requests whose bodies trickle in, and others are answered as if there were none."""
    with BrokerProcess(clock="system") as broker:
        broker.create_topic("t", "mixed")
        port = port_of(broker.admin_url)
        head = (
            f"POST /v1/messages HTTP/1.1\r\nhost: localhost:{port}\r\n"
            "content-type: application/json\r\ncontent-length: 1000\r\n\r\n"
        )
        slow = [socket.create_connection(("127.0.0.1", port), timeout=30) for _ in range(800)]
        for each in slow:
            each.sendall(head.encode())
        admin = AdminClient(broker.admin_url)
        slowest = 0.0
        for turn in range(10):
            for each in slow:
                each.sendall(b" ")
            begun = time.monotonic()
            admin.post("/v1/messages", {"topic": "t", "body": f"{turn}"})
            slowest = max(slowest, time.monotonic() - begun)
        body = json.dumps({"topic": "t", "body": "slow"}).encode()
        slow[0].sendall(body + b" " * (1000 - 10 - len(body)))
        assert slow[0].recv(12) == b"HTTP/1.1 201"
        for each in slow:
            each.close()
        assert slowest < ANSWERED_S
        assert admin.get("/v1/topics/t")["queue_offsets"] == [11]
        assert broker.stop() == 0
        assert "Traceback" not in broker.stderr()
