"""Warnings about settings that are allowed but dangerous, each a sentence that says what to do."""

from __future__ import annotations

from ipaddress import ip_address


def exposures(host: str, *, guarded: bool, flush: str) -> list[str]:
    """Return warnings about settings that a careful operator would not use.

    host     address that clients connect to
    guarded  whether there is an access file
    flush    as `--flush`
    """
    found = []
    if not guarded and not _is_loopback(host):
        found.append(
            f"host is {host} and there is no access file: everybody who reaches it may do "
            "everything; make one (--access, docs/guides/access.md) or listen on 127.0.0.1"
        )
    if flush == "os":
        found.append(
            "flush is os: a power loss may take what was answered; use sync, or interval if half a"
            " second may be lost"
        )
    return found


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
