"""What frames change when they are committed: appended, and waiting to be applied."""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from horolog.broker.key_columns import KeyColumns
from horolog.broker.topics import Topic
from horolog.delay.far.adopted import Adoption
from horolog.delay.filing import Unfiled
from horolog.delay.state import EntryState
from horolog.delay.tier import Step


class Settled(NamedTuple):
    """Scheduled messages, by reference, that a frame hands over, recalls or moves."""

    refs: npt.NDArray[np.int64]
    state: EntryState
    lanes: npt.NDArray[Any]  # of each, 0 for none


class Applied(NamedTuple):
    """What a frame changes when it is committed; made as it is appended, or by a replay, and given to `Shard.apply`.

    end      log position after the frame
    units    of messages that become visible: topic, queue id, UNIT rows in the order of their queue offsets
    unfiled  scheduled messages, which the delay store is to file
    settled  scheduled messages that were filed before, and wait no longer
    keyed    rows of the key index
    adopted  files that become part of the far store
    step     of the tier
    """

    end: int
    units: list[tuple[Topic, int, npt.NDArray[Any]]]
    unfiled: Unfiled | None
    settled: list[Settled]
    keyed: KeyColumns | None = None
    adopted: Adoption | None = None
    step: Step | None = None

    @property
    def asks_what_waits(self) -> bool:
        """Whether all that was committed before has to be filed first; what is handed over was filed long ago."""
        if self.adopted is not None or self.step is not None:
            return True
        return any(settled.state is not EntryState.HANDED_OVER for settled in self.settled)

    @property
    def moves_tier(self) -> bool:
        """Whether it changes what the tier has."""
        if self.step is not None:
            return True
        return self.adopted is not None and self.adopted.promotion is not None


class Uncommitted(deque[Applied]):
    """What frames that are appended and not applied will change, in log order."""

    def __init__(self) -> None:
        super().__init__()
        self.tier_steps = 0  # of them that change what the tier has; every recall asks
        self.adoptions = 0

    def append(self, change: Applied) -> None:
        """A frame is appended."""
        super().append(change)
        self.tier_steps += change.moves_tier
        self.adoptions += change.adopted is not None

    def popleft(self) -> Applied:
        """The oldest is applied now."""
        change = super().popleft()
        self.tier_steps -= change.moves_tier
        self.adoptions -= change.adopted is not None
        return change
