"""The lake as a tier of a shard: implements `delay.tier.Tier` on the state in `lake.core.state`."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from horolog.delay.damage import Damaged
from horolog.delay.store import DelayStore
from horolog.delay.tier import Promotion, Step, TierHost, state_name
from horolog.errors import HorologError, refused
from horolog.lake.core import decisions, recalls, steps
from horolog.lake.core.retracing import Retracing
from horolog.lake.core.stages import Stage
from horolog.lake.core.state import Lake, restore_lake
from horolog.lake.core.state_file import HEADER_BYTES, NAME
from horolog.protocol.commands import Recall, RecallMany, Reschedule
from horolog.protocol.tier_commands import TierQuestion, TierStep
from horolog.storage.api import Storage


class LakeTier(Lake):
    """The lake of a shard."""

    name = NAME
    problem = ""
    state_header_bytes = HEADER_BYTES

    def holds(self, topic: int, due_ms: int, position: int) -> bool:
        """Return whether a message that the delay store does not have may wait in the lake."""
        if not self.waiting or not self.may_hold(topic, due_ms, due_ms + 1):
            return False
        return not self.recalled_set.has(position, 0)

    # --- recalls ----------------------------------------------------------------------------------

    def waiting_rows(self, topic: int, command: Recall | Reschedule) -> npt.NDArray[Any]:
        """Return the LAKE_ROW rows that a command names and that still wait."""
        return recalls.waiting_rows(self, topic, command)

    def why_needs_search(
        self, topic: int, command: Recall | Reschedule | RecallMany
    ) -> HorologError | None:
        """Return why the caller must search the table first; None if it need not."""
        return recalls.why_needs_search(self, topic, command)

    def recall_step(self, rows: npt.NDArray[Any], *, moved: bool = False, done: int = 0) -> Step:
        """Build the step that recalls (or moves) waiting LAKE_ROW rows; IN_TIER if too many.

        done  messages that the command has cancelled before
        """
        recalls.check_room(self, len(rows), done)
        fields = {"step": "recalled", "moved": True} if moved else {"step": "recalled"}
        return Step(fields, rows.tobytes())

    # --- steps ------------------------------------------------------------------------------------

    @property
    def is_taking(self) -> bool:
        """Whether an offload is under way."""
        return self.open is not None

    def decide(self, host: TierHost, command: TierStep | TierQuestion, wall_ms: int) -> object:
        """Execute a command and return the result that its docstring names; append its step."""
        return decisions.decide(self, host, command, wall_ms)

    def is_sealing(self, store: DelayStore, offload_id: int) -> bool:
        """Return whether frozen messages of an offload are still being written as runs.

        Also in the stage FROZEN: after a start, messages that the checkpoint did not name are in
        buffers again.
        """
        stage = self.stage_of(offload_id)
        return stage in (Stage.SEALING, Stage.FROZEN) and steps.is_sealing(store.far)

    def is_contended(self, store: DelayStore) -> bool:
        """Return whether recalls in frozen runs are unsettled: a commit, which cuts, must wait."""
        return any(run.states.recalling for run in steps.frozen_runs(store.far))

    def apply(self, store: DelayStore, step: Step, end: int, *, is_whole: bool) -> int:
        """Apply a step whose frame ends at `end`; return how many messages it recalled."""
        return steps.apply_step(self, store, steps.step_of(*step), end, is_whole=is_whole)

    def follows(self, step: Step | Promotion) -> bool:
        """Return whether a step fits the table of stages, or a recall or promotion the counts."""
        if isinstance(step, Promotion):
            return self.count(*step) > 0
        return steps.follows(self, steps.step_of(*step))

    def note_recalled(self, store: DelayStore, refs: npt.NDArray[np.int64]) -> None:
        """Remember the frozen ones of recalled, moved or expired messages: the table has them."""
        steps.note_recalled(self, store, refs)

    def retracing(self, *, is_lost: bool) -> Retracing:
        """Return what retraces the steps below a checkpoint, for buffers that are filled again."""
        return Retracing(self, is_lost=is_lost)

    # --- what it gives back -----------------------------------------------------------------------

    def check_promotion(self, promotion: Promotion, topic: int, rows: int) -> None:
        """Raise BAD_REQUEST unless an adoption brings back exactly what waits of the next hour."""
        offload_id, hour, of_topic = promotion
        waits = self.count(offload_id, hour, of_topic)
        if of_topic != topic or not waits:
            raise refused("app", f"nothing of {promotion.app}, hour {hour}, waits in the lake")
        first = self.first_hour(offload_id, of_topic)
        if first != hour:
            raise refused("version", f"hour {first} must be promoted before hour {hour}")
        if waits != rows:
            raise refused("files", f"{rows} rows, but {waits} wait in the lake for hour {hour}")

    def note_promoted(self, promotion: Promotion) -> None:
        """Record that an hour of a topic was promoted."""
        self.apply_promotion(*promotion)

    # --- checkpoints ------------------------------------------------------------------------------

    def state_file(self) -> tuple[str, bytes] | None:
        """Return name and content of the next state file; None if none is needed."""
        content = self.capture()
        return None if content is None else (state_name(self.name, self.version), content)

    def checkpoint_failed(self) -> None:
        """Write the state again with the next checkpoint, as this one has failed."""
        self.changed = True

    def restore_from(
        self, storage: Storage, directory: str, registry: dict[str, Any]
    ) -> list[Damaged]:
        """Restore the state that a checkpoint names; return what cannot be read."""
        return restore_lake(self, storage, directory, registry)
