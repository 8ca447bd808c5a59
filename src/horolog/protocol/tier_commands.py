"""Commands of a tier, which holds messages elsewhere; what all of it does says `delay.tier`.

An offload takes what is due far ahead there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy.typing as npt

from horolog.errors import HorologError


@dataclass(slots=True, frozen=True)
class BeginOffload:
    """Freeze what is due at or after `from_ms`, or go on with the open offload of that app; gives `OffloadView`."""

    app: str
    from_ms: int


@dataclass(slots=True, frozen=True)
class FreezeOffload:
    """Wait until all of it lies in runs, and remember from there on what is recalled; gives `OffloadView`."""

    offload_id: int


@dataclass(slots=True, frozen=True)
class CommitOffload:
    """The tier has all rows of the frozen runs, which the caller has compared; gives `OffloadView`."""

    offload_id: int
    rows: int
    uri: str


@dataclass(slots=True, frozen=True)
class AbortOffload:
    """Thaw what is frozen; gives whether there was something to abort."""

    offload_id: int


@dataclass(slots=True, frozen=True)
class DescribeOffload:
    """One offload, with its frozen runs; gives `OffloadView`."""

    offload_id: int


@dataclass(slots=True, frozen=True)
class DescribeTier:
    """What waits in the tier; gives `TierView`."""

    to_ms: int  # hours that begin before it are listed


@dataclass(slots=True, frozen=True)
class ListRecalled:
    """What was recalled of an offload and hour, so that it is left out; gives list[(position, row)]."""

    offload_id: int
    hour: int | None = None


@dataclass(slots=True, frozen=True)
class TellTierProblem:
    """Why the tier cannot be read, for the broker's health; "": it can; gives None."""

    why: str


class TierRow(NamedTuple):
    """A message as the tier has it."""

    offload_id: int
    position: int  # origin
    row: int
    due_ms: int


class TierPlace(NamedTuple):
    """Hours of one offload and topic of which something waits, and that somebody asks for."""

    uri: str
    offload_id: int
    topic: int
    hours: list[int]


class Elsewhere(NamedTuple):
    """What was found of one message where a tier has it.

    looked   offloads that were searched
    records  of each of the rows, as they stand there; only a reschedule needs them
    """

    rows: tuple[TierRow, ...]
    looked: tuple[int, ...] = ()
    records: tuple[bytes, ...] = ()


@dataclass(slots=True, frozen=True)
class LookElsewhere:
    """The answer to a recall or reschedule of what a tier may have, where nobody has looked; nothing is changed.

    Look there, and ask again with what was found.

    refusal   for whoever cannot look there
    messages  of a recall by key: (message id, due ms) of the messages that it means, as far as the core knows them
    """

    refusal: HorologError
    messages: tuple[tuple[str, int], ...] = ()


@dataclass(slots=True, frozen=True)
class RecallRows:
    """Recall those of these rows of the tier that wait; gives which, as `npt.NDArray[np.bool_]`.

    rows     as the tier names its rows, and not too many for one step
    dry_run  only say which
    done     how many were recalled before them, for the error
    """

    rows: npt.NDArray[Any]
    dry_run: bool = False
    done: int = 0


class FrozenView(NamedTuple):
    """Rows [first, stop) of a run that is frozen.

    gone     a bit for each row, packed, little-endian; b"": none
    adopted  of an adopted run: position of its adoption, and number there of the file's row 0
    """

    path: str  # in the data directory
    first: int
    stop: int
    gone: bytes
    adopted: tuple[int, int] | None = None


@dataclass(slots=True)
class OffloadView:
    """An offload; `stage` is a word of the tier for how far it is."""

    offload_id: int
    app: str
    from_ms: int
    stage: str
    uri: str = ""
    rows: int = 0
    waiting: int = 0  # in the tier
    log_id: int = 0
    runs: list[FrozenView] = field(default_factory=list)
    committed_ms: int = 0  # since when its messages wait there; 0: they do not, or it is not known


class TierHour(NamedTuple):
    """What waits of an offload, hour and topic."""

    offload_id: int
    hour: int
    topic: int
    topic_name: str
    waiting: int

    def row(self) -> dict[str, Any]:
        """As JSON, where the offload is called `number`."""
        fields = self._asdict()
        return {"number": fields.pop("offload_id"), **fields}


@dataclass(slots=True)
class TierView:
    """All offloads, and what waits of them in the hours that were asked for, ascending."""

    waiting: int
    offloads: list[OffloadView]
    hours: list[TierHour]


TierStep = BeginOffload | FreezeOffload | CommitOffload | AbortOffload
TierQuestion = DescribeOffload | DescribeTier | ListRecalled
TierCommand = TierStep | TierQuestion | RecallRows | TellTierProblem
