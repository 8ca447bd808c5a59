"""Base class of clients that act in some turns of a simulation, by random numbers of their own."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random


class Actor:
    """A client that acts in a share of all turns.

    seed    of its own random numbers, so that it does not change what other clients do
    shares  the shares of turns from which it draws one
    """

    def __init__(self, seed: int, shares: Sequence[float]) -> None:
        self._random = Random(seed)
        self._share = self._random.choice(shares)

    def wants_turn(self) -> bool:
        """Return whether the client acts in this turn."""
        return self._random.random() < self._share
