"""Assignment of queues to consumers that leave it to the broker.

These are pop consumers, and consumers of RocketMQ 5.x that ask for it.  In mode PULL each queue
belongs to one client of the group, and all clients come to the same result as if they divided the
queues by themselves.  In mode POP every client takes from all queues: queue −1.

Example: 5 queues, clients a, b, c.  AVG gives a 0 1, b 2 3, c 4; AVG_BY_CIRCLE a 0 3, b 1 4, c 2.
"""

from __future__ import annotations

from collections.abc import Sequence

from horolog.errors import refused

PULL, POP = "PULL", "POP"
ANY_QUEUE = -1
_STRATEGIES = ("AVG", "AVG_BY_CIRCLE")


def share(strategy: str, queues: int, client_id: str, clients: Sequence[str]) -> list[int]:
    """Return the queues that a strategy assigns to a client; none if it is not in `clients`.

    BAD_REQUEST for an unknown strategy.
    """
    if strategy not in _STRATEGIES:
        raise refused(
            "strategyName",
            f"{strategy[:40]!r}; there are {' and '.join(_STRATEGIES)}",
            ", ".join(_STRATEGIES),
        )
    ordered = sorted(clients)
    if client_id not in ordered:
        return []
    at, count = ordered.index(client_id), len(ordered)
    if strategy == "AVG_BY_CIRCLE":
        return list(range(at, queues, count))
    each, more = divmod(queues, count)
    first = at * each + min(at, more)
    return list(range(first, first + each + (at < more)))


def check_mode(mode: object) -> str:
    """Return the mode if it is PULL or POP; raise BAD_REQUEST otherwise."""
    if mode not in (PULL, POP):
        raise refused("mode", f"{str(mode)[:40]!r}; there are {PULL} and {POP}", f"{PULL}, {POP}")
    return str(mode)
