"""Tune the memory of the process: collect garbage rarely, and return free memory to the system."""

from __future__ import annotations

import ctypes
import gc

from horolog.limits import MIB

_COLLECT_AFTER = 20_000  # objects made and not freed, before the youngest generation is collected
_LARGE_BYTES = 4 * MIB  # above what a turn writes; answers to receives are as large, and larger
_SPARE_BYTES = 32 * MIB  # free bytes kept at the end of the heap, for later allocations
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # values of mallopt's parameters, from malloc.h


def collect_less() -> None:
    """Collect cyclic garbage less often, and never among the objects made at the start.

    Every request makes hundreds of objects that reference counting frees; the collector would scan
    them for nothing, at a quarter of the cost of a send.  100,000 objects that stay (leases) are
    scanned in 25 ms; 400,000 would take 100 ms.
    """
    gc.freeze()
    gc.set_threshold(_COLLECT_AFTER, 5, 200)


def give_back_large_blocks() -> None:
    """Return freed blocks of 4 MiB and more, and the free end of the heap, to the system.

    By default glibc takes a freed large block as a sign that more will come, and keeps up to 64 MiB
    of such blocks in its heap, where one small block after them keeps them all: 300 MB of unread
    answers were never returned.  Other C libraries have no such limits.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, _LARGE_BYTES)
        mallopt(_TRIM_THRESHOLD, _SPARE_BYTES)
