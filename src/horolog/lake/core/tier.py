"""The lake as a shard meets it: `delay.tier.Tier`, on what is known of the lake (`lake.core.held`)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from horolog.delay.damage import Damaged
from horolog.delay.store import DelayStore
from horolog.delay.tier import Promotion, Step, TierHost, state_name
from horolog.errors import HorologError, refused
from horolog.lake.core import decisions, recalls, steps
from horolog.lake.core.held import Lake, restore_lake
from horolog.lake.core.stages import Stage
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
        """Whether a message of that origin, which is not here, waits there."""
        if not self.waiting or not self.may_hold(topic, due_ms, due_ms + 1):
            return False
        return not self.gone.has(position, 0)

    # --- recalls --------------------------------------------------------------------------------------

    def claim(self, topic: int, command: Recall | Reschedule) -> npt.NDArray[Any]:
        """GONE rows that wait still, of those that a command names."""
        return recalls.claim(self, topic, command)

    def unseen(self, topic: int, command: Recall | Reschedule | RecallMany) -> HorologError | None:
        """Why somebody has to look there first; None: nobody has to."""
        return recalls.unseen(self, topic, command)

    def recalled(self, rows: npt.NDArray[Any], *, moved: bool = False, done: int = 0) -> Step:
        """The step that recalls, or moves, GONE rows that wait; IN_TIER if no more can be remembered."""
        recalls.check_room(self, len(rows), done)
        fields = {"step": "recalled", "moved": True} if moved else {"step": "recalled"}
        return Step(fields, rows.tobytes())

    # --- steps ----------------------------------------------------------------------------------------

    @property
    def is_taking(self) -> bool:
        """Whether an offload is under way."""
        return self.open is not None

    def decide(self, host: TierHost, command: TierStep | TierQuestion, wall_ms: int) -> object:
        """The result that the command's docstring names; a step is appended."""
        return decisions.decide(self, host, command, wall_ms)

    def is_sealing(self, store: DelayStore, offload_id: int) -> bool:
        """Also of what is frozen already: a start files again what a checkpoint did not name, and has buffers then."""
        stage = self.stage_of(offload_id)
        return stage in (Stage.SEALING, Stage.FROZEN) and steps.is_sealing(store.far)

    def is_contended(self, store: DelayStore) -> bool:
        """A commit cuts the frozen runs: what is being recalled in them must be settled before."""
        return any(run.states.recalling for run in steps.frozen_runs(store.far))

    def apply(self, store: DelayStore, step: Step, end: int, *, is_whole: bool) -> int:
        """Carry out a step whose frame ends at `end`; gives how many messages it recalled."""
        return steps.apply_step(self, store, steps.step_of(*step), end, is_whole=is_whole)

    def follows(self, step: Step | Promotion) -> bool:
        """Whether the table of stages has it, and of recalled rows and promotions the count."""
        if isinstance(step, Promotion):
            return self.count(*step) > 0
        return steps.follows(self, steps.step_of(*step))

    def note_recalled(self, store: DelayStore, refs: npt.NDArray[np.int64]) -> None:
        """Note those of these messages that are frozen: the lake has to be told of them later."""
        steps.note_recalled(self, store, refs)

    # --- what it gives back -----------------------------------------------------------------------------

    def check_promotion(self, promotion: Promotion, topic: int, rows: int) -> None:
        """BAD_REQUEST if an adoption brings not exactly what waits, or an hour before its turn."""
        offload_id, hour, of_topic = promotion
        waits = self.count(offload_id, hour, of_topic)
        if of_topic != topic or not waits:
            raise refused("app", f"nothing of {promotion.app}, hour {hour}, waits in the lake")
        first = self.first_hour(offload_id, of_topic)
        if first != hour:
            raise refused("version", f"hour {first} must be promoted before hour {hour}")
        if waits != rows:
            raise refused("files", f"{rows} rows, but {waits} wait in the lake for hour {hour}")

    def came_back(self, promotion: Promotion) -> None:
        """An hour of a topic is here again."""
        self.promoted(*promotion)

    # --- checkpoints ------------------------------------------------------------------------------------

    def state_file(self) -> tuple[str, bytes] | None:
        """Name and content of the next state file, if one is needed."""
        content = self.capture()
        return None if content is None else (state_name(self.name, self.version), content)

    def checkpoint_failed(self) -> None:
        """The checkpoint is not there: the next one writes the state again."""
        self.changed = True

    def restore_from(
        self, storage: Storage, directory: str, registry: dict[str, Any]
    ) -> list[Damaged]:
        """Take over what a checkpoint names; gives what cannot be read."""
        return restore_lake(self, storage, directory, registry)
