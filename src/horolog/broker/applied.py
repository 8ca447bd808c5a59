"""The changes of frames: applied when the frames are committed, and queued until then."""

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
    """Scheduled messages, by reference, that a frame hands over, recalls, expires or moves."""

    refs: npt.NDArray[np.int64]
    state: EntryState
    lanes: npt.NDArray[Any]  # delay level of each message, 0 for none


class Applied(NamedTuple):
    """The change that a frame makes when it is committed.

    It is built when the frame is appended or replayed, and passed to `Shard.apply`.

    end      log position after the frame
    units    messages that become visible: topic, queue id, UNIT rows in the order of their queue
             offsets
    unfiled  scheduled messages that the delay store has to file
    settled  scheduled messages that were filed before and are no longer pending
    keyed    rows of the key index
    adopted  files that become part of the far store
    step     a step of the tier
    """

    end: int
    units: list[tuple[Topic, int, npt.NDArray[Any]]]
    unfiled: Unfiled | None
    settled: list[Settled]
    keyed: KeyColumns | None = None
    adopted: Adoption | None = None
    step: Step | None = None

    @property
    def needs_all_filed(self) -> bool:
        """Whether messages gathered before must be filed first.

        A hand-over needs no filing, since the messages in it were filed long ago.
        """
        if self.adopted is not None or self.step is not None:
            return True
        return any(settled.state is not EntryState.HANDED_OVER for settled in self.settled)

    @property
    def moves_tier(self) -> bool:
        """Whether the change alters which messages the tier holds."""
        if self.step is not None:
            return True
        return self.adopted is not None and self.adopted.promotion is not None


class Uncommitted(deque[Applied]):
    """Changes of frames that are appended and not applied, in log order."""

    def __init__(self) -> None:
        super().__init__()
        self.tier_steps = 0  # changes with `moves_tier`; every recall reads the count
        self.adoptions = 0

    def append(self, change: Applied) -> None:
        """Add the change of a frame that was just appended."""
        super().append(change)
        self.tier_steps += change.moves_tier
        self.adoptions += change.adopted is not None

    def popleft(self) -> Applied:
        """Remove and return the oldest change, which the caller applies now."""
        change = super().popleft()
        self.tier_steps -= change.moves_tier
        self.adoptions -= change.adopted is not None
        return change
