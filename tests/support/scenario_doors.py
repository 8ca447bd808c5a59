"""The two doors as scenarios use them: through a client of 5.x, and through one of 4.x."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from scenario import Side
from scenario_grpc import GrpcSide
from scenario_remoting import RemotingSide

from horolog.testing.broker import BrokerProcess

SIDES: dict[str, type[GrpcSide | RemotingSide]] = {"grpc": GrpcSide, "remoting": RemotingSide}


@contextmanager
def sides(broker: BrokerProcess, sender: str, receiver: str) -> Iterator[tuple[Side, Side]]:
    """Yield a client that sends, and one that receives."""
    out, into = SIDES[sender](broker), SIDES[receiver](broker)
    try:
        yield out, into
    finally:
        out.close()
        into.close()
