"""Huffman code of header strings: RFC 7541 §5.2 and appendix B.

The code is canonical: codes of one length are consecutive in symbol order, and shorter ones come
first.  So the table of the RFC follows from the lengths.  Decoding runs a state machine with four
bits a step: its states are the inner nodes of the code tree, and since no code is shorter than five
bits a step emits at most one symbol.  A string must end at the root, or within the first seven ones
of the end-of-string code.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from horolog.protocol.http2.faults import HpackFault

EOS = 256
LENGTHS = bytes.fromhex(
    "0d171c1c1c1c1c1c1c181e1c1c1e1c1c1c1c1c1c1c1c1e1c1c1c1c1c1c1c1c1c"
    "060a0a0c0d06080b0a0a080b080606060505050606060606060607080f060c0a"
    "0d06070707070707070707070707070707070707070707070807080d130d0e06"
    "0f05060506050606060507070606060506070605050607070707070f0b0e0d1c"
    "1416141416161617161717171717181718181617181717171715161716171718"
    "1615141616171715171616181516171715151615171617171416161617161617"
    "1a1a1413161716191a1a1a1b1b1a181913151a1b1b1a1b1815151a1a1c1b1b1b"
    "14181415161515171616191918181a171a1b1a1a1b1b1b1b1b1c1b1b1b1b1b1a"
    "1e"
)
"""Bits of the code of each symbol 0–255 and of the end of string."""
assert len(LENGTHS) == EOS + 1


class _Step(NamedTuple):
    state: int  # −1: no code begins with these bits
    symbol: int  # −1: no symbol is complete yet


def _tree() -> list[list[int]]:
    """Build the inner nodes as [child 0, child 1]: the index of an inner node, or −1 − symbol."""
    nodes = [[0, 0]]
    code = previous = 0
    for length, symbol in sorted((length, symbol) for symbol, length in enumerate(LENGTHS)):
        code <<= length - previous
        previous = length
        node = 0
        for shift in range(length - 1, 0, -1):
            bit = code >> shift & 1
            if nodes[node][bit] == 0:
                nodes[node][bit] = len(nodes)
                nodes.append([0, 0])
            node = nodes[node][bit]
        nodes[node][code & 1] = -1 - symbol
        code += 1
    return nodes


def _machine(nodes: list[list[int]]) -> list[_Step]:
    """Build the steps, indexed by state · 16 + next four bits."""
    steps = []
    for state in range(len(nodes)):
        for nibble in range(16):
            node, symbol = state, -1
            for shift in (3, 2, 1, 0):
                node = nodes[node][nibble >> shift & 1]
                if node < 0:
                    symbol, node = -1 - node, 0
                    if symbol == EOS:
                        node = -1
                        break
            steps.append(_Step(node, symbol))
    return steps


def _accepting(nodes: list[list[int]]) -> frozenset[int]:
    """Return the states in which a string may end: the root, and up to seven ones after it."""
    node, found = 0, {0}
    for _ in range(7):
        node = nodes[node][1]
        found.add(node)
    return frozenset(found)


_NODES = _tree()
_STEPS = _machine(_NODES)
_ENDS = _accepting(_NODES)
assert len(_NODES) == EOS
assert len(_STEPS) == EOS * 16
_CACHED_MAX = 96  # longer strings rarely recur


def decode(text: bytes) -> bytes:
    """Decode a string; HpackFault if it is no Huffman code, or its padding is wrong."""
    return _cached(text) if len(text) <= _CACHED_MAX else _decode(text)


def _decode(text: bytes) -> bytes:
    out = bytearray()
    state = 0
    steps = _STEPS
    for byte in text:
        state, symbol = steps[state << 4 | byte >> 4]
        if symbol >= 0:
            if state < 0:
                raise HpackFault("a header string contains the end-of-string code")
            out.append(symbol)
        state, symbol = steps[state << 4 | byte & 15]
        if symbol >= 0:
            if state < 0:
                raise HpackFault("a header string contains the end-of-string code")
            out.append(symbol)
    if state not in _ENDS:
        raise HpackFault("a header string ends with more than seven bits, or with zeros")
    return bytes(out)


_cached = lru_cache(maxsize=4_096)(_decode)
