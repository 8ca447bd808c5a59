"""Whoever acts in some turns of a simulation, by chances of its own."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random


class Actor:
    """Acts in a share of all turns.

    seed    of its chances, which change nothing in what others do in the story of a seed
    shares  one of which it has
    """

    def __init__(self, seed: int, shares: Sequence[float]) -> None:
        self._random = Random(seed)
        self._share = self._random.choice(shares)

    def wants_turn(self) -> bool:
        """Whether it acts in this turn."""
        return self._random.random() < self._share
