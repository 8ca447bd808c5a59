"""The IPv4 address and port that messages name as their store.

4.x clients connect to the store host: Java clients to look a message up by the id that the broker
gave it, Go's orderly consumers to give up a message.  So other machines must be able to reach it.
"""

from __future__ import annotations

import functools
import socket
from collections.abc import Callable

from horolog.config import Settings

_LOOPBACK = b"\x7f\0\0\1"
_ELSEWHERE = ("192.0.2.1", 9)  # an address for documentation; nothing is sent to it


def store_host(
    settings: Settings,
    resolve: Callable[[str], bytes | None] | None = None,
    machine_address: Callable[[], bytes] | None = None,
) -> bytes:
    """Return 4 bytes of address and 4 of port of the door that 4.x clients use.

    The address is the advertised one, or the one that an advertised name has when the process
    starts; otherwise the address of `host`; if `host` means all addresses of the machine, the one
    that has a route to other machines.
    """
    advertised = (resolve or _resolve)(settings.advertised_host)
    address = advertised or _listening_address(settings.host, machine_address or _machine_address)
    port = settings.broker_port if settings.remoting else settings.grpc_port
    return address + port.to_bytes(4, "big")


def _listening_address(host: str, machine_address: Callable[[], bytes]) -> bytes:
    try:
        address = socket.inet_aton(host)
    except OSError:  # an IPv6 address
        return machine_address() if host == "::" else _LOOPBACK
    return address if any(address) else machine_address()


@functools.cache
def _resolve(name: str) -> bytes | None:
    if not name:
        return None
    try:
        return socket.inet_aton(socket.gethostbyname(name))
    except (OSError, UnicodeError):  # unknown, or only an IPv6 name
        return None


def _machine_address() -> bytes:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_ELSEWHERE)  # sends nothing; looks up a route
        except OSError:
            return _LOOPBACK
        return socket.inet_aton(probe.getsockname()[0])
