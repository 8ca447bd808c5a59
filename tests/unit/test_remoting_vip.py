"""The VIP port, two below the broker's, where clients of before 4.5 send."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from tests.support.remoting_client import RemotingClient
from tests.support.remoting_door import remoting_door
from tests.support.remoting_requests import bodies, pulling, sending

from horolog.protocol.remoting.codes import Code

BELOW = 2
TRIES = 100


def listener(port: int = 0) -> socket.socket:
    found = socket.socket()
    found.bind(("127.0.0.1", port))
    found.listen()
    return found


@contextmanager
def two_ports() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Sockets on a port, and on that two above it."""
    with ExitStack() as kept:
        for _ in range(TRIES):
            low = kept.enter_context(listener())
            try:
                high = kept.enter_context(listener(low.getsockname()[1] + BELOW))
            except (OSError, OverflowError):
                continue
            yield low, high
            return
    raise AssertionError("no two free ports")


def test_what_is_sent_there_is_stored(tmp_path: Path) -> None:
    with two_ports() as (low, high):
        vip, port = low.getsockname()[1], high.getsockname()[1]
        low.close()
        high.close()
        with (
            remoting_door(tmp_path, broker_port=port, vip_port=vip) as door,
            RemotingClient(("127.0.0.1", vip)) as old,
        ):
            door.create("orders", queues=1)
            old.done(Code.SEND_MESSAGE_V2, sending(), b"from afar")
            with door.client() as client:
                pulled = client.done(Code.PULL_MESSAGE, pulling())
            assert bodies(pulled) == [b"from afar"]
            assert set(door.front.doors) == {"namesrv", "broker", "vip"}


def test_where_it_is_taken_the_broker_serves_without_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with two_ports() as (low, high):
        vip, port = low.getsockname()[1], high.getsockname()[1]
        high.close()
        with (
            remoting_door(tmp_path, broker_port=port, vip_port=vip) as door,
            door.client() as client,
        ):
            client.done(Code.GET_BROKER_CLUSTER_INFO)
            assert set(door.front.doors) == {"namesrv", "broker"}
        assert f"port {vip} cannot be opened" in caplog.text


def test_a_broker_on_another_port_has_none(tmp_path: Path) -> None:
    with remoting_door(tmp_path) as door:
        assert set(door.front.doors) == {"namesrv", "broker"}
