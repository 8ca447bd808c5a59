"""A tier holds scheduled messages elsewhere: what a shard asks of it, and what it asks of the shard.

    what it holds       counts by hour and topic.  Ids, keys and bodies are read where the messages are, by somebody
                        else, who names what was found in the command (`protocol.tier_commands.Elsewhere`)
    whom it makes wait  its steps are records of the log.  From the frame that has one until that is applied
                        (`Shard.tier_moves`), nothing else may change what the step is about: `broker.waits` says who
                        waits
    what it gives back  an hour of a topic, as an adoption that is a promotion

Every change comes from a record of the log, so a replay comes to the same state.  A shard has one tier; which one is
said where the shard is made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from horolog.delay.damage import Damaged
from horolog.errors import HorologError
from horolog.protocol.commands import Recall, RecallMany, Reschedule
from horolog.protocol.tier_commands import TierQuestion, TierStep
from horolog.storage.api import Storage

if TYPE_CHECKING:
    from horolog.delay.store import DelayStore

_APP = "promote"


class Step(NamedTuple):
    """A step of a tier, as its OFFLOAD record says it."""

    fields: dict[str, Any]  # the JSON
    table: bytes


class Promotion(NamedTuple):
    """An hour of a topic that comes back.  In a log it is an adoption with this name, `app` and version `hour`."""

    offload_id: int  # of the offload with which it went
    hour: int
    topic: int

    @property
    def app(self) -> str:
        """The app under which hours of an offload's topic are promoted, one after the other."""
        return f"{_APP}:{self.offload_id}:{self.topic}"

    @staticmethod
    def of(app: str, version: int) -> Promotion | None:
        """The promotion that an adoption of this name is; None if it is none."""
        parts = app.split(":")
        if len(parts) != 3 or parts[0] != _APP or not (parts[1] + parts[2]).isdigit():
            return None
        return Promotion(int(parts[1]), version, int(parts[2]))


class TierHost(Protocol):
    """What a tier asks of the shard that it belongs to."""

    delay: DelayStore

    @property
    def log_id(self) -> int:
        """The id of the shard's log."""
        ...

    @property
    def is_stalled(self) -> bool:
        """Whether committed messages cannot be filed, for want of space."""
        ...

    def topic_name(self, topic_id: int) -> str:
        """The name of a topic, which must be there."""
        ...

    def append_step(self, step: Step, wall_ms: int) -> None:
        """Log a step; it is applied when that is committed."""
        ...


class Tier(Protocol):
    """Where scheduled messages are that the disk of the shard does not have."""

    name: str  # in sentences, and of its part of a checkpoint
    problem: str  # why what is due soon cannot come back; "": it can

    # --- what it holds ------------------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        """Messages that wait there."""
        ...

    @property
    def next_hour(self) -> int | None:
        """The first hour of which something waits there."""
        ...

    def by_hour(self, topic: int | None) -> dict[int, int]:
        """Hour → what waits."""
        ...

    def in_hour(self, hour: int, topic: int | None) -> int:
        """What waits of one hour."""
        ...

    def by_topic(self) -> dict[int, int]:
        """Topic → what waits."""
        ...

    def holds(self, topic: int, due_ms: int, position: int) -> bool:
        """Whether a message of that origin, which is not here, waits there."""
        ...

    # --- recalls: what was found there ----------------------------------------------------------------

    def claim(self, topic: int, command: Recall | Reschedule) -> npt.NDArray[Any]:
        """Those of the rows that a command names that still wait."""
        ...

    def unseen(self, topic: int, command: Recall | Reschedule | RecallMany) -> HorologError | None:
        """Why somebody has to look there first, as a refusal for whoever cannot; None: nobody has to.

        IN_TIER if nobody has looked; TOO_MANY_REQUESTS if what is meant may have come since.  The rows of a window
        are recalled before it (`RecallRows`).
        """
        ...

    def waits(self, rows: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """Which of these rows wait there."""
        ...

    def recalled(self, rows: npt.NDArray[Any], *, moved: bool = False, done: int = 0) -> Step:
        """The step that recalls, or moves, rows that wait; IN_TIER if no more can be remembered.

        done  how many were recalled before them, for the error
        """
        ...

    # --- steps ----------------------------------------------------------------------------------------

    @property
    def is_taking(self) -> bool:
        """Whether it is about to take what is frozen in the far store."""
        ...

    def decide(self, host: TierHost, command: TierStep | TierQuestion, wall_ms: int) -> object:
        """The result that the command's docstring names; a step is appended."""
        ...

    def is_sealing(self, store: DelayStore, offload_id: int) -> bool:
        """Whether something that is frozen for that offload is still being written as runs."""
        ...

    def is_contended(self, store: DelayStore) -> bool:
        """Whether recalls of what it is about to take are appended and not applied."""
        ...

    def apply(self, store: DelayStore, step: Step, end: int, *, is_whole: bool) -> int:
        """Carry out a step whose frame ends at `end`; gives how many messages it recalled.

        is_whole  all that lies before it in the log is filed (the disk has not been full)
        """
        ...

    def follows(self, step: Step | Promotion) -> bool:
        """Whether a step, or what comes back, follows from the steps before it: it may not, if some were given up."""
        ...

    def note_recalled(self, store: DelayStore, refs: npt.NDArray[np.int64]) -> None:
        """These messages, which are here, are recalled or moved: the tier may be about to take them."""
        ...

    # --- what it gives back -----------------------------------------------------------------------------

    def check_promotion(self, promotion: Promotion, topic: int, rows: int) -> None:
        """BAD_REQUEST if an adoption brings not exactly what waits, or an hour before its turn."""
        ...

    def came_back(self, promotion: Promotion) -> None:
        """It is adopted: it is here again."""
        ...

    # --- checkpoints ------------------------------------------------------------------------------------

    def forget(self, log_start: int) -> None:
        """Drop what nothing speaks of any more: neither the log from there on, nor what waits."""
        ...

    @property
    def state_header_bytes(self) -> int:
        """Length of the header of a state file; its last 8 bytes are the CRC-32 of what follows it, and its own."""
        ...

    def state_file(self) -> tuple[str, bytes] | None:
        """Name under `runs` and content of the next state file, if one is needed; `registry` speaks of it."""
        ...

    def registry(self) -> dict[str, Any]:
        """Its part of a checkpoint's registry."""
        ...

    def checkpoint_failed(self) -> None:
        """The checkpoint that `state_file` was for is not there."""
        ...

    def restore_from(
        self, storage: Storage, directory: str, registry: dict[str, Any]
    ) -> list[Damaged]:
        """Take over what a checkpoint names; gives what cannot be read."""
        ...

    def check_invariants(self) -> None:
        """AssertionError if it contradicts itself."""
        ...


def state_name(name: str, version: int) -> str:
    """File name of one version of a tier's state."""
    return f"{name}.state.{version:010d}"


def state_files(registry: dict[str, Any]) -> set[str]:
    """Names under `runs` that the far store's part of a checkpoint's registry needs for its tier.

    A part of it that has a version is that of a tier.
    """
    parts = ((name, part) for name, part in registry.items() if isinstance(part, dict))
    return {state_name(name, part["version"]) for name, part in parts if part.get("version")}
