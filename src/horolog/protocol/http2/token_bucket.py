"""Token bucket that limits how often a peer may do what is cheap for the peer and costly for us."""

from __future__ import annotations


class TokenBucket:
    """`burst` tokens, refilled by `per_second` and `refill`.  Times are monotonic milliseconds."""

    __slots__ = ("_at_ms", "_burst", "_left", "_per_second")

    def __init__(self, burst: int, per_second: int) -> None:
        self._burst = burst
        self._per_second = per_second
        self._left = float(burst)
        self._at_ms = 0

    def spend(self, now_ms: int) -> bool:
        """Take one token; return False if there is none."""
        if now_ms > self._at_ms:
            self.refill((now_ms - self._at_ms) * self._per_second / 1_000)
            self._at_ms = now_ms
        if self._left < 1:
            return False
        self._left -= 1
        return True

    def refill(self, tokens: float) -> None:
        """Give tokens back, as time passes or when the peer has let us do something useful."""
        self._left = min(self._burst, self._left + tokens)
