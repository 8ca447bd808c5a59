"""A Bloom filter of recent keys: it answers "no" for certain, and "perhaps" otherwise.

A turn that looks into the key index pays some 200 µs, and nearly every message that is sent is new.
So every key sets six bits, three of each of two adjacent 64-bit words; a key that lacks one of its
bits was not seen.  Keys go into the newest table.  When that has been in use for the time a key
must be remembered, or has taken a key for every 32 of its bits, a new table is begun, 4 times as
large if the old one was full; a table is dropped when its last key is old enough.  So there are two
tables most of the time, and some more while sends become many.

=====================  ==========  ==============================
sends, for 120 s       memory      new keys "perhaps" there before
=====================  ==========  ==============================
up to 500 a second     512 KiB     0.01 %
up to 2 000            2 MiB       0.01 %
up to 8 700            8 MiB       0.02 %
30 000                 32 MiB      0.01 %
50 000                 32 MiB      0.08 %
100 000                32 MiB      1.1 %
=====================  ==========  ==============================

Still more sends fill the largest tables: then more keys are looked up, and nothing else changes.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_SIZES = (1 << 18, 1 << 20, 1 << 22, 1 << 24)  # bytes of a table
_BITS_A_KEY = 32
_FEW = 16  # keys for which plain Python is faster than numpy
_ONE, _SIX_BITS = np.uint64(1), np.uint64(63)
_SECOND, _THIRD = np.uint64(6), np.uint64(12)  # shifts that select the other two bits of a word
_SECOND_WORD = 18  # and the further shift for the second word
_WORDS = np.array([[0], [_SECOND_WORD]], np.uint64)
_SIDE_BY_SIDE = np.array([[0], [1]])


class _Table:
    def __init__(self, size: int, mono_ms: int) -> None:
        self.size = size
        self.words = np.zeros(size // 8, np.uint64)
        self.shift = 64 - (size // 16).bit_length() + 1
        self.few = self.words.data  # the same words, for plain Python
        self.begun_ms = mono_ms
        self.ended_ms = mono_ms
        self.count = 0

    @property
    def room(self) -> int:
        """Count of further keys that the table has bits for."""
        return self.size * 8 // _BITS_A_KEY - self.count


class KeyFilter:
    """A filter of the keys (u64 hashes) of the last `keep_ms`, by the monotonic clock."""

    def __init__(self, keep_ms: int, mono_ms: int = 0) -> None:
        self._keep_ms = keep_ms
        self._tables = [_Table(_SIZES[0], mono_ms)]

    def add(self, keys: npt.NDArray[np.uint64], mono_ms: int) -> npt.NDArray[np.int64]:
        """Add keys; return the indexes of those that may have been added before.

        Duplicates within `keys` are not reported.
        """
        self._renew_tables(mono_ms)
        self._tables[-1].count += len(keys)
        if len(keys) <= _FEW:
            return self._add_few(keys)
        choice = keys >> _WORDS
        bits = _ONE << (choice & _SIX_BITS)
        bits |= _ONE << (choice >> _SECOND & _SIX_BITS)
        bits |= _ONE << (choice >> _THIRD & _SIX_BITS)
        maybe = np.zeros(len(keys), np.bool_)
        for table in self._tables:
            places = ((keys >> np.uint64(table.shift)).astype(np.int64) << 1) + _SIDE_BY_SIDE
            words = table.words[places]
            first, second = words & bits == bits
            maybe |= first & second
        table.words[places] = words | bits
        while bool((lost := table.words[places] & bits != bits).any()):  # two keys share a word
            places, bits = places[lost], bits[lost]
            table.words[places] |= bits
        return maybe.nonzero()[0]

    def _add_few(self, keys: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
        maybe = []
        for i, key in enumerate(keys.tolist()):
            first, second = _bits(key), _bits(key >> _SECOND_WORD)
            for table in self._tables:
                words, at = table.few, key >> table.shift << 1
                if words[at] & first == first and words[at + 1] & second == second:
                    maybe.append(i)
                    break
            newest = self._tables[-1]
            words, at = newest.few, key >> newest.shift << 1
            words[at] |= first
            words[at + 1] |= second
        return np.array(maybe, np.int64)

    def _renew_tables(self, mono_ms: int) -> None:
        """Begin a table if the newest is full, or old enough; forget those whose time has passed."""
        newest = self._tables[-1]
        size = newest.size
        if newest.room <= 0 and size < _SIZES[-1]:
            size = next(each for each in _SIZES if each > size)
        elif mono_ms >= newest.begun_ms + self._keep_ms:
            size = next((s for s in _SIZES if s * 8 // _BITS_A_KEY >= newest.count), _SIZES[-1])
        else:
            return
        newest.ended_ms = mono_ms
        self._tables = [
            table for table in self._tables if table.ended_ms + self._keep_ms > mono_ms
        ] + [_Table(size, mono_ms)]


def _bits(choice: int) -> int:
    """Return the three bits of a word that these 18 bits of a key select."""
    return 1 << (choice & 63) | 1 << (choice >> 6 & 63) | 1 << (choice >> 12 & 63)
