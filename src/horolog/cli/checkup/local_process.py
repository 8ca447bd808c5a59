"""The broker's process, found by its admin port: on this machine only, by /proc (Linux)."""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import NamedTuple

_LISTENS = "0A"
_PROC = Path("/proc")
_SOCKET = re.compile(r"socket:\[(\d+)\]")
_Address = IPv4Address | IPv6Address


class Listener(NamedTuple):
    """A socket that waits for connections."""

    address: _Address
    port: int
    inode: str


class LocalProcess(NamedTuple):
    """The kernel's facts about the broker's process.

    files_max   its limit on open files: the soft one, which a broker sets itself
    open_ports  (address, port) that other machines can reach
    files_hard  what `files_max` may be raised to; 0: not known
    """

    pid: int
    files: int
    files_max: int
    open_ports: list[tuple[str, int]]
    files_hard: int = 0


def listening_on(host: str, port: int) -> LocalProcess | None:
    """Return the process that listens on a port; None if it is elsewhere, or of another user."""
    try:
        if host != "localhost" and not ip_address(host).is_loopback:
            return None
    except ValueError:
        return None
    with suppress(OSError, ValueError):
        listeners = list(_listeners())
        inodes = {each.inode for each in listeners if each.port == port}
        for pid in _pids():
            if (owned := _sockets(pid)) & inodes:
                return _describe(pid, [each for each in listeners if each.inode in owned])
    return None


def _describe(pid: int, listeners: list[Listener]) -> LocalProcess | None:
    limits = (_PROC / str(pid) / "limits").read_text()
    found = re.search(r"^Max open files +(\S+) +(\S+)", limits, re.MULTILINE)
    files_max, files_hard = (
        int(limit) if limit.isdigit() else 0 for limit in (found.groups() if found else ("", ""))
    )
    files = len(os.listdir(_PROC / str(pid) / "fd"))
    reachable = sorted(
        (str(each.address), each.port) for each in listeners if not each.address.is_loopback
    )
    return LocalProcess(pid, files, files_max, reachable, files_hard)


def _pids() -> Iterator[int]:
    return (int(name) for name in os.listdir(_PROC) if name.isdigit())


def _sockets(pid: int) -> set[str]:
    """Return the inodes of a process's sockets; empty if the process may not be inspected."""
    found = set()
    with suppress(OSError):
        for entry in os.scandir(_PROC / str(pid) / "fd"):
            with suppress(OSError):
                if match := _SOCKET.fullmatch(os.readlink(entry.path)):
                    found.add(match[1])
    return found


def _listeners() -> Iterator[Listener]:
    """Read /proc/net/tcp and tcp6: `sl local_address rem_address st … inode`."""
    for name in ("tcp", "tcp6"):
        with suppress(FileNotFoundError):
            for line in (_PROC / "net" / name).read_text().splitlines()[1:]:
                words = line.split()
                if words[3] == _LISTENS:
                    address, _, port = words[1].partition(":")
                    yield Listener(address_of(address), int(port, 16), words[9])


def address_of(text: str) -> _Address:
    """Decode an address of /proc: 32-bit words, each in the machine's own byte order."""
    words = bytes.fromhex(text)
    packed = struct.pack(f"={len(words) // 4}I", *struct.unpack(f">{len(words) // 4}I", words))
    address = ip_address(packed)
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address
