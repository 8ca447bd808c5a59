"""Sorting messages by hour up to the end of the near window; describing a damaged hour."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from horolog.delay.damage import Damaged


def damaged_hour(row: dict[str, int], why: str) -> Damaged:
    """Describe an hour that cannot be opened as a checkpoint states."""
    hour_id = row["hour"]
    name = f"{hour_id:010d}"
    waiting = row.get("waiting", row["count"])  # version 1 lacks it: at most `count`
    return Damaged("hours", name, (name,), why, waiting, hour_id, hour_id)


def group_by_hour(
    hours: npt.NDArray[np.int64], last_near: int
) -> tuple[npt.NDArray[np.int64] | None, list[int | None], list[int]]:
    """Return how to sort messages by hour, each hour in log order: far messages first.

    Returns the rows in that order (None: as they are), the hours (None: far), and where each hour
    begins and the last one ends.
    """
    if bool((hours == hours[0]).all()):
        hour = int(hours[0])
        return None, [hour if hour <= last_near else None], [0, len(hours)]
    grouped = np.where(hours > last_near, -1, hours)
    order = grouped.argsort(kind="stable")
    ordered = grouped[order]
    cuts = [0, *((ordered[1:] != ordered[:-1]).nonzero()[0] + 1).tolist()]
    found = [None if hour < 0 else hour for hour in ordered[cuts].tolist()]
    return order, found, [*cuts, len(hours)]
