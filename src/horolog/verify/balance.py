"""Check, in bounded memory, that files hold exactly the messages that the log leaves pending.

For every hour the log gives the messages that were scheduled, and those that were handed over or
recalled; the files of hours, far buffers and runs give those that wait.  Scheduled − settled =
waiting must hold for the count of messages and for the sum of a hash of their origins.  So a
message that is missing, is there twice, or was settled without having been scheduled is noticed,
though no set of origins is kept.

What a salvage has given up of the log is not known.  Messages from there are left out of both
sides; and where the log says that a message waits, the record of its end may be there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from horolog.delay.row_sum import MASK, mix
from horolog.verify.holes import Holes


class Balance:
    """Messages that the log leaves pending, less those in the files.

    start  log position at which the log begins
    holes  what a salvage has given up, as far as the log has been read
    """

    def __init__(self, start: int, holes: Holes | None = None) -> None:
        self._start = start
        self._holes = Holes() if holes is None else holes
        self._left: dict[int, tuple[int, int]] = {}  # hour → messages, sum of hashes

    def add(self, hours: npt.NDArray[np.int64], origins: npt.NDArray[Any], sign: int) -> None:
        """Add (sign +1) or subtract (−1) messages, with the hour and origin of each.

        Messages from before the start of the log, and from holes, are left out.
        """
        inside = origins.astype(np.uint64) >= np.uint64(self._start)
        inside &= ~self._holes.contains(origins)
        if not bool(inside.all()):
            hours, origins = hours[inside], origins[inside]
        if not len(hours):
            return
        hashes = mix(origins.astype(np.uint64))
        if bool((hours == hours[0]).all()):
            self._put(int(hours[0]), len(hours), int(hashes.sum(dtype=np.uint64)), sign)
            return
        order = np.argsort(hours, kind="stable")
        ordered, hashes = hours[order], hashes[order]
        firsts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
        sums = np.add.reduceat(hashes, firsts).tolist()
        counts = np.diff(np.append(firsts, len(ordered))).tolist()
        for hour, n, total in zip(ordered[firsts].tolist(), counts, sums, strict=True):
            self._put(hour, n, total, sign)

    def _put(self, hour: int, n: int, total: int, sign: int) -> None:
        count, hashes = self._left.get(hour, (0, 0))
        left = (count + sign * n, (hashes + sign * total) & MASK)
        if left == (0, 0):
            self._left.pop(hour, None)
        else:
            self._left[hour] = left

    def faults(self) -> list[tuple[int, int]]:
        """Return (hour, messages that the log has more than the files).

        0: the counts are equal, but the messages differ.  With holes, more is no fault: the records
        of their ends may have been there.
        """
        return [
            (hour, n) for hour, (n, _) in sorted(self._left.items()) if n <= 0 or not self._holes
        ]
