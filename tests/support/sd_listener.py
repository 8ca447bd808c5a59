"""The service manager's end of sd_notify."""

from __future__ import annotations

import socket


class Listener:
    """The socket of the service manager: a path, or a name in the abstract namespace ("@…")."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind("\0" + address[1:] if address.startswith("@") else address)

    def next(self, timeout_s: float = 30.0) -> dict[str, str]:
        """Return the next datagram; raise TimeoutError if none comes."""
        self.socket.settimeout(timeout_s)
        lines = self.socket.recv(65_536).decode().split("\n")
        return dict(line.split("=", 1) for line in lines)

    def until(self, key: str, timeout_s: float = 30.0) -> dict[str, str]:
        """Return the next datagram with this key."""
        while key not in (said := self.next(timeout_s)):
            pass
        return said

    def drain(self) -> None:
        """Discard the datagrams that have come."""
        self.socket.setblocking(False)
        try:
            while self.socket.recv(65_536):
                pass
        except BlockingIOError:
            return

    def __enter__(self) -> Listener:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()
