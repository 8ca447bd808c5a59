"""How a broker's process holds memory: rarely walked for garbage, and given back to the system once it is free."""

from __future__ import annotations

import ctypes
import gc

from horolog.limits import MIB

_COLLECT_AFTER = 20_000  # objects made and not freed, before the youngest are looked at
_LARGE_BYTES = 4 * MIB  # above what a turn writes; the answers to receives are as large, and larger
_SPARE_BYTES = 32 * MIB  # free at the end of the heap, for what comes next
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # numbers of mallopt's parameters, malloc.h


def collect_less() -> None:
    """Look for cycles of garbage less often, and never in what a start has made.

    Every request makes hundreds of objects that reference counting frees; the collector would walk them for nothing,
    at a quarter of what a send costs.  100,000 that stay (leases) are looked at in 25 ms; 400,000 would be 100 ms.
    """
    gc.freeze()
    gc.set_threshold(_COLLECT_AFTER, 5, 200)


def give_back_large_blocks() -> None:
    """Let blocks of 4 MiB and more go back to the system when they are freed, and the free end of the heap.

    By itself glibc takes a large block that was freed for a sign that more will come, and keeps up to 64 MiB of them
    in its heap, where one small block after them holds them all: 300 MB of answers that nobody read were kept for ever.
    Other C libraries have no such limits.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, _LARGE_BYTES)
        mallopt(_TRIM_THRESHOLD, _SPARE_BYTES)
