"""Where the near window ends: messages by hour, and hours as a checkpoint names them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from horolog.delay.damage import Damaged


def damaged_hour(row: dict[str, int], why: str) -> Damaged:
    """An hour that cannot be opened as a checkpoint says."""
    hour_id = row["hour"]
    name = f"{hour_id:010d}"
    waiting = row.get("waiting", row["count"])  # at most that many, says a checkpoint of version 1
    return Damaged("hours", name, (name,), why, waiting, hour_id, hour_id)


def hour_groups(
    hours: npt.NDArray[np.int64], last_near: int
) -> list[tuple[int | None, npt.NDArray[np.int64]]]:
    """(hour, rows in log order), and (None, rows) for those that are far."""
    if bool((hours == hours[0]).all()):
        hour = int(hours[0])
        return [(hour if hour <= last_near else None, np.arange(len(hours)))]
    is_far = hours > last_near
    groups: list[tuple[int | None, npt.NDArray[np.int64]]] = []
    if bool(is_far.any()):
        groups.append((None, np.flatnonzero(is_far)))
        near = np.flatnonzero(~is_far)
    else:
        near = np.arange(len(hours))
    if len(near):
        order = near[np.argsort(hours[near], kind="stable")]
        cuts = np.flatnonzero(np.diff(hours[order])) + 1
        groups += [(int(hours[part[0]]), part) for part in np.split(order, cuts)]
    return groups
