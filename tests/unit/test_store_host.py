"""The address that messages name as their store is one that other machines reach."""

from __future__ import annotations

import socket

import pytest

from horolog.config import Settings
from horolog.server.store_host import store_host

NAMES = {"broker.example.org": "198.51.100.7", "203.0.113.9": "203.0.113.9"}


def found_for(**given: object) -> str:
    settings = Settings(broker_port=10_911, grpc_port=8_081, **given)  # type: ignore[arg-type]  # as given

    def look_up(name: str) -> bytes | None:
        return socket.inet_aton(NAMES[name]) if name in NAMES else None

    found = store_host(settings, look_up, lambda: socket.inet_aton("10.0.0.5"))
    return f"{socket.inet_ntoa(found[:4])}:{int.from_bytes(found[4:])}"


@pytest.mark.parametrize(
    ("given", "address"),
    [
        ({}, "127.0.0.1:10911"),
        ({"host": "10.1.2.3"}, "10.1.2.3:10911"),
        ({"host": "0.0.0.0"}, "10.0.0.5:10911"),
        ({"host": "::"}, "10.0.0.5:10911"),
        ({"host": "::1"}, "127.0.0.1:10911"),
        ({"host": "0.0.0.0", "advertised_host": "203.0.113.9"}, "203.0.113.9:10911"),
        ({"host": "0.0.0.0", "advertised_host": "broker.example.org"}, "198.51.100.7:10911"),
        ({"host": "0.0.0.0", "advertised_host": "unknown.example.org"}, "10.0.0.5:10911"),
        ({"host": "10.1.2.3", "advertised_host": "unknown.example.org"}, "10.1.2.3:10911"),
        ({"remoting": False}, "127.0.0.1:8081"),
    ],
)
def test_which_address_it_is(given: dict[str, object], address: str) -> None:
    assert found_for(**given) == address


def test_a_machine_is_found_without_help() -> None:
    found = store_host(Settings(host="0.0.0.0", advertised_host="localhost"))
    assert found[:4] == b"\x7f\0\0\1"
    assert any(store_host(Settings(host="0.0.0.0"))[:4])
