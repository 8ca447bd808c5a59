"""Listening ports, of doors and of the admin API: bound at once, or an error that names the flag."""

from __future__ import annotations

import errno
import socket

from horolog.errors import ErrorCode, HorologError, refused

_BACKLOG = 2_048


def port_in_use(flag: str, port: int, why: str) -> HorologError:
    """The error for a port that cannot be had; it names the flag and the way out."""
    return refused(
        flag, f"port {port} cannot be opened ({why}); 0 takes a free one", code=ErrorCode.CONFIG
    )


# The address is to blame for these, whichever port comes first; EINVAL: link-local, and without its interface.
_ADDRESS = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.EINVAL})


def bind(host: str, port: int, flag: str) -> socket.socket:
    """A bound TCP socket; a port that is taken or not allowed is CONFIG and names `flag`, an address `--host`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Named, or asyncio's own loop leaves Nagle's algorithm on, and a second small answer waits 40 ms for an ack.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen(_BACKLOG)  # at once: SO_REUSEADDR lets two sockets bind, but only one listen
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
