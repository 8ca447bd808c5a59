"""Offloads of the past, retraced for far buffers that a repair fills again from the log.

A repair reads the log below the checkpoint (`broker.life.repair`) and files far messages again, also
those that an offload has taken since.  Which ones follows from the steps, as in `lake.core.steps`:
all that were filed before the `begin`, are due at or after `from_ms`, and waited at the commit.
They end here, because the table has them.  If the state of the lake is lost, nothing comes back from
the table any more: then they wait here, except those that were recalled there or promoted.
"""

from __future__ import annotations

from collections.abc import Sequence

from horolog.delay.far.buffer import FarBuffer
from horolog.delay.state import EntryState
from horolog.delay.tier import Promotion, Step
from horolog.lake.core.state import Lake
from horolog.lake.core.steps import end_waiting, step_of
from horolog.limits import HOUR_MS


class Retracing:
    """Takes messages out of rebuilt buffers, step by step in log order.

    lake     restored from the checkpoint, which has every offload whose commit is in the log
    is_lost  whether the lake's state could not be read
    """

    def __init__(self, lake: Lake, *, is_lost: bool) -> None:
        self._from_ms = {each.offload_id: each.from_ms for each in lake.offloads.values()}
        self._is_lost = is_lost
        self._frozen: list[FarBuffer] = []
        self._taken: dict[int, list[FarBuffer]] = {}  # by offload, if the lake is lost

    def apply(self, step: Step, rebuilt: Sequence[FarBuffer]) -> None:
        """Apply a step to the buffers that are filled again."""
        fields = step.fields
        match fields["step"]:
            case "begin":
                for buffer in rebuilt:
                    buffer.sealed = buffer.frozen = True
                self._frozen = list(rebuilt)
            case "commit":
                self._take(fields["number"])
            case "abort":
                self._thaw()
            case "recalled":
                self.apply_after(step)

    def apply_after(self, step: Step) -> None:
        """Apply a step above the checkpoint: a replay cannot find what waits here for the lake."""
        if self._is_lost and step.fields["step"] == "recalled":
            self._recall(step)

    def promoted(self, promotion: Promotion) -> None:
        """End the messages of an hour that came back: they have other rows since."""
        first_ms = promotion.hour * HOUR_MS
        for buffer in self._taken.get(promotion.offload_id, ()):
            end_waiting(buffer, first_ms, first_ms + HOUR_MS, promotion.topic)

    def _thaw(self) -> list[FarBuffer]:
        frozen, self._frozen = self._frozen, []
        for buffer in frozen:
            buffer.frozen = False
        return frozen

    def _take(self, offload_id: int) -> None:
        frozen = self._thaw()
        if self._is_lost:
            self._taken[offload_id] = frozen
            return
        for buffer in frozen:
            end_waiting(buffer, self._from_ms[offload_id])

    def _recall(self, step: Step) -> None:
        recalled = step_of(*step).recalled
        recalled = recalled[recalled["row"] == 0]  # no record of the log has another row
        state = EntryState.MOVED if step.fields.get("moved") else EntryState.RECALLED
        for offload_id, buffers in self._taken.items():
            mine = recalled[recalled["number"] == offload_id]
            for buffer in buffers:
                rows = buffer.find(mine["due_ms"], mine["position"])
                rows = rows[rows >= 0]
                buffer.settle(rows[buffer.states[rows] == EntryState.WAITING], state)
