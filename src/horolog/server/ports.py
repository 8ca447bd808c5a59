"""Open listening ports, for doors and the admin API, with errors that name the flag."""

from __future__ import annotations

import errno
import socket

from horolog.config import Settings
from horolog.errors import ErrorCode, HorologError, refused

ADMIN_HOST = "127.0.0.1"  # not offered to other machines: authentication is optional
BACKLOG = 2_048  # connections that wait to be accepted


def port_in_use(flag: str, port: int, why: str) -> HorologError:
    """Build the error for a port that cannot be opened; it names the flag and suggests port 0."""
    return refused(
        flag, f"port {port} cannot be opened ({why}); 0 takes a free one", code=ErrorCode.CONFIG
    )


# Errors about the address, not the port.  EINVAL: a link-local address without its interface.
_ADDRESS = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.EINVAL})


def bind(host: str, port: int, flag: str) -> socket.socket:
    """Return a bound TCP socket that listens.

    Raise CONFIG: a port that is in use or not allowed names `flag`, a wrong address names `--host`.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With IPPROTO_TCP named, asyncio's own loop turns Nagle's algorithm off; otherwise a second
    # small answer waits 40 ms for an ack.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen(BACKLOG)  # at once: SO_REUSEADDR lets two sockets bind, but only one listen
    except OSError as error:
        sock.close()
        if isinstance(error, socket.gaierror) or error.errno in _ADDRESS:
            raise refused(
                "--host",
                f"{host!r} is no address of this machine ({error.strerror or error})",
                code=ErrorCode.CONFIG,
            ) from None
        why = "in use" if error.errno == errno.EADDRINUSE else (error.strerror or str(error))
        raise port_in_use(flag, port, why) from None
    return sock


def check_ports(settings: Settings) -> None:
    """Raise what `bind` raises for a port of the settings that cannot be opened now."""
    wanted = [
        (settings.host, settings.grpc_port, "--grpc-port"),
        (ADMIN_HOST, settings.admin_port, "--admin-port"),
    ]
    if settings.remoting:
        wanted.append((settings.host, settings.broker_port, "--broker-port"))
        wanted.append((settings.host, settings.namesrv_port, "--namesrv-port"))
    for host, port, flag in wanted:
        bind(host, port, flag).close()
