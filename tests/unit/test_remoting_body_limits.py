"""Limits of what the bodies of 4.x requests may hold: at each limit, and one above it."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest

from horolog.errors import HorologError
from horolog.limits import ACK_BITS_BYTES_MAX, HEARTBEAT_NAME_MAX
from horolog.protocol.remoting.heartbeat import read_heartbeat
from horolog.protocol.remoting.pop import handles_of_batch


def acks(size: int) -> dict[str, Any]:
    """A batch acknowledgement of the last message of a bit set of that many bytes."""
    bits = b64encode(bytes(size - 1) + b"\x80").decode()
    entry = {"c": "g", "t": "t", "it": 1, "pt": 1, "q": 0, "rq": 0, "so": 0, "b": bits}
    return {"brokerName": "b", "acks": [entry]}


def test_names_in_heartbeats_are_bounded() -> None:
    longest = "c" * HEARTBEAT_NAME_MAX
    assert read_heartbeat({"clientID": longest}).client_id == longest
    with pytest.raises(HorologError, match="1025 characters; at most 1024 are allowed"):
        read_heartbeat({"clientID": longest + "c"})


def test_the_bit_sets_of_acknowledgements_are_bounded() -> None:
    ((_, _, [handle]),) = handles_of_batch(acks(ACK_BITS_BYTES_MAX))
    assert handle.endswith(" 8191")
    with pytest.raises(HorologError, match="no set of bits"):
        handles_of_batch(acks(ACK_BITS_BYTES_MAX + 1))
