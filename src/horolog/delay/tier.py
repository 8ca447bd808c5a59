"""The protocol of a tier, which holds scheduled messages elsewhere, and of its host, the shard.

    what it holds       Counts by hour and topic.  Ids, keys and bodies are read where the messages
                        are, outside the core: the command names the rows that were found
                        (`protocol.tier_commands.Elsewhere`).
    whom it makes wait  The steps of a tier are records of the log.  From the frame with a step
                        until the step is applied (`Shard.is_tier_changing`), nothing else may
                        change what the step is about: `broker.waits` says who waits.
    what it gives back  An hour of a topic, as an adoption that is a promotion.

Every change comes from a record of the log, so a replay comes to the same state.  A shard has one
tier, chosen where the shard is made.
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
from horolog.units import parse_unsigned

if TYPE_CHECKING:
    from collections.abc import Sequence

    from horolog.delay.far.buffer import FarBuffer
    from horolog.delay.store import DelayStore

_APP = "promote"


class Step(NamedTuple):
    """A step of a tier, as its OFFLOAD record states it."""

    fields: dict[str, Any]  # the JSON part
    table: bytes


class Promotion(NamedTuple):
    """An hour of a topic that comes back; in the log, an adoption by `app` of version `hour`."""

    offload_id: int  # the offload that took the hour into the tier
    hour: int
    topic: int

    @property
    def app(self) -> str:
        """The app name under which hours of an offload's topic are promoted, one after another."""
        return f"{_APP}:{self.offload_id}:{self.topic}"

    @staticmethod
    def of(app: str, version: int) -> Promotion | None:
        """Parse a promotion from the name of an adoption; None if the adoption is not one."""
        kind, *words = app.split(":")
        numbers = [parse_unsigned(word) for word in words]
        match numbers:
            case [int(offload_id), int(topic)] if kind == _APP:
                return Promotion(offload_id, version, topic)
        return None


class TierHost(Protocol):
    """The shard of a tier, as far as the tier uses it."""

    delay: DelayStore

    @property
    def log_id(self) -> int:
        """Id of the shard's log."""
        ...

    @property
    def is_stalled(self) -> bool:
        """Whether committed messages cannot be filed, for want of space."""
        ...

    def topic_name(self, topic_id: int) -> str:
        """Return the name of a topic; the topic must exist."""
        ...

    def append_step(self, step: Step, wall_ms: int) -> None:
        """Append a step to the log; the step is applied once it is committed."""
        ...


class Retraced(Protocol):
    """Steps of the past, read again in log order while far buffers are filled again."""

    def apply(self, step: Step, rebuilt: Sequence[FarBuffer]) -> None:
        """End the messages in the buffers that the step took into the tier."""
        ...

    def apply_after(self, step: Step) -> None:
        """End the messages in the buffers that a step above the checkpoint ends in the tier.

        A replay applies the step to all else.
        """
        ...

    def promoted(self, promotion: Promotion) -> None:
        """End the messages in the buffers that a promotion brought back with other rows."""
        ...


class Tier(Protocol):
    """A place that holds scheduled messages that are not on the shard's disk."""

    name: str  # in sentences, and for the tier's part of a checkpoint
    problem: str  # why messages due soon cannot come back; "": they can

    # --- what it holds ----------------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        """Messages that wait in the tier."""
        ...

    @property
    def next_hour(self) -> int | None:
        """First hour of which something waits in the tier."""
        ...

    def by_hour(self, topic: int | None) -> dict[int, int]:
        """Count the messages that wait in the tier, by hour, of one topic or of all."""
        ...

    def in_hour(self, hour: int, topic: int | None) -> int:
        """Count the messages of one hour that wait in the tier."""
        ...

    def by_topic(self) -> dict[int, int]:
        """Count the messages that wait in the tier, by topic id."""
        ...

    def holds(self, topic: int, due_ms: int, position: int) -> bool:
        """Return whether a message of that origin, which is not here, waits in the tier."""
        ...

    # --- recalls: what was found there ------------------------------------------------------------

    def waiting_rows(self, topic: int, command: Recall | Reschedule) -> npt.NDArray[Any]:
        """Return the tier's rows that a command names and that still wait."""
        ...

    def why_needs_search(
        self, topic: int, command: Recall | Reschedule | RecallMany
    ) -> HorologError | None:
        """Return why a command needs a search in the tier first, as an error; None: it needs none.

        The error is for callers that cannot search: IN_TIER if the command names no search;
        TOO_MANY_REQUESTS if messages it means may have come to the tier since the search.  The rows
        of a window are recalled before the window (`RecallRows`).
        """
        ...

    def waits(self, rows: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """Return which of these rows wait in the tier."""
        ...

    def recall_step(self, rows: npt.NDArray[Any], *, moved: bool = False, done: int = 0) -> Step:
        """Build the step that recalls (or moves) waiting rows; IN_TIER: there is no room for more.

        done  how many rows were recalled before these, for the error
        """
        ...

    # --- steps ------------------------------------------------------------------------------------

    @property
    def is_taking(self) -> bool:
        """Whether the tier is about to take what is frozen in the far store."""
        ...

    def decide(self, host: TierHost, command: TierStep | TierQuestion, wall_ms: int) -> object:
        """Decide a command, append its step, if any; return the result that the command names."""
        ...

    def is_sealing(self, store: DelayStore, offload_id: int) -> bool:
        """Return whether messages frozen for that offload are still being written as runs."""
        ...

    def is_contended(self, store: DelayStore) -> bool:
        """Return whether recalls of what the tier is about to take are appended and not applied."""
        ...

    def apply(self, store: DelayStore, step: Step, end: int, *, is_whole: bool) -> int:
        """Apply a step whose frame ends at `end`; return how many messages it recalled.

        is_whole  all that lies before the step in the log is filed (the disk has not been full)
        """
        ...

    def follows(self, step: Step | Promotion) -> bool:
        """Return whether a step or promotion follows from the steps before it.

        False only if some of those steps were given up.
        """
        ...

    def note_recalled(self, store: DelayStore, refs: npt.NDArray[np.int64]) -> None:
        """Note recalled, moved or expired messages: the tier may be about to take them."""
        ...

    def retracing(self, *, is_lost: bool) -> Retraced:
        """Return what retraces the steps below a checkpoint.

        is_lost  the tier's state cannot be read: what it held waits in the buffers instead
        """
        ...

    # --- what it gives back -----------------------------------------------------------------------

    def check_promotion(self, promotion: Promotion, topic: int, rows: int) -> None:
        """Raise BAD_REQUEST unless an adoption brings exactly what waits, each hour in its turn."""
        ...

    def note_promoted(self, promotion: Promotion) -> None:
        """Record that a promotion was adopted: its messages are here again."""
        ...

    # --- checkpoints ------------------------------------------------------------------------------

    def forget(self, log_start: int) -> None:
        """Drop what is needed neither by the log from `log_start` on nor by what waits."""
        ...

    @property
    def state_header_bytes(self) -> int:
        """Length of a state file's header; its last 8 bytes are the CRC-32s of body and header."""
        ...

    def state_file(self) -> tuple[str, bytes] | None:
        """Return name (under `runs`) and content of the next state file; None: none is needed.

        The next `registry` names the file.
        """
        ...

    def registry(self) -> dict[str, Any]:
        """Return the tier's part of a checkpoint's registry."""
        ...

    def checkpoint_failed(self) -> None:
        """Note that the checkpoint for which `state_file` was called was not written."""
        ...

    def restore_from(
        self, storage: Storage, directory: str, registry: dict[str, Any]
    ) -> list[Damaged]:
        """Restore the state that a checkpoint names; return what cannot be read."""
        ...

    def check_invariants(self) -> None:
        """Raise AssertionError if the state contradicts itself."""
        ...


def state_name(name: str, version: int) -> str:
    """Return the file name of one version of a tier's state."""
    return f"{name}.state.{version:010d}"


def state_files(registry: dict[str, Any]) -> set[str]:
    """Return the names under `runs` that a checkpoint's registry needs for its tier.

    A part of the far store's registry that has a version is that of a tier.
    """
    parts = ((name, part) for name, part in registry.items() if isinstance(part, dict))
    return {state_name(name, part["version"]) for name, part in parts if part.get("version")}
