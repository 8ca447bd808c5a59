"""Commands of a tier, which holds scheduled messages elsewhere; see `delay.tier`.

An offload moves messages that are due far ahead into the tier.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy.typing as npt

from horolog.errors import HorologError


@dataclass(slots=True, frozen=True)
class BeginOffload:
    """Freeze messages due at or after `from_ms`, or continue the open offload of the app.

    Result: `OffloadView`.
    """

    app: str
    from_ms: int


@dataclass(slots=True, frozen=True)
class FreezeOffload:
    """Wait until all messages of an offload are in runs, and remember recalls of them from then on.

    Result: `OffloadView`.
    """

    offload_id: int


@dataclass(slots=True, frozen=True)
class CommitOffload:
    """Note that the tier has all rows of the frozen runs, which the caller has compared.

    Result: `OffloadView`.
    """

    offload_id: int
    rows: int
    uri: str


@dataclass(slots=True, frozen=True)
class AbortOffload:
    """Thaw what an offload froze.  Result: bool, whether there was something to abort."""

    offload_id: int


@dataclass(slots=True, frozen=True)
class DescribeOffload:
    """Ask for one offload, with its frozen runs.  Result: `OffloadView`."""

    offload_id: int


@dataclass(slots=True, frozen=True)
class DescribeTier:
    """Ask for what waits in the tier.  Result: `TierView`."""

    to_ms: int  # hours that begin before this time are listed


@dataclass(slots=True, frozen=True)
class ListRecalled:
    """List the recalled rows of an offload, or of one hour of it, for a reader to leave out.

    Result: list[(position, row)].
    """

    offload_id: int
    hour: int | None = None


@dataclass(slots=True, frozen=True)
class TellTierProblem:
    """Report why the tier cannot be read, for the broker's health; "": it can be read.

    Result: None.
    """

    why: str


class TierRow(NamedTuple):
    """A message as a row of the tier."""

    offload_id: int
    position: int  # of the origin
    row: int
    due_ms: int


class TierPlace(NamedTuple):
    """Hours of one offload and topic in which messages wait, for a query that needs their rows."""

    uri: str
    offload_id: int
    topic: int
    hours: list[int]


class Elsewhere(NamedTuple):
    """Copies of one message that were found in the tier.

    looked   ids of the offloads that were searched
    records  the record of each row, as the tier has it; only a reschedule needs the records
    """

    rows: tuple[TierRow, ...]
    looked: tuple[int, ...] = ()
    records: tuple[bytes, ...] = ()


@dataclass(slots=True, frozen=True)
class LookElsewhere:
    """Answer to a recall or reschedule of messages that a tier may have, before it is searched.

    Nothing is changed.  Search the tier, and repeat the command with what was found.

    refusal   for a caller that cannot search the tier
    messages  of a recall by key: (message id, due ms) of the matching messages that the core knows
    """

    refusal: HorologError
    messages: tuple[tuple[str, int], ...] = ()


@dataclass(slots=True, frozen=True)
class RecallRows:
    """Recall those rows of the tier that still wait.  Result: a mask, `npt.NDArray[np.bool_]`.

    rows     as the tier names its rows, few enough for one step
    dry_run  only return the mask
    done     how many rows were recalled by earlier commands, for the error text
    """

    rows: npt.NDArray[Any]
    dry_run: bool = False
    done: int = 0


class FrozenView(NamedTuple):
    """Frozen rows [first, stop) of a run.

    removed  a bit for each row, packed, little-endian; b"": no row is removed
    adopted  for an adopted run: position of its adoption, and the row there of the file's row 0
    """

    path: str  # in the data directory
    first: int
    stop: int
    removed: bytes
    adopted: tuple[int, int] | None = None


@dataclass(slots=True)
class OffloadView:
    """State of an offload; `stage` is a word of the tier for its progress."""

    offload_id: int
    app: str
    from_ms: int
    stage: str
    uri: str = ""
    rows: int = 0
    waiting: int = 0  # messages that wait in the tier
    log_id: int = 0
    runs: list[FrozenView] = field(default_factory=list)
    committed_ms: int = 0  # since when its messages wait in the tier; 0: they do not, or unknown


class TierHour(NamedTuple):
    """How many messages of an offload, hour and topic wait in the tier."""

    offload_id: int
    hour: int
    topic: int
    topic_name: str
    waiting: int

    def row(self) -> dict[str, Any]:
        """Return the fields for JSON, where the offload id is called `number`."""
        fields = self._asdict()
        return {"number": fields.pop("offload_id"), **fields}


@dataclass(slots=True)
class TierView:
    """All offloads, and their waiting messages in each hour that was asked for, ascending."""

    waiting: int
    offloads: list[OffloadView]
    hours: list[TierHour]


TierStep = BeginOffload | FreezeOffload | CommitOffload | AbortOffload
TierQuestion = DescribeOffload | DescribeTier | ListRecalled
TierCommand = TierStep | TierQuestion | RecallRows | TellTierProblem
