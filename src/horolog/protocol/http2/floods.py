"""Limits on frames that are cheap for the peer and costly for us.

Resets of unanswered streams, and frames without content (PING, SETTINGS, PRIORITY, GOAWAY, empty
DATA, WINDOW_UPDATE, unknown ones), each take a token.  Answers give tokens back, since those who
read them must send such frames: gRPC's C core updates two windows for each call, however short, and
pings now and then; others update both windows after every few kilobytes.  A ping of ours gives back
the token that its answer takes.
"""

from __future__ import annotations

from horolog.protocol.http2.events import Limits
from horolog.protocol.http2.faults import Code, ConnectionFault
from horolog.protocol.http2.outgoing import Outgoing
from horolog.protocol.http2.token_bucket import TokenBucket

FRAMES_AN_ANSWER = 4  # without content, for each answered stream
BYTES_A_FRAME = 4_096  # of answers, for each further frame without content


class Floods:
    """The token buckets of a connection.

    now_ms  monotonic time, which the caller keeps
    out     counts the answered streams, and the bytes of their answers
    """

    def __init__(self, limits: Limits, out: Outgoing) -> None:
        self.now_ms = 0
        self._out = out
        self._resets = TokenBucket(limits.resets_burst, limits.resets_per_second)
        self._frames = TokenBucket(limits.frames_burst, limits.frames_per_second)
        self._answered = self._sent_bytes = 0  # of `out`, for which tokens were given back

    def spend_frame(self) -> None:
        """Count a frame without content; ENHANCE_YOUR_CALM if there are too many."""
        self._give_back()
        if not self._frames.spend(self.now_ms):
            raise ConnectionFault(Code.ENHANCE_YOUR_CALM, "too many frames without content")

    def expect_frame(self) -> None:
        """Give back the token that the answer to a frame of ours will take."""
        self._frames.refill(1)

    def spend_reset(self) -> None:
        """Count a reset of an unanswered stream; ENHANCE_YOUR_CALM if there are too many."""
        self._give_back()
        if not self._resets.spend(self.now_ms):
            raise ConnectionFault(Code.ENHANCE_YOUR_CALM, "too many streams are reset")

    def _give_back(self) -> None:
        """Done only when a token is needed, so that no request has to wait for it."""
        answered = self._out.answered - self._answered
        sent_bytes = self._out.sent_bytes - self._sent_bytes
        if answered or sent_bytes:
            self._resets.refill(answered)
            self._frames.refill(FRAMES_AN_ANSWER * answered + sent_bytes / BYTES_A_FRAME)
            self._answered += answered
            self._sent_bytes += sent_bytes
